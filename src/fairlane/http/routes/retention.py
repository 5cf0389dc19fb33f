"""Retention: what its rules deleted, and deleting now."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.wire.retention import RetentionHistory, RetentionRun
from fairlane.wire.status import SpanQuery

routes = Routes("retention")


@routes.post("/api/v1/retention/run", needs="system", operator=True)
async def run(broker: Broker) -> RetentionRun:
    """Delete what the rules of all queues cover, now. 409 while another broker is at it for too long."""
    return RetentionRun(deleted=await broker.retention.run())


@routes.get("/api/v1/retention/history", needs="status", each=True, live=True)
async def history(broker: Broker, caller: Caller, query: SpanQuery) -> RetentionHistory:
    """What rules deleted, by minute, oldest first; the last day unless asked otherwise."""
    found = await broker.retention.history(query)
    seen = [one for one in found.history if caller.allows("status", one.queue)]
    return RetentionHistory(time_range=found.time_range, history=seen)
