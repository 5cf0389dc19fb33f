"""`fairlane status` and `fairlane top`: the broker on one screen, once or live."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fairlane.cli.output import counted, print_table, printable
from fairlane.cli.verb import Client, Noun, Shown, opt, verb
from fairlane.errors import StoreUnavailable, Unavailable

if TYPE_CHECKING:
    from fairlane.wire.findings import Finding
    from fairlane.wire.queues import ListedQueue, Overview

Sort = Literal["pending", "rate", "oldest", "deadLetters", "name"]
_SORTS: dict[str, Sort] = {"p": "pending", "r": "rate", "o": "oldest", "d": "deadLetters", "n": "name"}
_MARKS = {"critical": "!!", "warning": "!", "notice": "-"}
_FINDINGS_MAX = 10
_STORE_SECONDS = 5.0
"""Timeout for answers that need the store."""
_UNKNOWN = "unknown"
T = TypeVar("T")

app = Noun()


@verb(app)
async def status(client: Client) -> Shown:
    """Show the broker, its store, rates, depth, and what is worth acting on. Exits 1 if something is critical.

    While the store is away, what it alone knows is unknown.
    """
    from asyncio import gather

    health = await client.status.health()
    away = health.status != "healthy"
    overview, history, journal, findings = await gather(
        _unless_late(client.status.overview, skip=away),
        _unless_late(partial(client.history.show, minutes=1)),
        client.status.journal(),
        client.findings.list(),
    )
    entries = journal.journal
    now = {name: _last(getattr(history, name, ())) for name in ("pushed", "popped", "acked", "failed")}
    slow = {name: _last(getattr(history, f"{name}_p99_ms", ())) for name in ("push", "pop", "ack")}
    facts = {
        "broker": f"fairlane {health.version}, up {_lasting(health.uptime_seconds)}",
        "store": f"{health.store}, {health.database}",
        **_counts(overview),
        "a second": ", ".join(f"{rate:.1f} {name}" for name, rate in now.items()) if history else _UNKNOWN,
        "p99": ", ".join(f"{name} {ms:.1f} ms" for name, ms in slow.items()) if history else _UNKNOWN,
        "journal": "none" if entries is None else f"{entries.entries} entries, {entries.messages} messages wait",
    }
    lines = [f"{name:<10}{text}" for name, text in facts.items()]
    lines += ["", *(map(_sentence, findings[:_FINDINGS_MAX]) if findings else ["Nothing needs you."])]
    if len(findings) > _FINDINGS_MAX:
        lines.append(f"and {len(findings) - _FINDINGS_MAX} more: --json has all of them")
    shown = {
        "health": health,
        "overview": overview,
        "rates": now if history else None,
        "p99Ms": slow if history else None,
        "journal": entries,
        "findings": findings,
    }
    critical = away or any(finding.severity == "critical" for finding in findings)
    return Shown(shown, lambda: sys.stdout.write("\n".join(map(printable, lines)) + "\n"), 1 if critical else 0)


async def _unless_late(ask: Callable[[], Awaitable[T]], *, skip: bool = False) -> T | None:
    """Return what the store answers, or None if it does not in time."""
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
        "queues": f"{overview.queues} with {counted(overview.partitions, 'partition')}",
        "messages": f"{counts.pending} pending, {counts.processing} leased, {counts.total} stored",
        "dead": counted(counts.dead_letter, "dead letter"),
    }


@verb(app)
async def top(
    client: Client,
    sort: Annotated[Sort, opt("The first of them.")] = "pending",
    lines: Annotated[int, opt("Queues to show.", "--lines", "-n")] = 20,
    seconds: Annotated[float, opt("Between two looks.")] = 1.0,
    json: Annotated[bool, opt("Print JSON once.", "--json")] = False,
) -> Shown | None:
    """Watch the queues live: keys p, r, o, d and n sort by pending, rate, oldest, dead letters and name; q ends it.

    Without a terminal they are printed once.
    """
    if json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        queues = await _listed(client, sort, lines)
        return Shown(queues, lambda: _print_once(queues))
    import asyncio

    from fairlane.cli.screen import Screen, keys
    from fairlane.cli.table import lines as table

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
                    raise  # there was no broker from the beginning
                trouble = [str(error), ""]
            screen.draw([*trouble, *shown, "", f"by {sort}; keys p r o d n sort, q ends"])
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
            return await client.queues.list(sort=sort, limit=limit)
    except TimeoutError:
        raise StoreUnavailable(
            f"no answer within {_STORE_SECONDS:g} s; `fairlane status` says whether the store is there"
        ) from None


def _print_once(queues: Sequence[ListedQueue]) -> None:
    print_table(_TITLES, [_cells(queue) for queue in queues], empty="There are no queues.")


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


def _last(column: Sequence[float | None]) -> float:
    """The last full point: the newest is still being counted."""
    known = [value for value in column[:-1] if value is not None]
    return known[-1] if known else 0.0


def _lasting(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
