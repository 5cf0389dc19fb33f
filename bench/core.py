"""Measure the broker in process beside the yardsticks, and say whether the targets hold.

    python -m bench.core                        the table for both stores
    python -m bench.core --store sqlite --only push --quick
    python -m bench.core --memory               resident memory over 5 million messages
    python -m bench.core --pinned               the pop rate beside a transaction left open under 5 minutes of load
    python -m bench.core --all                  the table, then both long runs

A missed target is printed as MISSED and does not change the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from rich.console import Console

from bench import endurance, workloads, yardsticks
from bench.load import Load, Rate, Run
from bench.postgres import MAJORS, PostgresServer, running, settings_in_force
from bench.report import Comparison, print_machine, table_of, verdict
from bench.stores import fresh_store
from fairlane.runtime.memory import ease_collector
from fairlane.runtime.process import new_event_loop

ROWS = [
    Comparison("push 100 over 100 partitions", workloads.push_100, yardsticks.push, "(a) row per message", 3),
    Comparison("push 100, fresh UUIDv7 ids", workloads.push_100_ids, yardsticks.push_dedup, "(a) with look-up", 3),
    Comparison("push 1", workloads.push_1),
    Comparison("pop 100 + ack", workloads.pop_100_ack, yardsticks.pop_ack, "(b) row queue", 3),
    Comparison("pop 100 + ack, each read", workloads.pop_100_ack_read, yardsticks.pop_ack, "(b) row queue"),
    Comparison("pop 100 + ack, thin segments", workloads.pop_100_ack_thin, yardsticks.pop_ack, "(b) row queue"),
    Comparison("pop 100, auto-ack", workloads.pop_100_auto_ack, yardsticks.pop_ack, "(b) row queue"),
    Comparison("100,000 lanes, lanes", workloads.pop_many_lanes, workloads.pop_few_lanes, "100 lanes", 0.5, lanes=True),
    Comparison("100,000 lanes, messages", workloads.pop_many_lanes, workloads.pop_few_lanes, "100 lanes"),
    Comparison(
        "100,000 lanes, one caller",
        workloads.pop_many_lanes_alone,
        workloads.pop_few_lanes_alone,
        "100 lanes, refilled",
        0.5,
        lanes=True,
    ),
]
SQLITE_ROWS = [
    Comparison("pop 100 + ack", workloads.pop_100_ack, yardsticks.pop_ack_held, "(b) all others locked out"),
]
MEMORY_MESSAGES = 5_000_000
MEMORY_GROWTH_MAX = 1.10
PINNED_SECONDS = 300.0
PINNED_RATIO_MIN = 0.70


def base_arguments(description: str | None) -> argparse.ArgumentParser:
    """What every table of comparisons takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--only", metavar="TEXT", default="", help="rows whose label contains TEXT")
    parser.add_argument("--rounds", type=int, help="how often each run is repeated (3)")
    parser.add_argument("--tasks", type=int, default=64, help="concurrent callers (64)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    return parser


def arguments() -> argparse.Namespace:
    parser = base_arguments(__doc__)
    parser.add_argument("--memory", action="store_true", help="only the memory run")
    parser.add_argument(
        "--pinned", type=float, nargs="?", const=PINNED_SECONDS, metavar="SECONDS", help="only the pinned run"
    )
    parser.add_argument("--all", action="store_true", help="the table and both long runs")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    chosen.table = chosen.all or not (chosen.memory or chosen.pinned)
    if chosen.all:
        chosen.memory, chosen.pinned = True, chosen.pinned or PINNED_SECONDS
    return chosen


class Bench:
    """One measurement: where it writes, how much it does, what it found."""

    def __init__(self, chosen: argparse.Namespace, server: PostgresServer | None, console: Console) -> None:
        self._chosen = chosen
        self._server = server
        self._console = console

    def load_of(self, run: Run) -> Load:
        tasks, quick = self._chosen.tasks, self._chosen.quick
        if "lanes" in run.__name__:
            return Load(tasks, 30, 9_000 if quick else 90_000)
        if run is workloads.pop_100_ack_thin:  # its backlog takes one caller to push: a smaller one must do
            return Load(tasks, 5, 9_000 if quick else 90_000)
        if "pop" in run.__name__:
            return Load(tasks, 5, 9_000 if quick else 540_000)
        return Load(tasks, 0.5 if quick else 5, 5_000_000)

    @asynccontextmanager
    async def fresh(self, store: str) -> AsyncIterator[str]:
        async with fresh_store(store, self._chosen.directory, self._server) as url:
            yield url

    def rows_of(self, store: str) -> Sequence[Comparison]:
        return [*ROWS, *SQLITE_ROWS] if store == "sqlite" else ROWS

    async def table(self, store: str) -> None:
        """Every run once per round, a yardstick right before what is held against it: noise hits both."""
        rows = [row for row in self.rows_of(store) if self._chosen.only in row.label]
        runs = list(dict.fromkeys(run for row in rows for run in (row.against, row.run) if run is not None))
        rates: dict[Run, list[Rate]] = {run: [] for run in runs}
        for number in range(self._chosen.rounds):
            for run in runs:
                with self._console.status(f"{store}, round {number + 1}: {run.__name__}"):
                    async with self.fresh(store) as url:
                        rates[run].append(rate := await run(url, self.load_of(run)))
                print(f"{store}, round {number + 1}: {run.__name__} {rate.per_second:,.0f}/s", file=sys.stderr)
        title = f"{store}, quick: a tenth of the lanes, too short to measure" if self._chosen.quick else store
        self._console.print(table_of(title, rows, rates))

    async def memory(self, store: str) -> None:
        messages = 200_000 if self._chosen.quick else MEMORY_MESSAGES
        with self._console.status(f"{store}: memory over {messages:,} messages"):
            async with self.fresh(store) as url:
                found = await endurance.memory(url, messages=messages, tasks=self._chosen.tasks)
        quarters = ", ".join(f"{resident / 2**20:.1f}" for resident in found.quarters)
        self._console.print(
            f"{store}: {found.rate.items:,} messages pushed, popped, acked, {found.rate.per_second:,.0f}/s; "
            f"resident MiB by quarter {quarters}; last by second {found.growth:.2f}, "
            f"target at most {MEMORY_GROWTH_MAX:.2f}: {verdict(found.growth, MEMORY_GROWTH_MAX, at_most=True)}"
        )

    async def pinned(self) -> None:
        seconds = self._chosen.pinned
        with self._console.status(f"postgres: a transaction held open under {seconds:.0f} s of load"):
            async with self.fresh("postgres") as url, self.fresh("postgres") as beside:
                found = await endurance.pinned(url, beside, seconds=seconds, tasks=self._chosen.tasks)
        self._console.print("postgres: pop + ack where a transaction is held open, and where none is, in turns")
        for number, (held, free, ratios) in enumerate(((*pair, pair.ratios) for pair in found), 1):
            self._console.print(
                f"  after {seconds * number / len(found):4.0f} s of load: "
                f"{held.loaded:,.0f}/s to {free.loaded:,.0f}/s beside pushes ({ratios.loaded:.2f}), "
                f"{held.alone:,.0f}/s to {free.alone:,.0f}/s alone ({ratios.alone:.2f})"
            )
        lowest = min(min(pair.ratios) for pair in found)
        self._console.print(
            f"  lowest {lowest:.2f}, target {PINNED_RATIO_MIN:.2f}: {verdict(lowest, PINNED_RATIO_MIN)}"
        )


async def main() -> None:
    chosen = arguments()
    ease_collector()  # as the broker process does
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    stores = ["sqlite", "postgres"] if chosen.store == "both" else [chosen.store]
    with ExitStack() as stack:
        server = None
        if "postgres" in stores or chosen.pinned:
            server = stack.enter_context(running(chosen.directory, major=chosen.postgres))
        print_machine(console, chosen.directory, await settings_in_force(server) if server else None)
        bench = Bench(chosen, server, console)
        for store in stores:
            if chosen.table:
                await bench.table(store)
            if chosen.memory:
                await bench.memory(store)
        if chosen.pinned:
            await bench.pinned()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
