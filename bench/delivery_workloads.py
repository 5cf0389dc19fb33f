"""Delivery through `Broker`: scheduling, unordered queues, and retention beside pushes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.load import BATCH, PARTITIONS, PAYLOAD, Load, Rate, closed_loop
from bench.workloads import FILLERS, GROUP, QUEUE, batch_over, drain, fill, push, subscribed
from fairlane.broker.broker import Broker
from fairlane.model.message import PushItem

FAILS_EVERY = 100
"""Of an unordered queue's messages: one in so many fails once."""
NEVER = 2**62
HOUR_US = 3_600_000_000
PACED_PER_SECOND = 100  # calls of 100 messages each: a load that leaves room for the work beside it
_NAMES = [f"lane-{number}" for number in range(PARTITIONS)]


def scheduled_batch() -> list[PushItem]:
    """Due at any time of the hour after the next, so that none comes while the others are stored."""
    now = time.time_ns() // 1000
    times = [now + HOUR_US + random.randrange(HOUR_US) for _ in _NAMES]
    return [
        PushItem(queue=QUEUE, payload=PAYLOAD, partition=name, deliver_at=at)
        for name, at in zip(_NAMES, times, strict=True)
    ]


async def schedule(broker: Broker) -> int:
    outcomes = await broker.push_many(scheduled_batch())
    return sum(outcome.status == "scheduled" for outcome in outcomes)


async def schedule_100(url: str, load: Load) -> Rate:
    """100 messages a call, one to each of 100 partitions, each due at a time of its own."""
    async with Broker.open(url) as broker:
        await push(broker, batch_over(_NAMES))
        return await closed_loop(lambda _: schedule(broker), load)


async def unordered_pop_100_ack(url: str, load: Load) -> Rate:
    """Pops of 100 from an unordered queue, then the ack: what `pop_100_ack` does with an ordered one."""
    async with subscribed(url, ordering="unordered") as broker:
        await fill(broker, load.backlog, callers=FILLERS)
        return await drain(broker, load)


async def unordered_pop_100_ack_fail(url: str, load: Load) -> Rate:
    """The same by consumers that look at each message and at each outcome; one message in a hundred fails once, and
    comes again."""
    return await _consume(url, load, fails_every=FAILS_EVERY, ordering="unordered")


async def ordered_pop_100_ack_read(url: str, load: Load) -> Rate:
    """The same consumers on an ordered queue, where none fails."""
    return await _consume(url, load, fails_every=NEVER)


async def _consume(url: str, load: Load, *, fails_every: int, **options: Any) -> Rate:
    failed: set[str] = set()

    async def step(_: int) -> int:
        batch = await broker.pop(QUEUE, group=GROUP, batch=BATCH)
        good, bad = [], []
        for one in batch:
            assert bytes(one.raw) == PAYLOAD
            (bad if one.position % fails_every == 0 and one.id not in failed else good).append(one)
        if not bad:
            outcomes = await broker.ack(batch)
        else:
            failed.update(one.id for one in bad)
            outcomes, _ = await asyncio.gather(broker.ack(good), broker.nack(bad, error="not today"))
        assert all(outcome.success for outcome in outcomes)
        return len(outcomes)

    async with subscribed(url, **options) as broker:
        await fill(broker, load.backlog, callers=FILLERS)
        rate = await closed_loop(step, load)
        assert len(failed) >= rate.items // fails_every // 2
        return rate


class Latencies:
    """Of calls at a fixed pace, whether or not the ones before were answered."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @property
    def p99_ms(self) -> float:
        return sorted(self.seconds)[int(0.99 * len(self.seconds))] * 1e3

    async def one(self, broker: Broker) -> None:
        began = time.perf_counter()
        assert await push(broker, batch_over(_NAMES)) == PARTITIONS
        self.seconds.append(time.perf_counter() - began)

    async def load(self, broker: Broker, over: Callable[[], bool]) -> None:
        due = time.perf_counter()
        async with asyncio.TaskGroup() as calls:
            while not over():
                calls.create_task(self.one(broker))
                due += 1 / PACED_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.perf_counter()))


class Retained(NamedTuple):
    """How fast messages went, and the p99 of pushes to another queue without and beside it."""

    rate: Rate
    alone_ms: float
    beside_ms: float


async def retention(url: str, *, messages: int) -> Retained:
    """Delete `messages` that a rule covers, to the last row, while others push."""
    async with Broker.open(url, retention_interval=0) as broker:
        await fill(broker, messages, callers=FILLERS, queue="old")
        warm, alone, beside = Latencies(), Latencies(), Latencies()
        await _for_seconds(warm, broker, 2)
        await _for_seconds(alone, broker, max(2, messages / 200_000))
        await broker.queues.configure("old", retention_enabled=True, retention_seconds=1)
        await asyncio.sleep(1.1)
        loading = asyncio.create_task(beside.load(broker, lambda: done))
        done = False
        began = time.perf_counter()
        expired = await broker.retention.run()
        took = time.perf_counter() - began
        await asyncio.sleep(max(0.0, 2 - took))  # the p99 of a handful of calls says nothing
        done = True
        await loading
        return Retained(Rate(sum(one.messages for one in expired), took), alone.p99_ms, beside.p99_ms)


async def _for_seconds(latencies: Latencies, broker: Broker, seconds: float) -> None:
    ends = time.perf_counter() + seconds
    await latencies.load(broker, lambda: time.perf_counter() >= ends)
