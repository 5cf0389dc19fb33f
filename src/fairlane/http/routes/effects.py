"""Effects: what a handler did once for a message, kept for its later attempts."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.wire.effects import Effect, EffectBody, EffectQuery

routes = Routes("effects")


@routes.get("/api/v1/effects/{key}")
async def get(broker: Broker, key: str, query: EffectQuery) -> Effect:
    """What a handler did once for a message."""
    return await broker.effects.get(key, query)


@routes.post("/api/v1/effects/{key}")
async def keep(broker: Broker, key: str, body: EffectBody) -> Effect:
    """Keep what a handler did once, unless something is kept under the key; the answer is what is kept."""
    return await broker.effects.keep(key, body)
