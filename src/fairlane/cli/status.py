"""`fairlane status` and `fairlane top`: the broker on one screen, once or live."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fairlane.cli.output import counted, print_table, printable
from fairlane.cli.verb import Client, Shown, opt
from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from fairlane.wire.findings import Finding
    from fairlane.wire.queues import ListedQueue

_SORTS = {"p": "pending", "r": "rate", "o": "oldest", "d": "deadLetters", "n": "name"}
_MARKS = {"critical": "!!", "warning": "!", "notice": "-"}
_FINDINGS_MAX = 10


async def status(client: Client) -> Shown:
    """Show the broker, its store, rates, depth, and what is worth acting on. Exits 1 if something is critical."""
    from asyncio import gather

    health = await client.status.health()
    overview, history, journal, findings = await gather(
        client.status.overview(), client.status.history(), client.status.journal(), client.status.findings()
    )
    counts, entries = overview.messages, journal.journal
    now = {name: _last(getattr(history, name)) for name in ("pushed", "popped", "acked", "failed")}
    slow = {name: _last(getattr(history, f"{name}_p99_ms")) for name in ("push", "pop", "ack")}
    facts = {
        "broker": f"fairlane {health.version}, up {_lasting(health.uptime_seconds)}",
        "store": f"{health.store}, {health.database}",
        "queues": f"{overview.queues} with {overview.partitions} partitions",
        "messages": f"{counts.pending} pending, {counts.processing} leased, {counts.total} stored",
        "dead": counted(counts.dead_letter, "dead letter"),
        "a second": ", ".join(f"{rate:.1f} {name}" for name, rate in now.items()),
        "p99": ", ".join(f"{name} {ms:.1f} ms" for name, ms in slow.items()),
        "journal": "none" if entries is None else f"{entries.entries} entries, {entries.messages} messages wait",
    }
    lines = [f"{name:<10}{text}" for name, text in facts.items()]
    lines += ["", *(map(_sentence, findings[:_FINDINGS_MAX]) if findings else ["Nothing needs you."])]
    if len(findings) > _FINDINGS_MAX:
        lines.append(f"and {len(findings) - _FINDINGS_MAX} more: --json has all of them")
    shown = {
        "health": health,
        "overview": overview,
        "rates": now,
        "p99Ms": slow,
        "journal": entries,
        "findings": findings,
    }
    critical = any(finding.severity == "critical" for finding in findings)
    return Shown(shown, lambda: sys.stdout.write("\n".join(map(printable, lines)) + "\n"), 1 if critical else 0)


async def top(
    client: Client,
    sort: Annotated[str, opt("pending, rate, oldest, deadLetters or name.")] = "pending",
    lines: Annotated[int, opt("Queues to show.", "--lines", "-n")] = 20,
    seconds: Annotated[float, opt("Between two looks.")] = 1.0,
    json: Annotated[bool, opt("Print JSON once.", "--json")] = False,
) -> Shown | None:
    """Watch the queues live: keys p, r, o, d and n sort by pending, rate, oldest, dead letters and name; q ends it.

    Without a terminal they are printed once.
    """
    if sort not in _SORTS.values():
        raise InvalidRequest(f"--sort is {sort!r:.40}; it must be one of {', '.join(_SORTS.values())}")
    if json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        queues = await _listed(client, sort, lines)
        return Shown(queues, lambda: _print_once(queues))
    import asyncio

    from rich.live import Live

    from fairlane.cli.keys import keys

    with keys() as pressed, Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(_table(await _listed(client, sort, lines), sort), refresh=True)
            try:
                key = await asyncio.wait_for(pressed.get(), seconds)
            except TimeoutError:
                continue
            if key in ("q", "\x03"):
                return None
            sort = _SORTS.get(key, sort)


async def _listed(client: Client, sort: str, limit: int) -> list[ListedQueue]:
    return await client.queues.list(sort=sort, limit=limit)


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


def _table(queues: Sequence[ListedQueue], sort: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD, expand=True, caption=f"by {sort}; keys p r o d n sort, q ends", caption_justify="left"
    )
    for title in _TITLES:
        table.add_column(title, justify="left" if title in ("queue", "") else "right")
    for queue in queues:
        shown = (f"{cell:.1f}" if isinstance(cell, float) else printable(str(cell)) for cell in _cells(queue))
        table.add_row(*map(Text, shown))
    return table


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
