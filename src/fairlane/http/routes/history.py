"""History: what happened lately."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.wire.history import History, HistoryQuery

routes = Routes("status")


@routes.get("/api/v1/history", live=True)
async def history(broker: Broker, query: HistoryQuery) -> History:
    """What happened lately, of one queue or of all: messages a second, depth and latencies, in columns."""
    return await broker.history.show(query)
