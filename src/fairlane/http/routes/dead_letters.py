"""Dead letters: list, replay, purge."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.wire import dead_letters as wire

routes = Routes("dead letters")


@routes.get("/api/v1/dlq", live=True)
async def list_letters(broker: Broker, query: wire.DlqQuery) -> wire.DeadLetterList:
    """Dead letters, latest failure first."""
    return await broker.dead_letters.page(query)


@routes.get("/api/v1/dlq/errors", live=True)
async def errors(broker: Broker, query: wire.DlqErrorsQuery) -> wire.DeadLetterErrors:
    """Dead letters by queue, group and error, the most frequent first."""
    return await broker.dead_letters.errors(query)


@routes.post("/api/v1/dlq/replay", body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def replay(broker: Broker, body: wire.ReplayBody) -> wire.ReplayedLetters:
    """Push dead letters again, all or those named; each is replayed once. One of them may get another payload."""
    payload = None if body.data is msgspec.UNSET else bytes(body.data)
    replayed = await broker.dead_letters.replay(body.queue, body, payload=payload, limit=body.limit)
    return wire.ReplayedLetters(replayed=[wire.ReplayedLetter(id=id, message_id=new) for id, new in replayed])


@routes.delete("/api/v1/dlq")
async def purge(broker: Broker, query: wire.PurgeQuery) -> wire.PurgedLetters:
    """Delete dead letters for good, all or those named."""
    return wire.PurgedLetters(purged=await broker.dead_letters.purge(query.queue, query))
