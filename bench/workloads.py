"""Fairlane through `Broker`, as a program that embeds it: runs build their items and read their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.load import BATCH, PARTITIONS, PAYLOAD, Load, Rate, closed_loop, fresh_ids
from fairlane.broker.broker import Broker
from fairlane.model.message import PushItem

QUEUE = "bench"
GROUP = "workers"
FILLERS = 16  # callers that push a backlog; together they fill segments as a busy queue's producers do

_NAMES = [f"lane-{number}" for number in range(PARTITIONS)]


def batch_over(partitions: list[str], *, queue: str = QUEUE) -> list[PushItem]:
    return [PushItem(queue=queue, payload=PAYLOAD, partition=name) for name in partitions]


def batch_with_ids(partitions: list[str]) -> list[PushItem]:
    return [
        PushItem(queue=QUEUE, payload=PAYLOAD, partition=name, transaction_id=id)
        for name, id in zip(partitions, fresh_ids(len(partitions)), strict=True)
    ]


async def push(broker: Broker, items: list[PushItem]) -> int:
    outcomes = await broker.push_many(items)
    return sum(outcome.status == "queued" for outcome in outcomes)


async def push_100(url: str, load: Load) -> Rate:
    """100 messages a call, one to each of 100 partitions, ids made by the broker."""
    async with Broker.open(url) as broker:
        await push(broker, batch_over(_NAMES))
        return await closed_loop(lambda _: push(broker, batch_over(_NAMES)), load)


async def push_100_ids(url: str, load: Load) -> Rate:
    """The same with ids made by the caller, which the broker must know when they come again."""
    async with Broker.open(url) as broker:
        await push(broker, batch_with_ids(_NAMES))
        return await closed_loop(lambda _: push(broker, batch_with_ids(_NAMES)), load)


async def push_1(url: str, load: Load) -> Rate:
    """One message a call, each caller to its own partition."""
    async with Broker.open(url) as broker:
        await push(broker, batch_over(_NAMES))
        return await closed_loop(lambda caller: push(broker, batch_over([_NAMES[caller % PARTITIONS]])), load)


async def fill(broker: Broker, messages: int, *, callers: int, queue: str = QUEUE, spread: int = PARTITIONS) -> None:
    """Spread `messages` evenly over the 100 partitions, a hundred in a call, those over `spread` of them."""
    calls = iter(range(messages // BATCH))

    async def filler() -> None:
        for call in calls:
            names = [_NAMES[(call * spread + number % spread) % PARTITIONS] for number in range(BATCH)]
            assert await push(broker, batch_over(names, queue=queue)) == BATCH

    async with asyncio.TaskGroup() as fillers:
        for _ in range(callers):
            fillers.create_task(filler())


async def pop(
    broker: Broker, *, group: str = GROUP, partitions: int = 1, ack: bool = True, read: bool = False
) -> tuple[int, int]:
    """Pop 100 and ack them; (messages, lanes they came from). With `read` each message is decoded and its payload
    taken in hand, and each outcome looked at."""
    batch = await broker.pop(QUEUE, group=group, batch=BATCH, partitions=partitions, auto_ack=not ack)
    if read:
        assert all(bytes(message.raw) == PAYLOAD for message in batch)
    if ack and batch:
        outcomes = await broker.ack(batch)
        assert not read or all(outcome.success for outcome in outcomes)
    return len(batch), len(batch.runs)


@asynccontextmanager
async def subscribed(url: str, *, groups: Sequence[str] = (GROUP,), **options: Any) -> AsyncIterator[Broker]:
    """A broker whose groups are there and have read all there was, as in a queue that is at work."""
    async with Broker.open(url) as broker:
        await broker.queues.configure(QUEUE, **options)
        await push(broker, batch_over(_NAMES))
        for group in groups:
            assert await pop(broker, group=group, partitions=PARTITIONS) == (PARTITIONS, PARTITIONS)
        yield broker


async def backlog(url: str, messages: int, *, groups: Sequence[str] = (GROUP,), spread: int = PARTITIONS) -> None:
    """What `pop_100_ack` finds, for a broker that is started later and each of these groups."""
    async with subscribed(url, groups=groups) as broker:
        await fill(broker, messages, callers=FILLERS, spread=spread)


async def _finished(broker: Broker) -> int:
    """Messages that the group is done with, as the store has it."""
    return sum(lane.committed for lane in await broker.groups.lanes(QUEUE, GROUP, limit=1_000_000))


async def drain(broker: Broker, load: Load, *, partitions: int = 1, ack: bool = True, read: bool = False) -> Rate:
    lanes_claimed = 0
    before = await _finished(broker)

    async def step(_: int) -> int:
        nonlocal lanes_claimed
        messages, lanes = await pop(broker, partitions=partitions, ack=ack, read=read)
        lanes_claimed += lanes
        return messages

    rate = await closed_loop(step, load)
    finished = await _finished(broker) - before
    assert finished == rate.items, (finished, rate)
    return rate._replace(lanes=lanes_claimed)


async def pop_100_ack(url: str, load: Load) -> Rate:
    """Pops of 100 from one partition each, then the ack, from a backlog that many producers pushed. As with the
    yardstick, every message is in memory as bytes and none is decoded, and in the end the store is asked whether all
    of them are done."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog, callers=FILLERS)
        return await drain(broker, load)


async def pop_100_ack_read(url: str, load: Load) -> Rate:
    """The same by consumers that look at each message and at each outcome."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog, callers=FILLERS)
        return await drain(broker, load, read=True)


async def pop_100_ack_thin(url: str, load: Load) -> Rate:
    """The same from a backlog that one producer pushed: a segment for every message."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog, callers=1)
        return await drain(broker, load)


async def pop_100_auto_ack(url: str, load: Load) -> Rate:
    """Pops of 100 that are finished when they are handed out."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog, callers=FILLERS)
        return await drain(broker, load, ack=False)


async def pop_many_lanes(url: str, load: Load) -> Rate:
    """Pops of 100 over up to 100 partitions, each of which has one message, then the ack."""
    async with subscribed(url) as broker:
        for first in range(0, load.backlog, BATCH):
            partitions = [f"lane-{number}" for number in range(first, first + BATCH)]
            assert await push(broker, batch_over(partitions)) == BATCH
        return await drain(broker, load, partitions=PARTITIONS)


async def pop_many_lanes_alone(url: str, load: Load) -> Rate:
    """The same by one caller."""
    return await pop_many_lanes(url, load._replace(tasks=1))


async def pop_few_lanes(url: str, load: Load) -> Rate:
    """The same pops over 100 partitions that have as many messages between them: they come from fewer lanes."""
    async with subscribed(url) as broker:
        await fill(broker, load.backlog, callers=FILLERS)
        return await drain(broker, load, partitions=PARTITIONS)


async def pop_few_lanes_alone(url: str, load: Load) -> Rate:
    """One caller whose every pop finds 100 partitions with one message each; refilling them is not counted."""
    claimed, seconds = 0, 0.0
    async with subscribed(url) as broker:
        while claimed < load.items and seconds < load.seconds:
            await push(broker, batch_over(_NAMES))
            begun = time.perf_counter()
            messages, lanes = await pop(broker, partitions=PARTITIONS)
            seconds += time.perf_counter() - begun
            assert messages == lanes == PARTITIONS
            claimed += lanes
    return Rate(claimed, seconds, claimed)
