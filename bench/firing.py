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
from fairlane.broker import Broker
from fairlane.model.message import PushItem

CONSUMERS = 4
LEAD_PER_MESSAGE = 1 / 5_000
"""Seconds: scheduling must be over before the first is due."""
SAMPLE_SECONDS = 0.2
_LANES = [f"lane-{number}" for number in range(PARTITIONS)]


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


class Fired(NamedTuple):
    """How late consumers had the messages, and mean resident bytes in each quarter of the time in which they came."""

    scheduling: Rate
    lateness: Lateness
    seconds: float
    quarters: list[float]

    @property
    def growth(self) -> float:
        """The last quarter by the second; in the first, caches still fill."""
        return self.quarters[3] / self.quarters[1]


async def fire(url: str, *, messages: int, seconds: float) -> Fired:
    """Schedule `messages` that are due at times spread over `seconds`, and read them as they come."""
    async with Broker.open(url) as broker:
        await broker.pop(QUEUE, group=GROUP)  # so that the group is there
        first_us = time.time_ns() // 1000 + round((5 + messages * LEAD_PER_MESSAGE) * 1e6)
        scheduling = await _schedule(broker, messages, first_us, seconds)
        assert time.time_ns() // 1000 < first_us, "scheduling took longer than the lead it was given"
        lateness, resident = Lateness(), array("Q")
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            sampler = tasks.create_task(_sample(resident, first_us))
            consumers = [tasks.create_task(_consume(broker, lateness, messages)) for _ in range(CONSUMERS)]
            await asyncio.wait(consumers)
            sampler.cancel()
        took = time.perf_counter() - begun
        size = max(1, len(resident) // 4)
        quarters = [statistics.mean(resident[number * size : (number + 1) * size]) for number in range(4)]
        return Fired(scheduling, lateness, took, quarters)


async def _schedule(broker: Broker, messages: int, first_us: int, seconds: float) -> Rate:
    begun = time.perf_counter()
    calls = iter(range(messages // BATCH))

    async def scheduler() -> None:
        for _ in calls:
            outcomes = await broker.push_many(list(_items(first_us, seconds)))
            assert {outcome.status for outcome in outcomes} == {"scheduled"}

    async with asyncio.TaskGroup() as schedulers:
        for _ in range(FILLERS):
            schedulers.create_task(scheduler())
    return Rate(messages, time.perf_counter() - begun)


def _items(first_us: int, seconds: float) -> Iterator[PushItem]:
    for lane in _LANES:
        due_at = first_us + random.randrange(round(seconds * 1e6))
        yield PushItem(queue=QUEUE, payload=b"%d" % due_at, partition=lane, deliver_at=due_at)


async def _consume(broker: Broker, lateness: Lateness, messages: int) -> None:
    while lateness.count < messages:
        batch = await broker.pop(QUEUE, group=GROUP, batch=BATCH, partitions=PARTITIONS, wait=1.0, auto_ack=True)
        now_us = time.time_ns() // 1000
        for message in batch:
            lateness.add((now_us - message.json(int)) / 1000)


async def _sample(resident: array[int], since_us: int) -> None:
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        if time.time_ns() // 1000 >= since_us:
            resident.append(resident_bytes())
