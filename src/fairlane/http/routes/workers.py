"""Workers: they report, and are listed while they do."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.wire.workers import WorkerLeft, WorkerReport, Workers

routes = Routes("workers")


@routes.get("/api/v1/workers", live=True)
async def list_workers(broker: Broker) -> Workers:
    """Workers that are alive, their queues and their work."""
    return Workers(workers=await broker.workers.list())


@routes.post("/api/v1/workers/{id}", statuses=(204,))
async def report(broker: Broker, id: str, body: WorkerReport) -> None:
    """A worker tells what it does; it is alive for some 30 seconds more."""
    await broker.workers.report(id, body)


@routes.delete("/api/v1/workers/{id}")
async def leave(broker: Broker, id: str) -> WorkerLeft:
    """A worker ends."""
    return WorkerLeft(id=id, left=await broker.workers.leave(id))
