"""Measure the broker over HTTP with wrk, beside the ceiling of its own server, and say whether the targets hold.

    python bench/http.py                        the table for both stores, idle latency, the client
    python bench/http.py --store sqlite --only push --quick

Each workload runs against `fairlane serve` in a process of its own on an empty store, right after the same requests
against the ceiling: the same server with a handler that only decodes and answers. A missed target is printed as
MISSED and does not change the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.pop(0)  # this directory, where this file would be taken for the standard library's `http`
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from rich.console import Console
from rich.table import Table

from bench import client
from bench.ceiling import ceiling_process
from bench.load import BATCH, PARTITIONS, PAYLOAD
from bench.postgres import MAJORS, PostgresServer, fresh_database, running, settings_in_force
from bench.report import print_machine, verdict
from bench.workloads import GROUP, QUEUE, backlog
from bench.wrk import Shot, shoot
from fairlane.runtime.process import new_event_loop
from tests.broker_process import broker_process

POP = f"/api/v1/pop/queue/{QUEUE}?batch={BATCH}&consumerGroup={GROUP}"
IDLE_MS_MAX = 2.0


class Workload(NamedTuple):
    label: str
    batch: int
    spread: int = 1
    """Partitions that the messages of one push go to."""
    pop: tuple[str, ...] = ()
    """What the script is told of a pop."""
    target: float | None = None
    """Share of the ceiling to reach."""


WORKLOADS = [
    Workload("push 1", 1, target=0.45),
    Workload("push 10 to one partition", 10),
    Workload("push 100 to one partition", 100, target=0.15),
    Workload("push 100 over 100 partitions", 100, spread=PARTITIONS, target=0.15),
    Workload("pop 100, auto-ack", BATCH, pop=(f"{POP}&autoAck=true",)),
    Workload("pop 100 + ack", BATCH, pop=(POP, "ack")),
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--only", metavar="TEXT", default="", help="workloads whose label contains TEXT")
    parser.add_argument("--rounds", type=int, help="how often each run is repeated (3)")
    parser.add_argument("--tasks", type=int, default=64, help="connections, and tasks of the client (64)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    return chosen


def push_bodies(batch: int, spread: int) -> list[bytes]:
    """Bodies that between them reach every partition alike."""
    bodies = []
    for first in range(0, PARTITIONS, spread):
        partitions = [f"lane-{first + number % spread}" for number in range(batch)]
        items = [{"queue": QUEUE, "partition": partition, "payload": msgspec.Raw(PAYLOAD)} for partition in partitions]
        bodies.append(msgspec.json.encode({"items": items}))
    return bodies


class Bench:
    def __init__(self, chosen: argparse.Namespace, server: PostgresServer | None, console: Console) -> None:
        self._server = server
        self._console = console
        self._directory: Path = chosen.directory
        self._rounds: int = chosen.rounds
        self._only: str = chosen.only
        self._connections: int = chosen.tasks
        self._quick: bool = chosen.quick
        self._seconds = 1 if chosen.quick else 5

    @asynccontextmanager
    async def store(self, kind: str) -> AsyncIterator[str]:
        """The URL of an empty store."""
        if kind == "postgres":
            assert self._server is not None
            async with fresh_database(self._server) as url:
                yield url
        else:
            with tempfile.TemporaryDirectory(prefix="fairlane-bench-", dir=self._directory) as directory:
                os.sync()
                yield f"sqlite:///{directory}/queue.db"

    async def shot(self, url: str, workload: Workload, connections: int) -> Shot:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"\n".join(push_bodies(workload.batch, workload.spread)))
            file.flush()
            told = ["pop", *workload.pop] if workload.pop else ["post", "/api/v1/push", file.name]
            shot = await shoot(url, told, connections=connections, seconds=self._seconds)
        if not workload.pop:
            shot.messages = shot.requests * workload.batch
        return shot

    async def measure(self, kind: str, workload: Workload, connections: int) -> Shot:
        async with self.store(kind) as url:
            if workload.pop:
                await backlog(url, 20_000 if self._quick else 1_000_000)
            with broker_process(url) as broker:
                if not workload.pop:  # queue and partitions are there, as in a broker at work
                    await self.shot(broker.url, workload, 1)
                return await self.shot(broker.url, workload, connections)

    async def table(self, kind: str) -> None:
        chosen = [workload for workload in WORKLOADS if self._only in workload.label]
        shots: dict[Workload, list[tuple[Shot, Shot]]] = {workload: [] for workload in chosen}
        for number in range(self._rounds):
            for workload in chosen:
                with ceiling_process() as url:
                    ceiling = await self.shot(url, workload, self._connections)
                ours = await self.measure(kind, workload, self._connections)
                shots[workload].append((ours, ceiling))
                print(f"{kind}, round {number + 1}: {workload.label} {rate(ours):,.0f}/s", file=sys.stderr)
        self._console.print(table_of(f"{kind}, {self._connections} connections", shots))

    async def idle(self, kind: str) -> None:
        """Pushes of one message, one request at a time."""
        shots = [await self.measure(kind, WORKLOADS[0], 1) for _ in range(self._rounds)]
        p50, p99 = (statistics.median(getattr(shot, name) for shot in shots) for name in ("p50_ms", "p99_ms"))
        bound = f", target below {IDLE_MS_MAX:g}: {verdict(IDLE_MS_MAX, p50)}" if kind == "sqlite" else ""
        self._console.print(f"{kind}, idle: push p50 {p50:.2f} ms, p99 {p99:.2f} ms{bound}")


def rate(shot: Shot) -> float:
    return shot.messages / shot.seconds


def table_of(title: str, shots: dict[Workload, list[tuple[Shot, Shot]]]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption="medians over the rounds, messages a second, milliseconds a request",
        caption_justify="left",
    )
    for name in ("workload", "Fairlane", "p50", "p99", "ceiling", "p50", "p99", "ratio", "target", ""):
        table.add_column(name, justify="left" if name in ("workload", "") else "right")
    for workload, found in shots.items():
        ours, ceilings = zip(*found, strict=True)
        ratio = statistics.median(map(rate, ours)) / statistics.median(map(rate, ceilings))
        bound = ("", "") if workload.target is None else (f"{workload.target:g}", verdict(ratio, workload.target))
        table.add_row(workload.label, *cells(ours), *cells(ceilings), f"{ratio:.2f}", *bound)
    return table


def cells(shots: tuple[Shot, ...]) -> list[str]:
    return [
        f"{statistics.median(map(rate, shots)):,.0f}",
        f"{statistics.median(shot.p50_ms for shot in shots):.2f}",
        f"{statistics.median(shot.p99_ms for shot in shots):.2f}",
    ]


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
        for kind in stores:
            await bench.table(kind)
            if chosen.only in "idle":
                await bench.idle(kind)
            if chosen.only in "client":
                await client.Bench(chosen, server, console).compare(kind)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
