"""Dead letters: list, replay, purge."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.wire.dead_letters import (
    DeadLetterErrors,
    DeadLetterList,
    DlqErrorsQuery,
    DlqQuery,
    PurgedLetters,
    PurgeQuery,
    ReplayBody,
    ReplayedLetter,
    ReplayedLetters,
)

routes = Routes("dead letters")


@routes.get("/api/v1/dlq", live=True)
async def list_letters(broker: Broker, query: DlqQuery) -> DeadLetterList:
    """Dead letters, latest failure first."""
    return await broker.dead_letters.page(query)


@routes.get("/api/v1/dlq/errors", live=True)
async def errors(broker: Broker, query: DlqErrorsQuery) -> DeadLetterErrors:
    """Dead letters by queue, group and error, the most frequent first."""
    return await broker.dead_letters.errors(query)


@routes.post("/api/v1/dlq/replay", body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def replay(broker: Broker, body: ReplayBody) -> ReplayedLetters:
    """Push dead letters again, all or those named; each is replayed once. One of them may get another payload."""
    payload = None if body.data is msgspec.UNSET else bytes(body.data)
    replayed = await broker.dead_letters.replay(body.queue, body, payload=payload, limit=body.limit)
    return ReplayedLetters(replayed=[ReplayedLetter(id=id, message_id=new) for id, new in replayed])


@routes.delete("/api/v1/dlq")
async def purge(broker: Broker, query: PurgeQuery) -> PurgedLetters:
    """Delete dead letters for good, all or those named."""
    return PurgedLetters(purged=await broker.dead_letters.purge(query.queue, query))
