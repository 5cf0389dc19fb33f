"""Measure the client against a broker in a process of its own: what it gains by letting calls travel together.

    python -m bench.client                 SQLite and PostgreSQL
    python -m bench.client --store sqlite --quick

Each task pushes one message and waits for its durable answer before it pushes the next. A missed target is printed
as MISSED and does not change the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.load import PAYLOAD, Load, Rate, closed_loop
from bench.postgres import MAJORS, PostgresServer, running, settings_in_force
from bench.report import print_machine, verdict
from bench.stores import fresh_store
from fairlane import Client
from fairlane.runtime.process import new_event_loop
from tests.broker_process import broker_process

QUEUE = "bench"
DATA = msgspec.json.decode(PAYLOAD)
RATIO_MIN = 3.0
ORIENTATION = 28_000  # messages a second: Redis Streams with `appendfsync always` and a Python client


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--rounds", type=int, help="how often each run is repeated (3)")
    parser.add_argument("--tasks", type=int, default=64, help="concurrent callers (64)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    return chosen


async def pushing(url: str, load: Load, *, batching: bool) -> Rate:
    """One message a call, each task to its own partition."""
    async with Client(url, batching=batching) as client:
        await client.push(QUEUE, DATA)

        async def push(task: int) -> int:
            return (await client.push(QUEUE, DATA, partition=f"lane-{task}")).status == "queued"

        return await closed_loop(push, load)


async def idle_latency(url: str, count: int) -> float:
    """Median milliseconds of a push when nothing else happens."""
    taken = []
    async with Client(url) as client:
        for _ in range(count):
            begun = time.perf_counter()
            await client.push(QUEUE, DATA)
            taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


class Bench:
    def __init__(self, chosen: argparse.Namespace, server: PostgresServer | None, console: Console) -> None:
        self._server = server
        self._console = console
        self._directory: Path = chosen.directory
        self._rounds: int = chosen.rounds
        self._load = Load(chosen.tasks, 0.5 if chosen.quick else 5.0, 5_000_000)

    @asynccontextmanager
    async def broker(self, store: str) -> AsyncIterator[str]:
        """The URL of a broker on an empty store."""
        async with fresh_store(store, self._directory, self._server) as url:
            with broker_process(url) as broker:
                yield broker.url

    async def compare(self, store: str) -> None:
        """Both ways in each round, on a fresh broker each: noise hits both."""
        rates: dict[bool, list[float]] = {True: [], False: []}
        latencies = []
        for _ in range(self._rounds):
            for batching in (False, True):
                async with self.broker(store) as url:
                    rates[batching].append((await pushing(url, self._load, batching=batching)).per_second)
            async with self.broker(store) as url:
                latencies.append(await idle_latency(url, 100))
        self._print(store, rates, statistics.median(latencies))

    def _print(self, store: str, rates: dict[bool, list[float]], latency: float) -> None:
        together, alone = statistics.median(rates[True]), statistics.median(rates[False])
        ratio = together / alone
        table = Table(title=f"{store}: {self._load.tasks} tasks, one message each, durable", title_justify="left")
        for name in ("travelling together", "a request each", "ratio", "target", "", "orientation", "idle push, ms"):
            table.add_column(name, justify="right" if name else "left")
        table.add_row(
            f"{together:,.0f}/s",
            f"{alone:,.0f}/s",
            f"{ratio:.2f}",
            f"{RATIO_MIN:g}",
            verdict(ratio, RATIO_MIN),
            f"{ORIENTATION:,}/s",
            f"{latency:.2f}",
        )
        self._console.print(table)


async def main() -> None:
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    stores = ["sqlite", "postgres"] if chosen.store == "both" else [chosen.store]
    with ExitStack() as stack:
        server = None
        if "postgres" in stores:
            server = stack.enter_context(running(chosen.directory, major=chosen.postgres))
        print_machine(console, chosen.directory, await settings_in_force(server) if server else None)
        bench = Bench(chosen, server, console)
        for store in stores:
            await bench.compare(store)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
