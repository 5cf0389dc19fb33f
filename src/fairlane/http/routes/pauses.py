"""Pauses, lanes, and explanations why a lane does not advance."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from fairlane.http.router import Routes
from fairlane.model.names import QUEUE_MODE
from fairlane.wire import pauses as wire

routes = Routes("queues")
everywhere = Routes("pauses")
_QUEUE = wire.PauseBody()
_RESUMED_QUEUE = wire.ResumeBody()


@routes.post("/api/v1/queues/{queue}/pause", needs="configure")
async def pause(broker: Broker, queue: str, body: wire.PauseBody = _QUEUE) -> wire.PausedThing:
    """Pause a queue, a group, a partition or a lane, so that it delivers no messages until it is resumed."""
    await broker.pauses.pause(queue, group=body.group, partition=body.partition)
    return wire.PausedThing(queue=queue, group=body.group, partition=body.partition, paused=True)


@routes.post("/api/v1/queues/{queue}/resume", needs="configure")
async def resume(broker: Broker, queue: str, body: wire.ResumeBody = _RESUMED_QUEUE) -> wire.Resumed:
    """Resume a queue, a group, a partition or a lane that is paused, blocked or parked."""
    skipped = 0
    if body.skip:
        if not body.lanes and body.partition is None:
            raise InvalidRequest("`skip` needs a partition or `lanes`: it dead-letters the message that stops a lane")
        skipped = await broker.pauses.skip(queue, body.group or QUEUE_MODE, partition=body.partition)
    if not body.lanes:
        resumed = int(await broker.pauses.resume(queue, group=body.group, partition=body.partition))
    elif body.partition is None:
        resumed = await broker.pauses.resume_lanes(queue, body.group or QUEUE_MODE)
    else:
        raise InvalidRequest("`lanes` resumes all lanes of a group; leave it out to resume one partition")
    return wire.Resumed(
        queue=queue, group=body.group, partition=body.partition, paused=False, resumed=resumed, skipped=skipped
    )


@routes.get("/api/v1/queues/{queue}/pauses", needs="status", live=True)
async def pauses(broker: Broker, queue: str) -> wire.Pauses:
    """Show the pauses of a queue with their start times."""
    return await broker.pauses.all(queue)


@routes.get("/api/v1/explain/{queue}/{partition}", needs="status", live=True)
async def explain(broker: Broker, queue: str, partition: str, query: wire.ExplainQuery) -> wire.Explained:
    """Explain why a lane does not advance, as a sentence and as data."""
    return await broker.pauses.explain(queue, partition, query.group or QUEUE_MODE)


@routes.get("/api/v1/queues/{queue}/lanes", needs="status", live=True)
async def lanes(broker: Broker, queue: str, query: wire.LanesQuery) -> wire.LanePage:
    """List the lanes of a group with their states, by partition, page by page, optionally by state or name."""
    return await broker.pauses.lanes(queue, query)


@routes.get("/api/v1/queues/{queue}/lanes/{partition}", needs="status", live=True)
async def lane(broker: Broker, queue: str, partition: str, query: wire.ExplainQuery) -> wire.LaneDetail:
    """Show one lane with its state."""
    return await broker.pauses.lane(queue, partition, query.group or QUEUE_MODE)


@everywhere.get("/api/v1/pauses", needs="status")
async def show_everywhere(broker: Broker) -> wire.GlobalPauses:
    """Show if all pops or all pushes are paused."""
    return await broker.pauses.everywhere()


@everywhere.post("/api/v1/pauses", needs="system", operator=True)
async def set_everywhere(broker: Broker, body: wire.GlobalPausesBody) -> wire.GlobalPauses:
    """Pause or resume all pops, or all pushes, at every broker of the store within two seconds.

    Answers 409 for pushes without a journal.
    """
    if body.pushes is not None:
        await broker.pauses.pause_pushes(body.pushes)
    if body.pops is not None:
        await broker.pauses.pause_pops(body.pops)
    return await broker.pauses.everywhere()
