"""Workloads that call `Broker` in this process, as a program that embeds it does."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.load import BATCH, PARTITIONS, PAYLOAD, Load, Rate, closed_loop, fresh_ids
from fairlane.broker.broker import Broker
from fairlane.model.message import PushItem

QUEUE = "bench"
GROUP = "workers"
FILLERS = 16
"""Callers that push a backlog. Together they fill segments as the producers of a busy queue do."""
FAILS_EVERY = 100
"""One in this many messages fails once in the unordered workload."""
HOUR_US = 3_600_000_000
_PARTITIONS = [f"lane-{number}" for number in range(PARTITIONS)]


def batch_over(partitions: list[str]) -> list[PushItem]:
    return [PushItem(queue=QUEUE, payload=PAYLOAD, partition=name) for name in partitions]


def batch_with_ids(partitions: list[str]) -> list[PushItem]:
    return [
        PushItem(queue=QUEUE, payload=PAYLOAD, partition=name, transaction_id=id)
        for name, id in zip(partitions, fresh_ids(len(partitions)), strict=True)
    ]


def scheduled_batch() -> list[PushItem]:
    """Return messages due within the hour after the next, so that none is delivered during the run."""
    now = time.time_ns() // 1000
    return [
        PushItem(queue=QUEUE, payload=PAYLOAD, partition=name, deliver_at=now + HOUR_US + random.randrange(HOUR_US))
        for name in _PARTITIONS
    ]


async def push(broker: Broker, items: list[PushItem]) -> int:
    outcomes = await broker.push_many(items)
    return sum(outcome.status in ("queued", "scheduled") for outcome in outcomes)


async def push_100(url: str, load: Load) -> Rate:
    """Push 100 messages per call, one to each of 100 partitions. The broker makes the ids."""
    async with Broker.open(url) as broker:
        await push(broker, batch_over(_PARTITIONS))
        return await closed_loop(lambda _: push(broker, batch_over(_PARTITIONS)), load)


async def push_100_ids(url: str, load: Load) -> Rate:
    """Push 100 messages per call with ids of the caller, which the broker deduplicates."""
    async with Broker.open(url) as broker:
        await push(broker, batch_with_ids(_PARTITIONS))
        return await closed_loop(lambda _: push(broker, batch_with_ids(_PARTITIONS)), load)


async def push_1(url: str, load: Load) -> Rate:
    """Push one message per call, each caller to its own partition."""
    async with Broker.open(url) as broker:
        await push(broker, batch_over(_PARTITIONS))
        return await closed_loop(lambda caller: push(broker, batch_over([_PARTITIONS[caller % PARTITIONS]])), load)


async def schedule_100(url: str, load: Load) -> Rate:
    """Push 100 scheduled messages per call, one to each of 100 partitions, each with its own due time."""
    async with Broker.open(url) as broker:
        await push(broker, batch_over(_PARTITIONS))
        return await closed_loop(lambda _: push(broker, scheduled_batch()), load)


async def fill(broker: Broker, messages: int, *, callers: int = FILLERS, spread: int = PARTITIONS) -> None:
    """Push `messages` evenly to the 100 partitions, 100 per call, each call to `spread` partitions."""
    calls = iter(range(messages // BATCH))

    async def filler() -> None:
        for call in calls:
            names = [_PARTITIONS[(call * spread + number % spread) % PARTITIONS] for number in range(BATCH)]
            assert await push(broker, batch_over(names)) == BATCH

    async with asyncio.TaskGroup() as fillers:
        for _ in range(callers):
            fillers.create_task(filler())


async def pop(broker: Broker, *, group: str = GROUP, partitions: int = 1, ack: bool = True, read: bool = False) -> int:
    """Pop up to 100 messages, ack them and return how many. With `read`, decode each message and check each result."""
    batch = await broker.pop(QUEUE, group=group, batch=BATCH, partitions=partitions, auto_ack=not ack)
    if read:
        assert all(bytes(message.raw) == PAYLOAD for message in batch)
    if ack and batch:
        outcomes = await broker.ack(batch)
        assert not read or all(outcome.success for outcome in outcomes)
    return len(batch)


@asynccontextmanager
async def subscribed(url: str, *, groups: Sequence[str] = (GROUP,), **options: Any) -> AsyncIterator[Broker]:
    """Open a broker whose groups exist and have read everything, as in a queue that has been in use."""
    async with Broker.open(url) as broker:
        await broker.queues.configure(QUEUE, **options)
        await push(broker, batch_over(_PARTITIONS))
        for group in groups:
            assert await pop(broker, group=group, partitions=PARTITIONS) == PARTITIONS
        yield broker


async def backlog(url: str, messages: int, *, groups: Sequence[str] = (GROUP,), spread: int = PARTITIONS) -> None:
    """Leave a backlog in the store for a broker that is started later, unread by each of these groups."""
    async with subscribed(url, groups=groups) as broker:
        await fill(broker, messages, spread=spread)


async def _finished(broker: Broker) -> int:
    """Return how many messages the group has finished, according to the store."""
    return sum(lane.committed for lane in await broker.groups.lanes(QUEUE, GROUP, limit=1_000_000))


async def drain(broker: Broker, load: Load, *, partitions: int = 1, ack: bool = True, read: bool = False) -> Rate:
    """Pop until the load is done, and check that the store agrees about how many messages are finished."""
    before = await _finished(broker)
    rate = await closed_loop(lambda _: pop(broker, partitions=partitions, ack=ack, read=read), load)
    finished = await _finished(broker) - before
    assert finished == rate.items, (finished, rate)
    return rate


async def pop_100_ack(url: str, load: Load) -> Rate:
    """Pop 100 messages of one partition per call, then ack them. Many producers pushed the backlog."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog)
        return await drain(broker, load)


async def pop_100_ack_read(url: str, load: Load) -> Rate:
    """Pop and ack like `pop_100_ack`, but decode each message and check each result."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog)
        return await drain(broker, load, read=True)


async def pop_100_ack_thin(url: str, load: Load) -> Rate:
    """Pop and ack like `pop_100_ack` from a backlog of one producer, which has one segment per message."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog, callers=1)
        return await drain(broker, load)


async def pop_100_auto_ack(url: str, load: Load) -> Rate:
    """Pop 100 messages per call that are acked by the pop itself."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog)
        return await drain(broker, load, ack=False)


async def pop_100_partitions(url: str, load: Load) -> Rate:
    """Pop 100 messages per call from up to 100 partitions, then ack them."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog)
        return await drain(broker, load, partitions=PARTITIONS)


async def pop_many_partitions(url: str, load: Load) -> Rate:
    """Pop 100 messages per call from 100 partitions that have one message each, then ack them."""
    async with subscribed(url) as broker:
        for first in range(0, load.backlog, BATCH):
            names = [f"lane-{number}" for number in range(first, first + BATCH)]
            assert await push(broker, batch_over(names)) == BATCH
        return await drain(broker, load, partitions=PARTITIONS)


async def pop_unordered_failing(url: str, load: Load) -> Rate:
    """Pop and ack like `pop_100_ack_read` on an unordered queue. One message in a hundred fails once."""
    failed: set[str] = set()

    async def step(_: int) -> int:
        batch = await broker.pop(QUEUE, group=GROUP, batch=BATCH)
        good: list[Any] = []
        bad: list[Any] = []
        for one in batch:
            assert bytes(one.raw) == PAYLOAD
            (bad if one.position % FAILS_EVERY == 0 and one.id not in failed else good).append(one)
        if not bad:
            outcomes = await broker.ack(batch)
        else:
            failed.update(one.id for one in bad)
            outcomes, _ = await asyncio.gather(broker.ack(good), broker.nack(bad, error="not today"))
        assert all(outcome.success for outcome in outcomes)
        return len(outcomes)

    async with subscribed(url, ordering="unordered") as broker:
        await fill(broker, load.backlog)
        rate = await closed_loop(step, load)
        assert len(failed) >= rate.items // FAILS_EVERY // 2
        return rate
