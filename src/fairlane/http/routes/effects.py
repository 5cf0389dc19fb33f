"""Effects: what a handler did once for a message, kept for its later attempts."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http import scopes
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.wire.effects import Effect, EffectBody, EffectQuery

routes = Routes("effects")


@routes.get("/api/v1/effects/{key}", needs="pop", each=True)
async def get(broker: Broker, caller: Caller, key: str, query: EffectQuery) -> Effect:
    """What a handler did once for a message."""
    await scopes.check_partitions(broker, caller, "pop", [query.partition_id])
    return await broker.effects.get(key, query)


@routes.post("/api/v1/effects/{key}", needs="pop", each=True, audited=False)
async def keep(broker: Broker, caller: Caller, key: str, body: EffectBody) -> Effect:
    """Keep what a handler did once, unless something is kept under the key; the answer is what is kept."""
    await scopes.check_partitions(broker, caller, "pop", [body.partition_id])
    return await broker.effects.keep(key, body)
