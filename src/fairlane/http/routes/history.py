"""History: what happened lately."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http import scopes
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.wire.history import History, HistoryQuery

routes = Routes("status")


@routes.get("/api/v1/history", needs="status", each=True, live=True)
async def history(broker: Broker, caller: Caller, query: HistoryQuery) -> History:
    """What happened lately, of one queue or of all: messages a second, depth and latencies, in columns."""
    scopes.check(caller, "status", query.queue)
    return await broker.history.show(query.queue, group=query.group, minutes=query.minutes)
