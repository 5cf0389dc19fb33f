"""Retention: the history of deletions, and running the rules now."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.principal import Principal
from fairlane.wire.retention import RetentionHistory, RetentionRun
from fairlane.wire.status import SpanQuery

routes = Routes("retention")


@routes.post("/api/v1/retention/run", needs="system", operator=True)
async def run(broker: Broker) -> RetentionRun:
    """Apply the retention rules of all queues now. Answers 409 if another broker is busy with it for too long."""
    return RetentionRun(deleted=await broker.retention.run())


@routes.get("/api/v1/retention/history", needs="status", each=True, live=True)
async def history(broker: Broker, caller: Principal, query: SpanQuery) -> RetentionHistory:
    """Show what retention deleted, by rule and minute, oldest first. The default range is the last day."""
    found = await broker.retention.history(query)
    seen = [one for one in found.history if caller.allows("status", one.queue)]
    return RetentionHistory(time_range=found.time_range, history=seen)
