"""`fairlane status` and `fairlane top`: the broker on one screen, once or live."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fairlane.cli.toolkit.command import Client, CommandGroup, Output, client_command, opt
from fairlane.cli.toolkit.output import plural, print_table, printable
from fairlane.errors import StoreUnavailable, Unavailable

if TYPE_CHECKING:
    from fairlane.wire.monitoring import Finding
    from fairlane.wire.queues import ListedQueue, Overview

Sort = Literal["pending", "rate", "oldest", "deadLetters", "name"]
_SORTS: dict[str, Sort] = {"p": "pending", "r": "rate", "o": "oldest", "d": "deadLetters", "n": "name"}
_MARKS = {"critical": "!!", "warning": "!", "notice": "-"}
_FINDINGS_MAX = 10
_STORE_SECONDS = 5.0
"""Timeout for answers that need the store."""
_UNKNOWN = "unknown"
T = TypeVar("T")

app = CommandGroup()


@client_command(app)
async def status(client: Client) -> Output:
    """Show the broker, its store, rates, queue depth and health findings. Exits 1 if a finding is critical.

    Values that need the store are unknown while it is unavailable.
    """
    from asyncio import gather

    health = await client.status.health()
    away = health.status != "healthy"
    overview, history, journal, findings, staged = await gather(
        _with_timeout(client.status.overview, skip=away),
        _with_timeout(partial(client.history.show, minutes=1)),
        client.status.journal(),
        client.findings.all(),
        _with_timeout(client.staged.queues, skip=away),
    )
    entries = journal.journal
    now = {name: _last_complete(getattr(history, name, ())) for name in ("pushed", "popped", "acked", "failed")}
    slow = {name: _last_complete(getattr(history, f"{name}_p99_ms", ())) for name in ("push", "pop", "ack")}
    facts = {
        "broker": f"fairlane {health.version}, up {_format_duration(health.uptime_seconds)}",
        "store": f"{health.store}, {health.database}",
        **_counts(overview),
        "a second": ", ".join(f"{rate:.1f} {name}" for name, rate in now.items()) if history else _UNKNOWN,
        "p99": ", ".join(f"{name} {ms:.1f} ms" for name, ms in slow.items()) if history else _UNKNOWN,
        "journal": "none" if entries is None else f"{entries.entries} entries, {entries.messages} messages wait",
    }
    if staged:
        messages = plural(sum(one.messages for one in staged), "message")
        facts["staged"] = f"{messages}, the oldest since {staged[0].oldest_at.isoformat()}"
    lines = [f"{name:<10}{text}" for name, text in facts.items()]
    awake = [finding for finding in findings if finding.snoozed_until is None]
    lines += ["", *(map(_sentence, awake[:_FINDINGS_MAX]) if awake else ["There are no findings."])]
    if len(awake) > _FINDINGS_MAX:
        lines.append(f"and {len(awake) - _FINDINGS_MAX} more; --json shows all")
    if len(awake) < len(findings):
        lines.append(f"{plural(len(findings) - len(awake), 'finding')} snoozed; `fairlane finding list` shows all")
    shown = {
        "health": health,
        "overview": overview,
        "rates": now if history else None,
        "p99Ms": slow if history else None,
        "journal": entries,
        "staged": staged,
        "findings": findings,
    }
    critical = away or any(finding.severity == "critical" for finding in awake)
    return Output(shown, lambda: sys.stdout.write("\n".join(map(printable, lines)) + "\n"), 1 if critical else 0)


async def _with_timeout(ask: Callable[[], Awaitable[T]], *, skip: bool = False) -> T | None:
    """Return the store's answer, or None on a timeout."""
    from asyncio import timeout

    if skip:
        return None
    try:
        async with timeout(_STORE_SECONDS):
            return await ask()
    except (Unavailable, TimeoutError):
        return None


def _counts(overview: Overview | None) -> dict[str, str]:
    if overview is None:
        return dict.fromkeys(("queues", "messages", "dead"), _UNKNOWN)
    counts = overview.messages
    return {
        "queues": f"{overview.queues} with {plural(overview.partitions, 'partition')}",
        "messages": f"{counts.pending} pending, {counts.processing} leased, {counts.total} stored",
        "dead": plural(counts.dead_letter, "dead letter"),
    }


@client_command(app)
async def top(
    client: Client,
    sort: Annotated[Sort, opt("Sort order.")] = "pending",
    lines: Annotated[int, opt("Number of queues to show.", "--lines", "-n")] = 20,
    seconds: Annotated[float, opt("Seconds between updates.")] = 1.0,
    json: Annotated[bool, opt("Print JSON once and exit.", "--json")] = False,
) -> Output | None:
    """Watch queues live. Press p, r, o, d or n to sort, q to quit.

    The keys sort by pending, rate, oldest, dead letters and name. If the output is not a terminal, prints the queues
    once.
    """
    if json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        queues = await _listed(client, sort, lines)
        rows = [_cells(queue) for queue in queues]
        return Output(queues, lambda: print_table(_TITLES, rows, empty="There are no queues."))
    import asyncio

    from fairlane.cli.toolkit.screen import Screen, keys
    from fairlane.cli.toolkit.table import lines as table

    shown: list[str] = []
    trouble: list[str] = []
    with keys() as pressed, Screen() as screen:
        while True:
            try:
                rows = [_cells(queue) for queue in await _listed(client, sort, lines)]
                shown = list(table(_TITLES, rows, width=screen.columns)) if rows else ["There are no queues."]
                trouble = []
            except Unavailable as error:
                if not shown and not isinstance(error, StoreUnavailable):
                    raise  # the broker was never reached
                trouble = [str(error), ""]
            screen.draw([*trouble, *shown, "", f"by {sort}; keys p r o d n sort, q quits"])
            try:
                key = await asyncio.wait_for(pressed.get(), seconds)
            except TimeoutError:
                continue
            if key in ("q", "\x03"):
                return None
            sort = _SORTS.get(key, sort)


async def _listed(client: Client, sort: str, limit: int) -> list[ListedQueue]:
    """Return the first queues. Raises StoreUnavailable if the store does not answer in time."""
    from asyncio import timeout

    try:
        async with timeout(_STORE_SECONDS):
            return await client.queues.all(sort=sort, limit=limit)
    except TimeoutError:
        raise StoreUnavailable(
            f"no answer within {_STORE_SECONDS:g} s; `fairlane status` shows whether the store is available"
        ) from None


_TITLES = ("queue", "pending", "leased", "dead", "in/s", "out/s", "acked/s", "partitions", "")


def _cells(queue: ListedQueue) -> tuple[object, ...]:
    counts, rates = queue.messages, queue.rates
    state = "paused" if queue.paused else ""
    return (
        *(queue.name, counts.pending, counts.processing, counts.dead_letter),
        *(rates.pushed, rates.popped, rates.acked, queue.partitions, state),
    )


def _sentence(finding: Finding) -> str:
    return f"{_MARKS[finding.severity]:<3}{finding.sentence}"


def _last_complete(column: Sequence[float | None]) -> float:
    """Return the last complete point. The newest is still being counted."""
    known = [value for value in column[:-1] if value is not None]
    return known[-1] if known else 0.0


def _format_duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
