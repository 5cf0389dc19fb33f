"""Scheduled messages by the million: do they come when they are due, and does memory stay as it is."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from bench.endurance import resident_bytes
from bench.load import BATCH, PARTITIONS, Rate
from bench.workloads import FILLERS, GROUP, QUEUE
from fairlane.broker.broker import Broker
from fairlane.model.message import PushItem

CONSUMERS = 4
SPREAD_SECONDS = 3_600
"""Of the store's clock: the messages are due at any time of an hour."""
LEAD_SECONDS = 3_600
"""Scheduling must be over before the first is due; then the clock is set to that time."""
SAMPLE_SECONDS = 0.2
_NAMES = [f"lane-{number}" for number in range(PARTITIONS)]


class Lateness:
    """Counted by the millisecond, so that a million take no more memory than ten."""

    def __init__(self) -> None:
        self._counts = array("I", bytes(4 * 60_000))
        self.count = 0

    def add(self, milliseconds: float) -> None:
        self._counts[min(len(self._counts) - 1, max(0, int(milliseconds)))] += 1
        self.count += 1

    def percentile(self, share: float) -> int:
        left = share * self.count
        for milliseconds, count in enumerate(self._counts):
            left -= count
            if left <= 0:
                return milliseconds
        return len(self._counts)


class FastClock:
    """A store's clock: like ours until `go`, which sets it to a later time; then `pace` times as fast."""

    def __init__(self) -> None:
        self._at = time.time_ns() // 1000
        self._since = time.monotonic_ns()
        self._pace = 1.0

    def __call__(self) -> int:
        return self._at + int((time.monotonic_ns() - self._since) * self._pace) // 1000

    def go(self, at: int, pace: float) -> None:
        assert self() < at, "scheduling took longer than the lead it was given"
        self._at, self._since, self._pace = at, time.monotonic_ns(), pace


class Measured(NamedTuple):
    """How late consumers had the messages, in our time, and mean resident bytes in each quarter of the time in which
    they came."""

    scheduling: Rate
    lateness: Lateness
    seconds: float
    quarters: list[float]

    @property
    def growth(self) -> float:
        """The last quarter by the second; in the first, caches still fill."""
        return self.quarters[3] / self.quarters[1]


async def measure(url: str, *, messages: int, pace: float) -> Measured:
    """Schedule `messages` that are due over an hour of a clock that runs `pace` times as fast, and read them as they
    come."""
    clock = FastClock()
    async with Broker.open(url, clock=clock) as broker:
        await broker.pop(QUEUE, group=GROUP)  # so that the group is there
        first_us = clock() + LEAD_SECONDS * 1_000_000
        scheduling = await _schedule(broker, messages, first_us)
        clock.go(first_us, pace)
        lateness, resident = Lateness(), array("Q")
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            sampler = tasks.create_task(_sample(resident))
            reader = _Reader(broker, clock, pace, lateness)
            consumers = [tasks.create_task(reader.run(messages)) for _ in range(CONSUMERS)]
            await asyncio.wait(consumers)
            sampler.cancel()
        took = time.perf_counter() - begun
        size = max(1, len(resident) // 4)
        quarters = [statistics.mean(resident[number * size : (number + 1) * size]) for number in range(4)]
        return Measured(scheduling, lateness, took, quarters)


async def _schedule(broker: Broker, messages: int, first_us: int) -> Rate:
    begun = time.perf_counter()
    calls = iter(range(messages // BATCH))

    async def scheduler() -> None:
        for _ in calls:
            outcomes = await broker.push_many(list(_items(first_us)))
            assert {outcome.status for outcome in outcomes} == {"scheduled"}

    async with asyncio.TaskGroup() as schedulers:
        for _ in range(FILLERS):
            schedulers.create_task(scheduler())
    return Rate(messages, time.perf_counter() - begun)


def _items(first_us: int) -> Iterator[PushItem]:
    for lane in _NAMES:
        due_at = first_us + random.randrange(SPREAD_SECONDS * 1_000_000)
        yield PushItem(queue=QUEUE, payload=b"%d" % due_at, partition=lane, deliver_at=due_at)


class _Reader:
    def __init__(self, broker: Broker, clock: FastClock, pace: float, lateness: Lateness) -> None:
        self._broker = broker
        self._clock = clock
        self._pace = pace
        self._lateness = lateness

    async def run(self, messages: int) -> None:
        pop = self._broker.pop
        while self._lateness.count < messages:
            batch = await pop(QUEUE, group=GROUP, batch=BATCH, partitions=PARTITIONS, wait=1.0, auto_ack=True)
            now_us = self._clock()
            for message in batch:
                self._lateness.add((now_us - message.data) / self._pace / 1000)


async def _sample(resident: array[int]) -> None:
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        resident.append(resident_bytes())
