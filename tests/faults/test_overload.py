"""A store that is slower than its producers: nothing is lost, and every answer is true."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

# Imported here, for a broker imports them when it opens, on the event loop of the test.
import fairlane.store.postgres.store
import fairlane.store.sealed.install  # noqa: F401
from fairlane.broker import Broker
from fairlane.engine.admission import LIMITS
from fairlane.errors import Overloaded
from tests.conftest import FreshDatabase
from tests.faults.producers import QUEUE, stored
from tests.faults.slow_link import slow_link
from tests.postgres import PostgresServer, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server(18) as server:
        yield server


async def settled(broker: Broker) -> None:
    async with asyncio.timeout(60):
        while await broker.store.operations.depth():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_hundred_pushes_at_once_on_a_slow_store_all_succeed_in_order(
    server: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(server)
    async with slow_link(server) as link, Broker.open(link.url(url), limits=LIMITS) as broker:
        for lane in range(10):
            await broker.push(QUEUE, -1, partition=f"p{lane}")
        link.seconds = 0.05
        began = time.monotonic()
        outcomes = await asyncio.gather(*(broker.push(QUEUE, n, partition=f"p{n % 10}") for n in range(100)))
        assert {outcome.status for outcome in outcomes} <= {"queued", "buffered"}
        await settled(broker)
        assert time.monotonic() - began < 10, "about a second on a quiet machine"
    assert await stored(url) == {f"p{lane}": [-1, *range(lane, 100, 10)] for lane in range(10)}


@pytest.mark.timeout(180)
async def test_a_store_slower_than_its_producers_answers_201_202_and_429_and_each_is_true(
    server: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """With the thresholds as they are by default."""
    url = await fresh_database(server)
    statuses: Counter[str] = Counter()
    accepted: dict[str, list[int]] = defaultdict(list)
    stop = asyncio.Event()

    async def produce(broker: Broker, partition: str) -> None:
        number = 0
        while not stop.is_set():
            try:
                statuses[(await broker.push(QUEUE, number, partition=partition)).status] += 1
                accepted[partition].append(number)
            except Overloaded as error:
                statuses["refused"] += (error.retry_after or 0) >= 1
            number += 1
            await asyncio.sleep(0.05 * random.random())  # not in step with the others, nor as long as it was told

    async with slow_link(server) as link, Broker.open(link.url(url), limits=LIMITS) as broker:
        await asyncio.gather(*(broker.push(QUEUE, -1, partition=f"p{lane}") for lane in range(300)))
        link.byte_seconds = 3e-5
        producers = [asyncio.create_task(produce(broker, f"p{lane}")) for lane in range(300)]
        async with asyncio.timeout(60):
            while len(statuses) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        stop.set()
        await asyncio.gather(*producers)
        link.byte_seconds = 0.0
        await settled(broker)
    assert set(statuses) == {"queued", "buffered", "refused"}
    assert await stored(url) == {f"p{lane}": [-1, *accepted[f"p{lane}"]] for lane in range(300)}
