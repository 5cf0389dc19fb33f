"""Pause and resume; lanes, and why one does not move."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from fairlane.http.router import Routes
from fairlane.model.names import QUEUE_MODE
from fairlane.wire import pauses as wire

routes = Routes("queues")
_QUEUE = wire.PauseBody()
_RESUMED_QUEUE = wire.ResumeBody()


@routes.post("/api/v1/queues/{queue}/pause", needs="configure")
async def pause(broker: Broker, queue: str, body: wire.PauseBody = _QUEUE) -> wire.PausedThing:
    """Hand out nothing of a queue, a group, a partition or a lane until it is resumed."""
    await broker.pauses.pause(queue, group=body.group, partition=body.partition)
    return wire.PausedThing(queue=queue, group=body.group, partition=body.partition, paused=True)


@routes.post("/api/v1/queues/{queue}/resume", needs="configure")
async def resume(broker: Broker, queue: str, body: wire.ResumeBody = _RESUMED_QUEUE) -> wire.Resumed:
    """Resume what was paused, blocked or parked."""
    if not body.lanes:
        resumed = int(await broker.pauses.resume(queue, group=body.group, partition=body.partition))
    elif body.partition is None:
        resumed = await broker.pauses.resume_lanes(queue, body.group or QUEUE_MODE)
    else:
        raise InvalidRequest("`lanes` resumes all lanes of a group; leave it out to resume one partition")
    return wire.Resumed(queue=queue, group=body.group, partition=body.partition, paused=False, resumed=resumed)


@routes.get("/api/v1/queues/{queue}/pauses", needs="status", live=True)
async def pauses(broker: Broker, queue: str) -> wire.Pauses:
    """What is paused of a queue, and since when."""
    return await broker.pauses.list(queue)


@routes.get("/api/v1/explain/{queue}/{partition}", needs="status", live=True)
async def explain(broker: Broker, queue: str, partition: str, query: wire.ExplainQuery) -> wire.Explained:
    """Why a lane does not move, as a sentence and as data."""
    return await broker.pauses.explain(queue, partition, query.group or QUEUE_MODE)


@routes.get("/api/v1/queues/{queue}/lanes", needs="status", live=True)
async def lanes(broker: Broker, queue: str, query: wire.LanesQuery) -> wire.LanePage:
    """The lanes of a group with their states, by partition, page by page: all, those in a state, or by name."""
    return await broker.pauses.lanes(queue, query)


@routes.get("/api/v1/queues/{queue}/lanes/{partition}", needs="status", live=True)
async def lane(broker: Broker, queue: str, partition: str, query: wire.ExplainQuery) -> wire.Lane:
    """One lane with its state."""
    return await broker.pauses.lane(queue, partition, query.group or QUEUE_MODE)
