"""The context of a benchmark run: how much to measure, on which stores, with which meter."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from bench.meter import Meter
from bench.results import Results
from bench.stores import NAMES, PostgresServer, fresh_store
from bench.systems import Running, running_broker
from tests.broker_process import BrokerProcess, broker_process

STORES = tuple(NAMES)
TURN = "turn"
"""The line by which a benchmark asks `--against` for permission to go on."""


class Scale(NamedTuple):
    """The size of a benchmark: seconds per run, messages of a backlog, partitions of a large queue, and so on."""

    name: str
    rounds: int
    seconds: int
    backlog: int
    partitions: int
    grown: tuple[int, ...]
    jobs: int
    webhooks: int


QUICK = Scale("quick", 1, 1, 20_000, 2_000, (20_000,), 2_000, 1_000)
NORMAL = Scale("normal", 3, 2, 300_000, 100_000, (500_000,), 30_000, 5_000)
FULL = Scale("full", 5, 5, 1_500_000, 100_000, (1_000_000, 10_000_000), 100_000, 10_000)


class Suite:
    """The context that every section gets. With `in_turns` each measurement waits for a line on standard input."""

    def __init__(
        self, scale: Scale, directory: Path, server: PostgresServer, device: str | None, *, in_turns: bool = False
    ) -> None:
        self.scale = scale
        self.directory = directory
        self.server = server
        self._device = device
        self._in_turns = in_turns
        self._began = time.monotonic()

    @property
    def quick(self) -> bool:
        return self.scale.name == QUICK.name

    async def turn(self, label: str) -> None:
        """Begin the next measurement: print its label, and wait if another checkout is being measured."""
        if self._in_turns:
            print(TURN, flush=True)
            if not await asyncio.to_thread(sys.stdin.readline):
                raise SystemExit("nobody gives turns any more")
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"  {minutes:2}:{seconds:02}  {label}", file=sys.stderr, flush=True)

    def meter(self, running: Running) -> Meter:
        return Meter(running, self._device)

    def store(self, kind: str) -> AbstractAsyncContextManager[str]:
        """Open an empty store and yield its URL."""
        return fresh_store(kind, self.directory, self.server)

    @asynccontextmanager
    async def broker(self, kind: str, url: str) -> AsyncIterator[Running]:
        """Run a broker process on a store of this kind."""
        with broker_process(url) as broker:
            yield self.running(broker, kind)

    def running(self, broker: BrokerProcess, kind: str) -> Running:
        return running_broker(broker, self.server if kind == "postgres" else None)


class Section(NamedTuple):
    """A group of workloads measured in interleaved rounds. `conditions` are printed with the figures."""

    name: str
    title: str
    conditions: str
    run: Callable[[Suite], Awaitable[Results]]


def ours(kind: str) -> str:
    return f"Fairlane, {NAMES[kind]}"
