"""Dead letters: list, replay, purge."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.principal import Principal
from fairlane.wire import dead_letters as wire

routes = Routes("dead letters")


@routes.get("/api/v1/dlq", needs="browse", each=True, live=True)
async def list_letters(broker: Broker, caller: Principal, query: wire.DlqQuery) -> wire.DeadLetterList:
    """List dead letters, latest failure first."""
    scopes.check(caller, "browse", query.queue)
    return await broker.dead_letters.search(query)


@routes.get("/api/v1/dlq/errors", needs="status", each=True, live=True)
async def errors(broker: Broker, caller: Principal, query: wire.DlqErrorsQuery) -> wire.DeadLetterErrors:
    """Count dead letters by queue, group and error, most frequent first."""
    scopes.check(caller, "status", query.queue)
    return await broker.dead_letters.errors(query)


@routes.post("/api/v1/dlq/replay", needs="replay", each=True, body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def replay(broker: Broker, caller: Principal, body: wire.ReplayBody) -> wire.ReplayedLetters:
    """Replay dead letters, all or by id, each only once. A single one may get another payload."""
    caller.check("replay", body.queue)
    payload = None if body.data is msgspec.UNSET else bytes(body.data)
    replayed = await broker.dead_letters.replay(body.queue, body, payload=payload, limit=body.limit)
    return wire.ReplayedLetters(replayed=[wire.ReplayedLetter(id=id, message_id=new) for id, new in replayed])


@routes.delete("/api/v1/dlq", needs="purge", each=True)
async def purge(broker: Broker, caller: Principal, query: wire.PurgeQuery) -> wire.PurgedLetters:
    """Delete dead letters for good, all or by id."""
    caller.check("purge", query.queue)
    return wire.PurgedLetters(purged=await broker.dead_letters.purge(query.queue, query))
