"""A store that is slower than its producers: nothing is lost, and every answer is true."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

# Imported here, because a broker imports them when it opens, on the event loop of the test.
import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.admission import LIMITS
from fairlane.broker.broker import Broker
from fairlane.errors import LaneLocked, Overloaded
from fairlane.model.message import PushItem
from tests.broker_process import broker_process
from tests.conftest import FreshDatabase
from tests.faults.closed_loop import ClosedLoop
from tests.faults.producers import QUEUE, stored
from tests.faults.slow_link import slow_link
from tests.postgres import PostgresServer

PARTITIONS, BATCH = 600, 50


async def acked(broker: Broker) -> None:
    async with asyncio.timeout(60):
        while await broker._engine.store.operations.depth():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_hundred_pushes_at_once_on_a_slow_store_all_succeed_in_order(
    server: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(server)
    async with slow_link(server) as link, Broker.open(link.url(url), limits=LIMITS) as broker:
        for partition in range(10):
            await broker.push(QUEUE, -1, partition=f"p{partition}")
        link.seconds = 0.05
        began = time.monotonic()
        outcomes = await asyncio.gather(*(broker.push(QUEUE, n, partition=f"p{n % 10}") for n in range(100)))
        assert {outcome.status for outcome in outcomes} <= {"queued", "buffered"}
        await acked(broker)
        assert time.monotonic() - began < 10, "about a second on a quiet machine"
    assert await stored(url) == {f"p{partition}": [-1, *range(partition, 100, 10)] for partition in range(10)}


@pytest.mark.timeout(180)
async def test_a_store_slower_than_its_producers_answers_201_202_and_429_and_each_is_true(
    server: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """With the default limits, producers send more than the store takes in two seconds."""
    url = await fresh_database(server)
    statuses: Counter[str] = Counter()
    accepted: dict[str, list[int]] = defaultdict(list)
    stop = asyncio.Event()

    async def produce(broker: Broker, partition: str) -> None:
        first = 0
        while not stop.is_set():
            numbers = range(first, first + BATCH)
            items = [PushItem(queue=QUEUE, partition=partition, payload=b"%d" % number) for number in numbers]
            try:
                outcomes = await broker.push_many(items)
                statuses.update(outcome.status for outcome in outcomes)
                if outcomes[0].status != "refused":
                    accepted[partition] += numbers
            except Overloaded as error:
                statuses["refused"] += (error.retry_after or 0) >= 1
            except LaneLocked:  # by operations that are applied over the slow link; nothing was stored
                pass
            first += BATCH
            await asyncio.sleep(0.05 * random.random())  # not in step with the others, nor as long as it was told

    async with slow_link(server) as link, Broker.open(link.url(url), limits=LIMITS) as broker:
        await asyncio.gather(*(broker.push(QUEUE, -1, partition=f"p{number}") for number in range(PARTITIONS)))
        link.byte_seconds = 2e-6
        producers = [asyncio.create_task(produce(broker, f"p{number}")) for number in range(PARTITIONS)]
        async with asyncio.timeout(60):
            while not {"queued", "buffered", "refused"} <= set(statuses):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        stop.set()
        await asyncio.gather(*producers)
        link.byte_seconds = 0.0
        await acked(broker)
    assert await stored(url) == {f"p{number}": [-1, *accepted[f"p{number}"]] for number in range(PARTITIONS)}


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_a_burst_and_producers_that_wait_for_their_answers_are_never_refused(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path, store: str
) -> None:
    """A thousand single pushes come at once, then 200 producers push as fast as they are answered."""
    url = f"sqlite:///{tmp_path}/queue.db" if store == "sqlite" else await fresh_database(server)
    with contextlib.ExitStack() as stack:
        broker = await asyncio.to_thread(stack.enter_context, broker_process(url))
        burst = ClosedLoop(broker.url, producers=1_000)
        await burst.run(pushes=1)
        assert burst.answers == {201: 1_000}
        loop = ClosedLoop(broker.url, producers=200, partitions_each=20, each=5)
        await loop.run(pushes=5)
        assert set(loop.answers) <= {201, 202}
        await asyncio.to_thread(stack.close)
