"""Workers: they report, and are listed while they do."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.wire.workers import WorkerLeft, WorkerListQuery, WorkerReport, Workers

routes = Routes("workers")


@routes.get("/api/v1/workers", needs="status", live=True)
async def list_workers(broker: Broker, query: WorkerListQuery) -> Workers:
    """Workers that are alive, their queues and their work: all by id, or a page of those that are searched for."""
    return await broker.workers.page(query)


@routes.post("/api/v1/workers/{id}", needs="pop", each=True, audited=False, statuses=(204,))
async def report(broker: Broker, caller: Caller, id: str, body: WorkerReport) -> None:
    """A worker tells what it does; it is alive for some 30 seconds more."""
    for own in body.queues:
        caller.check("pop", own.queue)
    await _check_known(broker, caller, id)
    await broker.workers.report(id, body)


@routes.delete("/api/v1/workers/{id}", needs="pop", each=True, audited=False)
async def leave(broker: Broker, caller: Caller, id: str) -> WorkerLeft:
    """A worker ends."""
    await _check_known(broker, caller, id)
    return WorkerLeft(id=id, left=await broker.workers.leave(id))


async def _check_known(broker: Broker, caller: Caller, id: str) -> None:
    """Raise Forbidden unless the caller may pop from every queue of the worker that has this id."""
    if not caller.allows_all("pop"):
        for queue in await broker.workers.queues(id):
            caller.check("pop", queue)
