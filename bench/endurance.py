"""Long runs: memory over millions of messages, and pops beside a transaction that is left open."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg

from bench.load import IDLE_SECONDS, PARTITIONS, Rate
from bench.workloads import batch_over, pop, push
from fairlane.broker.broker import Broker

WINDOW = 200_000  # messages that producers may be ahead of consumers
SAMPLE_SECONDS = 0.05
LOAD_SECONDS = 10.0  # of pushing and popping at once, between two probes of the pop rate alone
PERIODS = 5  # a pinned run is reported in fifths: minutes, when it takes five

_NAMES = [f"lane-{number}" for number in range(PARTITIONS)]


class Traffic:
    """Producers and consumers on one queue, and how far they came."""

    def __init__(self, broker: Broker, tasks: int) -> None:
        self._broker = broker
        self._tasks = tasks
        self.pushed = 0
        self.acked = 0

    @property
    def waiting(self) -> int:
        return self.pushed - self.acked

    async def run(self, over: Callable[[], bool], *, producers: bool = True, consumers: bool = True) -> Rate:
        """Work until `over`; the rate at which messages were acked. Both kinds share the callers evenly."""
        kinds = [self._produce] * producers + [self._consume] * consumers
        acked_before, begun = self.acked, time.perf_counter()
        async with asyncio.TaskGroup() as callers:
            for kind in kinds:
                for _ in range(self._tasks // len(kinds)):
                    callers.create_task(kind(over))
        return Rate(self.acked - acked_before, time.perf_counter() - begun)

    async def _produce(self, over: Callable[[], bool]) -> None:
        while not over():
            if self.waiting >= WINDOW:
                await asyncio.sleep(IDLE_SECONDS)
                continue
            stored = await push(self._broker, batch_over(_NAMES))
            self.pushed += stored

    async def _consume(self, over: Callable[[], bool]) -> None:
        while not over():
            messages, _ = await pop(self._broker)
            self.acked += messages
            if not messages:
                await asyncio.sleep(IDLE_SECONDS)


class Memory(NamedTuple):
    """Mean resident bytes of this process in each quarter of the run."""

    quarters: list[float]
    rate: Rate

    @property
    def growth(self) -> float:
        """The last quarter by the second; in the first, caches still fill."""
        return self.quarters[3] / self.quarters[1]


async def memory(url: str, *, messages: int, tasks: int) -> Memory:
    """Push, pop and ack `messages`, watching the memory of the process."""
    resident: list[int] = []

    async def sample() -> None:
        while True:
            resident.append(resident_bytes())
            await asyncio.sleep(SAMPLE_SECONDS)

    async with Broker.open(url) as broker:
        traffic = Traffic(broker, tasks)
        sampler = asyncio.create_task(sample())
        try:
            rate = await traffic.run(lambda: traffic.acked >= messages)
        finally:
            sampler.cancel()
    size = max(1, len(resident) // 4)
    return Memory([statistics.mean(resident[first * size : (first + 1) * size]) for first in range(4)], rate)


def resident_bytes() -> int:
    """Of this process, where Linux says it."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Period(NamedTuple):
    """Messages acked per second while producers pushed as fast as they could, and while they stood still."""

    loaded: float
    alone: float


class Pair(NamedTuple):
    """The same work on the database in which a snapshot is held, and on one beside it in which none is."""

    held: Period
    free: Period

    @property
    def ratios(self) -> Period:
        return Period(self.held.loaded / self.free.loaded, self.held.alone / self.free.alone)


async def pinned(url: str, beside: str, *, seconds: float, tasks: int) -> list[Pair]:
    """The pop and ack rate while a transaction elsewhere holds a snapshot open, under `seconds` of load.

    Both databases get the same load in turns, so that what else becomes slower with time (logs that grow, the vacuum of
    them, a busy machine) is the same for both: a snapshot holds back the vacuum of its own database alone."""
    async with Broker.open(url) as held, Broker.open(beside) as free:
        sides = Traffic(held, tasks), Traffic(free, tasks)
        await _pair(*sides, min(seconds / PERIODS, LOAD_SECONDS))  # caches and plans, not measured
        async with _snapshot_held(url):
            return [await _pair(*sides, seconds / PERIODS) for _ in range(PERIODS)]


async def _pair(held: Traffic, free: Traffic, seconds: float) -> Pair:
    """Load, fill, drain, on one and on the other, over and over, until each had `seconds` of it."""
    rounds: list[Pair] = []
    load = min(LOAD_SECONDS, seconds / 2)
    ends = time.perf_counter() + 2 * seconds
    while not rounds or time.perf_counter() < ends:
        rounds.append(Pair(await _round(held, load), await _round(free, load)))
    return Pair(_median([one.held for one in rounds]), _median([one.free for one in rounds]))


async def _round(traffic: Traffic, seconds: float) -> Period:
    """The drain shows what a pop costs, whatever becomes of a push."""
    until = time.perf_counter() + seconds
    loaded = await traffic.run(lambda: time.perf_counter() >= until)
    await traffic.run(lambda: traffic.waiting >= WINDOW, consumers=False)
    alone = await traffic.run(lambda: traffic.waiting <= WINDOW // 10, producers=False)
    return Period(loaded.per_second, alone.per_second)


def _median(periods: list[Period]) -> Period:
    return Period(*(statistics.median(rates) for rates in zip(*periods, strict=True)))


@asynccontextmanager
async def _snapshot_held(url: str) -> AsyncIterator[None]:
    """No row version that dies in the block can be removed before its end; checked at both ends."""
    horizon = "SELECT backend_xmin::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        held = await connection.fetchval(horizon)
        assert held is not None
        yield
        assert await connection.fetchval(horizon) == held
    finally:
        await connection.close()
