"""Workers: they report, and are listed while they do."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.wire.workers import WorkerLeft, WorkerListQuery, WorkerReport, Workers

routes = Routes("workers")


@routes.get("/api/v1/workers", needs="status", live=True)
async def list_workers(broker: Broker, query: WorkerListQuery) -> Workers:
    """Workers that are alive, their queues and their work: all by id, or a page of those that are searched for."""
    return await broker.workers.page(query)


@routes.post("/api/v1/workers/{id}", needs="pop", each=True, audited=False, statuses=(204,))
async def report(broker: Broker, id: str, body: WorkerReport) -> None:
    """A worker tells what it does; it is alive for some 30 seconds more."""
    await broker.workers.report(id, body)


@routes.delete("/api/v1/workers/{id}", needs="pop", each=True, audited=False)
async def leave(broker: Broker, id: str) -> WorkerLeft:
    """A worker ends."""
    return WorkerLeft(id=id, left=await broker.workers.leave(id))
