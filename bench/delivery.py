"""Measure scheduling, unordered queues and retention in process, and say whether the targets hold.

    python -m bench.delivery                    both stores
    python -m bench.delivery --store sqlite --only schedule --quick
    python -m bench.delivery --scheduled        a million messages due over an hour, by a clock that runs 15 times as
                                                fast as ours: how late they come, and in how much memory
    python -m bench.delivery --scheduled 1      the same in an hour

A missed target is printed as MISSED and does not change the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack

from rich.console import Console

from bench import delivery_workloads, scheduled, workloads
from bench.core import Bench, base_arguments
from bench.load import Load, Run
from bench.postgres import running, settings_in_force
from bench.report import Comparison, print_machine, verdict
from fairlane.runtime.memory import ease_collector
from fairlane.runtime.process import new_event_loop

UNORDERED_RATIO_MIN = 0.8
ROWS = [
    Comparison("schedule 100 over 100 partitions", delivery_workloads.schedule_100, workloads.push_100, "push", 0.5),
    Comparison("unordered pop 100 + ack", delivery_workloads.unordered_pop_100_ack, workloads.pop_100_ack, "ordered"),
    Comparison(
        "unordered pop 100 + ack, 1 % fail, each read",
        delivery_workloads.unordered_pop_100_ack_fail,
        delivery_workloads.ordered_pop_100_ack_read,
        "ordered, none fails, each read",
        UNORDERED_RATIO_MIN,
    ),
]
RETAINED_MESSAGES = 2_000_000
RETENTION_RATE_MIN = 200_000
PUSH_P99_RISE_MAX = 1.5
SCHEDULED_MESSAGES = 1_000_000
SCHEDULED_PACE = 15.0
MEMORY_GROWTH_MAX = 1.10


def arguments() -> argparse.Namespace:
    parser = base_arguments(__doc__)
    parser.add_argument(
        "--scheduled", type=float, nargs="?", const=SCHEDULED_PACE, metavar="PACE", help="only the scheduled messages"
    )
    parser.add_argument("--messages", type=int, default=SCHEDULED_MESSAGES, help="how many are scheduled")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    return chosen


class DeliveryBench(Bench):
    def rows_of(self, store: str) -> list[Comparison]:
        return ROWS

    def load_of(self, run: Run) -> Load:
        load = super().load_of(run)
        return load._replace(items=min(load.items, 270_000)) if "pop" in run.__name__ else load

    async def retention(self) -> None:
        messages = 100_000 if self._chosen.quick else RETAINED_MESSAGES
        with self._console.status(f"postgres: {messages:,} messages expire"):
            async with self.fresh("postgres") as url:
                found = await delivery_workloads.retention(url, messages=messages)
        rise = found.beside_ms / found.alone_ms
        self._console.print(
            f"postgres: retention deleted {found.rate.items:,} messages at {found.rate.per_second:,.0f}/s, "
            f"target {RETENTION_RATE_MIN:,}: {verdict(found.rate.per_second, RETENTION_RATE_MIN)}\n"
            f"  push p99 beside it {found.beside_ms:.1f} ms, alone {found.alone_ms:.1f} ms: {rise:.2f}, "
            f"target below {PUSH_P99_RISE_MAX:.2f}: {verdict(rise, PUSH_P99_RISE_MAX, at_most=True)}"
        )

    async def scheduled(self, store: str) -> None:
        quick, pace = self._chosen.quick, self._chosen.scheduled
        messages, pace = (20_000, max(pace, 360.0)) if quick else (self._chosen.messages, pace)
        with self._console.status(f"{store}: {messages:,} scheduled messages"):
            async with self.fresh(store) as url:
                found = await scheduled.measure(url, messages=messages, pace=pace)
        quarters = ", ".join(f"{resident / 2**20:.1f}" for resident in found.quarters)
        late = found.lateness
        self._console.print(
            f"{store}: {messages:,} messages scheduled at {found.scheduling.per_second:,.0f}/s, "
            f"due over an hour that took {found.seconds:,.0f} s, {messages / found.seconds:,.0f}/s\n"
            f"  {late.count:,} came; in consumers' hands after {late.percentile(0.5)} ms (median), "
            f"{late.percentile(0.99)} ms (p99), {late.percentile(1)} ms (latest)\n"
            f"  resident MiB by quarter {quarters}; last by second {found.growth:.2f}, "
            f"target at most {MEMORY_GROWTH_MAX:.2f}: {verdict(found.growth, MEMORY_GROWTH_MAX, at_most=True)}"
        )


async def main() -> None:
    chosen = arguments()
    ease_collector()  # as the broker process does
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    stores = ["sqlite", "postgres"] if chosen.store == "both" else [chosen.store]
    with ExitStack() as stack:
        server = None
        if "postgres" in stores:
            server = stack.enter_context(running(chosen.directory, major=chosen.postgres))
        print_machine(console, chosen.directory, await settings_in_force(server) if server else None)
        bench = DeliveryBench(chosen, server, console)
        for store in stores:
            await (bench.scheduled(store) if chosen.scheduled else bench.table(store))
        if not chosen.scheduled and "postgres" in stores and chosen.only in "retention":
            await bench.retention()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
