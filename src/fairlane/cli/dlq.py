"""`fairlane dlq ...`"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fairlane.cli.output import confirm, counted
from fairlane.cli.verb import Client, Limit, Noun, QueueName, Shown, Yes, arg, columns_of, opt, print_rows, verb
from fairlane.errors import InvalidRequest

app = Noun("dlq")

Group = Annotated[str | None, opt("Only those that this group gave up on.")]
Partition = Annotated[str | None, opt("Only those of this partition.")]
Error = Annotated[str | None, opt("Only those whose error contains this.")]
Ids = Annotated[list[str] | None, arg("ID", "Of dead letters.")]
All = Annotated[bool, opt("All of them, or all that the other options choose.", "--all")]
_LETTERS = columns_of(
    "id partition group failed=failed_at attempts error data replayed_as",
    data=lambda letter: _cut(bytes(letter.raw).decode(errors="replace")),
)
_FACTS = columns_of(
    "id transaction_id partition group failed=failed_at attempts error replayed_as locked data",
    data=lambda letter: bytes(letter.raw).decode(errors="replace"),
)
_ERRORS = columns_of("queue group error count replayed last=last_failed_at")


@verb(app, "list")
async def list_letters(
    client: Client,
    queue: QueueName,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    limit: Limit = 100,
) -> Shown:
    """List dead letters, latest failure first."""
    letters = await client.dead_letters.list(queue, group=group, partition=partition, error=error, limit=limit)
    return Shown(letters, lambda: print_rows(_LETTERS, letters, empty=f"Queue {queue} has no dead letters."))


@verb(app, facts=_FACTS)
async def show(client: Client, queue: QueueName, id: Annotated[str, arg("ID", "Of a dead letter.")]) -> Any:
    """Show a dead letter whole: its payload and its last error."""
    return await client.dead_letters.get(queue, id)


@verb(app)
async def replay(
    client: Client,
    queue: QueueName,
    ids: Ids = None,
    every: All = False,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    payload: Annotated[str | None, opt("JSON to push instead of what failed, of the one dead letter named.")] = None,
) -> Shown:
    """Push dead letters again."""
    _choose(ids, every)
    data = msgspec.UNSET if payload is None else _json(payload)
    replayed = await client.dead_letters.replay(
        queue, group=group, partition=partition, error=error, ids=ids or None, data=data
    )
    shown = [{"id": id, "messageId": message} for id, message in replayed]
    return _done(shown, "Replayed", len(replayed), ids, queue)


@verb(app)
async def purge(
    client: Client,
    queue: QueueName,
    ids: Ids = None,
    every: All = False,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    yes: Yes = False,
) -> Shown:
    """Delete dead letters for good."""
    _choose(ids, every)
    which = counted(len(ids), "dead letter") if ids else "all dead letters"
    confirm(f"Delete {which} of queue {queue} for good?", yes)
    purged = await client.dead_letters.purge(queue, group=group, partition=partition, error=error, ids=ids or None)
    return _done({"queue": queue, "purged": purged}, "Purged", purged, ids, queue)


@verb(app, columns=_ERRORS, empty="There are no dead letters.")
async def errors(client: Client, queue: Annotated[str | None, arg("QUEUE", "All queues without one.")] = None) -> Any:
    """Count dead letters by their error, the most frequent first."""
    return await client.dead_letters.errors(queue)


def _json(text: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"--payload is not JSON: {error}") from None
    return msgspec.Raw(text.encode())


def _choose(ids: list[str] | None, every: bool) -> None:
    if bool(ids) == every:
        raise InvalidRequest("name the ids of dead letters, or say --all")


def _done(shown: Any, verb: str, count: int, ids: list[str] | None, queue: str) -> Shown:
    missing = len(ids or ()) - count
    if missing <= 0:
        return Shown(shown, f"{verb} {counted(count, 'dead letter')} of {queue}.")
    return Shown(shown, f"{verb} {count} of {counted(len(ids or ()), 'dead letter')} of {queue}: it has no others.", 1)


def _cut(text: str, *, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
