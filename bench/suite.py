"""What every section of `python -m bench` is given: how much to do, and where."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Findings
from bench.meter import Meter
from bench.postgres import PostgresServer
from bench.stores import NAMES, fresh_store
from bench.systems import Running, running_broker
from tests.broker_process import broker_process


class Scale(NamedTuple):
    """`seconds` of each run, `backlog` of a run that pops; partitions and messages that a queue grows to."""

    name: str
    rounds: int
    seconds: int
    backlog: int
    lanes: int
    grown: tuple[int, ...]
    jobs: int
    hooks: int


QUICK = Scale("quick", 1, 1, 20_000, 2_000, (20_000,), 2_000, 1_000)
NORMAL = Scale("normal", 3, 2, 400_000, 100_000, (1_000_000,), 45_000, 10_000)
FULL = Scale("full", 5, 5, 1_500_000, 100_000, (1_000_000, 10_000_000), 100_000, 10_000)


class Suite:
    def __init__(self, scale: Scale, directory: Path, server: PostgresServer, device: str | None) -> None:
        self.scale = scale
        self.directory = directory
        self.server = server
        self._device = device
        self._began = time.monotonic()

    @property
    def quick(self) -> bool:
        return self.scale.name == QUICK.name

    def say(self, what: str) -> None:
        """With how long the run has taken so far."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"  {minutes:2}:{seconds:02}  {what}", file=sys.stderr, flush=True)

    def meter(self, running: Running) -> Meter:
        return Meter(running, self._device)

    def store(self, kind: str) -> AbstractAsyncContextManager[str]:
        """The URL of an empty one."""
        return fresh_store(kind, self.directory, self.server)

    @asynccontextmanager
    async def broker(self, kind: str, url: str) -> AsyncIterator[Running]:
        """A broker process on a store of this kind."""
        with broker_process(url) as broker:
            yield running_broker(broker, self.server if kind == "postgres" else None)


class Section(NamedTuple):
    """Measured in interleaved rounds; `conditions` stand beside its figures."""

    name: str
    title: str
    conditions: str
    run: Callable[[Suite], Awaitable[Findings]]
    full: bool = False
    """Only `--full` has it."""


def ours(kind: str) -> str:
    return f"Fairlane, {NAMES[kind]}"


STORES = tuple(NAMES)
