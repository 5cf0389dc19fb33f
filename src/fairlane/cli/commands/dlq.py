"""`fairlane dlq`: list, replay and purge dead letters."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from fairlane.cli.toolkit.command import (
    Client,
    CommandGroup,
    Limit,
    Output,
    QueueName,
    Yes,
    arg,
    check_queue,
    client_command,
    columns_of,
    opt,
    print_fields,
    print_rows,
)
from fairlane.cli.toolkit.output import confirm, echo, format_time, plural, print_lines
from fairlane.client import DeadLetter
from fairlane.client.dead_letters import DeadLetterFilters
from fairlane.errors import InvalidRequest
from fairlane.wire.dead_letters import DeadLetterError

app = CommandGroup("dlq")

Group = Annotated[str | None, opt("Only dead letters of this consumer group.")]
Partition = Annotated[str | None, opt("Only dead letters of this partition.")]
Error = Annotated[str | None, opt("Only dead letters whose error contains this text.")]
Ids = Annotated[tuple[str, ...], arg("ID", "Ids of dead letters.")]
All = Annotated[bool, opt("Select all dead letters that match the other options.", "--all")]
_LETTERS = columns_of(
    "id partition group failed=failed_at attempts error data replayed_as",
    data=lambda letter: _cut(bytes(letter.raw).decode(errors="replace")),
)
_FIELDS = columns_of(
    "id transaction_id partition group failed=failed_at attempts error failed_in replayed_as locked data",
    failed_in=lambda letter: _newest_frame(letter),
    data=lambda letter: bytes(letter.raw).decode(errors="replace"),
)
_STEP_SECONDS = 0.5
_STEP_MAX = 500
_VARYING = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27,}|0x[0-9a-fA-F]+|'[^']*'|\"[^\"]*\"|`[^`]*`|\d+(\.\d+)*")
"""Parts in which errors of the same kind differ: ids, quoted names and numbers."""
_ERRORS = columns_of(
    "queue group error texts count replayed last",
    queue=lambda pair: pair[0].queue,
    group=lambda pair: pair[0].group,
    error=lambda pair: pair[0].error,
    texts=lambda pair: pair[1],
    count=lambda pair: pair[0].count,
    replayed=lambda pair: pair[0].replayed,
    last=lambda pair: format_time(pair[0].last_failed_at),
)


@client_command(app, "list")
async def list_letters(
    client: Client,
    queue: QueueName,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    limit: Limit = 100,
) -> Output:
    """List dead letters, the latest failure first."""
    letters = await client.dead_letters.page(queue, group=group, partition=partition, error=error, limit=limit)
    if not letters:
        await check_queue(client, queue)
    return Output(letters, lambda: print_rows(_LETTERS, letters, empty=f"Queue {queue} has no dead letters."))


@client_command(app)
async def show(
    client: Client,
    queue: QueueName,
    id: Annotated[str, arg("ID", "Id of the dead letter.")],
    trace: Annotated[bool, opt("Show all kept errors, each with its traceback.", "--trace")] = False,
) -> Output:
    """Show a dead letter with its payload and last error."""
    letter = await client.dead_letters.get(queue, id)
    return Output(letter, lambda: _print_letter(letter, trace=trace))


@client_command(app)
async def replay(
    client: Client,
    queue: QueueName,
    ids: Ids = (),
    every: All = False,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    payload: Annotated[str | None, opt("JSON to push in place of the original payload; needs exactly one ID.")] = None,
    rate: Annotated[
        str | None,
        opt("Replay at most this many, for example 50/s or 600/m. Ctrl-C stops between two steps.", metavar="N/s"),
    ] = None,
) -> Output:
    """Replay dead letters: push their messages to the queue again."""
    _check_selection(ids, every)
    if rate is not None:
        if ids or payload is not None:
            raise InvalidRequest("--rate is for --all, so leave out ids and --payload")
        where = DeadLetterFilters(group=group, partition=partition, error=error)
        return await _replay_slowly(client, queue, where, parse_rate(rate))
    data = msgspec.UNSET if payload is None else _json(payload)
    replayed = await client.dead_letters.replay(
        queue, group=group, partition=partition, error=error, ids=ids or None, data=data
    )
    shown = [{"id": id, "messageId": message} for id, message in replayed]
    return _result(shown, "Replayed", len(replayed), ids, queue)


@client_command(app)
async def purge(
    client: Client,
    queue: QueueName,
    ids: Ids = (),
    every: All = False,
    group: Group = None,
    partition: Partition = None,
    error: Error = None,
    yes: Yes = False,
) -> Output:
    """Delete dead letters permanently."""
    _check_selection(ids, every)
    which = plural(len(ids), "dead letter") if ids else "all dead letters"
    confirm(f"Delete {which} of queue {queue} permanently?", yes)
    purged = await client.dead_letters.purge(queue, group=group, partition=partition, error=error, ids=ids or None)
    return _result({"queue": queue, "purged": purged}, "Purged", purged, ids, queue)


@client_command(app)
async def errors(
    client: Client,
    queue: Annotated[str | None, arg("QUEUE", "Queue to count; all queues by default.")] = None,
    each: Annotated[bool, opt("Count each error text separately.", "--each")] = False,
) -> Output:
    """Count dead letters by error, the most frequent first.

    Errors that differ only in numbers, ids and quoted names count as one. With --json, each text is on its own.
    """
    found = await client.dead_letters.errors(queue)
    if not found and queue is not None:
        await check_queue(client, queue)
    rows = [(one, 1) for one in found] if each else _merged(found)
    return Output(found, lambda: print_rows(_ERRORS, rows, empty="There are no dead letters."))


def _merged(found: Sequence[DeadLetterError]) -> list[tuple[DeadLetterError, int]]:
    """Return errors of the same shape as one, each with the number of its texts, most frequent first."""
    same: dict[tuple[str, str, str], list[DeadLetterError]] = {}
    for one in found:
        same.setdefault((one.queue, one.group, _VARYING.sub("…", one.error)), []).append(one)
    merged = [
        (
            msgspec.structs.replace(
                some[0],
                error=shape if len(some) > 1 else some[0].error,
                count=sum(one.count for one in some),
                replayed=sum(one.replayed for one in some),
                last_failed_at=max(one.last_failed_at for one in some),
            ),
            len(some),
        )
        for (_, _, shape), some in same.items()
    ]
    return sorted(merged, key=lambda pair: -pair[0].count)


async def _replay_slowly(client: Client, queue: str, where: DeadLetterFilters, per_second: float) -> Output:
    """Replay in small steps, with progress on stderr. What was replayed stays replayed when it is interrupted."""
    total, shown = await client.dead_letters.count(queue, **where), list[dict[str, str]]()
    step = max(1, min(_STEP_MAX, int(per_second * _STEP_SECONDS)))
    due = time.monotonic()
    try:
        while some := await client.dead_letters.replay(queue, limit=step, **where):
            shown += [{"id": id, "messageId": message} for id, message in some]
            echo(f"Replayed {len(shown)} of {max(total, len(shown))} dead letters of {queue}.")
            if len(shown) >= total:  # letters that come meanwhile are for the next replay
                break
            due = max(due + len(some) / per_second, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
    except asyncio.CancelledError:
        echo(f"Stopped: {plural(len(shown), 'dead letter')} of {queue} replayed, the others are unchanged.")
        raise
    return Output(shown, f"Replayed {plural(len(shown), 'dead letter')} of {queue}.")


def parse_rate(text: str) -> float:
    """Parse a rate such as `50/s`, `600/m` or `50`, which is per second. Raises InvalidRequest."""
    number, _, unit = text.partition("/")
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit)
    if seconds is None or not number.isdecimal() or not int(number):
        raise InvalidRequest(f"--rate is {text!r:.40}; write a number per second, minute or hour, like 50/s or 600/m")
    return int(number) / seconds


def _print_letter(letter: DeadLetter, *, trace: bool) -> None:
    print_fields(_FIELDS, letter)
    for number, one in enumerate(letter.errors if trace else (), letter.attempts - len(letter.errors) + 1):
        print_lines(f"\nAttempt {number}, {format_time(one.at)}: {one.error}")
        print_lines(one.traceback or "The consumer sent no traceback.")


def _newest_frame(letter: DeadLetter) -> str | None:
    """Return the place where the last attempt failed. None if its traceback is not known."""
    lines = (letter.errors[-1].traceback or "").splitlines() if letter.errors else []
    return next((line.strip() for line in reversed(lines) if line.startswith('  File "')), None)


def _json(text: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"--payload is not JSON: {error}") from None
    return msgspec.Raw(text.encode())


def _check_selection(ids: tuple[str, ...], every: bool) -> None:
    if bool(ids) == every:
        raise InvalidRequest("name the ids of dead letters, or use --all")


def _result(shown: Any, verb: str, count: int, ids: tuple[str, ...], queue: str) -> Output:
    missing = len(ids) - count
    if missing <= 0:
        return Output(shown, f"{verb} {plural(count, 'dead letter')} of {queue}.")
    return Output(
        shown, f"{verb} {count} of {plural(len(ids), 'dead letter')} of {queue}; the other ids do not exist.", 1
    )


def _cut(text: str, *, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
