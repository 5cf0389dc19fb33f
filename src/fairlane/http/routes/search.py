"""Search over queues, partitions, messages and operations."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.principal import Principal
from fairlane.wire import search as wire

routes = Routes("browse")


@routes.get("/api/v1/search", needs="status browse", each=True)
async def find(broker: Broker, caller: Principal, query: wire.SearchQuery) -> wire.SearchResult:
    """Find queues, partitions, messages and operations by a name or an id."""
    return await broker.search.find(query, caller)
