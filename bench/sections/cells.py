"""CPU of all servers per message with 1, 2 and 4 cells, and the longest push while a queue is moved to another cell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from bench.load import PAYLOAD
from bench.results import Comparison, Measurement, Results
from bench.stores import PostgresServer, fresh_database, postgres_server
from bench.suite import Suite, ours
from bench.usage import difference, usage_of
from bench.workloads import QUEUE, backlog
from fairlane.broker.broker import Broker
from fairlane.errors import Unavailable
from fairlane.model.message import PushItem
from fairlane.store.cells.cluster import add_cell
from fairlane.store.cells.move import QueueMover
from fairlane.store.postgres.store import PostgresStore

CELLS = (1, 2, 4)
QUEUES = 4
"""Queues of each cell, so that each cell has the same traffic."""
LANES = 100
CALLERS = 2
PRODUCERS = 8
PAUSE = 0.01
SYSTEM = ours("postgres")


def cells_label(count: int) -> str:
    return f"push, pop 100 and ack, {count} cell{'' if count == 1 else 's'}"


async def cells(suite: Suite, results: Results) -> None:
    """Measure stores of 1, 2 and 4 cells in turns, a server for each cell."""
    async with AsyncExitStack() as stack:
        others = [stack.enter_context(postgres_server(suite.directory, major=18)) for _ in range(max(CELLS) - 1)]
        servers = [suite.server, *others]
        brokers = {}
        for count in CELLS:
            await suite.turn(f"growth: {count} cells")
            url = await stack.enter_async_context(store_of(servers[:count]))
            brokers[count] = await stack.enter_async_context(Broker.open(url, retention_interval=0))
            for number in range(QUEUES * count):
                await brokers[count].queues.configure(queue_named(number), cell=str(number % count))
            await traffic(brokers[count], count, suite.scale.seconds)
        for number in range(suite.scale.rounds):
            await suite.turn(f"growth, round {number + 1}: cells")
            for count, broker in brokers.items():
                results.add(cells_label(count), SYSTEM, await measured(broker, servers[:count], suite.scale.seconds))
    for count in CELLS[1:]:
        value = results.ratio((cells_label(count), SYSTEM), (cells_label(1), SYSTEM), "store_us")
        basis = f"CPU of all servers per message: {cells_label(1)}"
        results.comparisons.append(Comparison(cells_label(count), SYSTEM, value, basis))


def queue_named(number: int) -> str:
    return f"{QUEUE}-{number}"


@asynccontextmanager
async def store_of(servers: Sequence[PostgresServer]) -> AsyncIterator[str]:
    """Create a store with a cell on each of these servers, and yield its URL."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(fresh_database(server)) for server in servers]
        async with await PostgresStore.open(urls[0]) as home:
            for url in urls[1:]:
                await add_cell(home, url)
        yield urls[0]


async def measured(broker: Broker, servers: Sequence[PostgresServer], seconds: float) -> Measurement:
    """Measure traffic. CPU that the servers use without any, in the same time, is subtracted."""
    pids = [server.pid for server in servers]
    before = usage_of(pids)
    await asyncio.sleep(seconds)
    idle = difference(before, usage_of(pids)).cpu_seconds / seconds
    before, began, spent = usage_of(pids), time.perf_counter(), time.process_time()
    messages = await traffic(broker, len(servers), seconds)
    took, mine = time.perf_counter() - began, time.process_time() - spent
    used = difference(before, usage_of(pids)).cpu_seconds - idle * took
    return Measurement(rate=messages / took, broker_us=mine / messages * 1e6, store_us=used / messages * 1e6)


async def traffic(broker: Broker, count: int, seconds: float) -> int:
    """Push a message to each of 100 lanes of each queue, pop and ack all of them, and so on. Returns their number."""
    give_up_at = time.monotonic() + seconds

    async def use(queue: str) -> int:
        items = [PushItem(queue=queue, payload=PAYLOAD, partition=f"lane-{lane}") for lane in range(LANES)]
        done, first = 0, True
        while first or time.monotonic() < give_up_at:
            first = False
            assert all(outcome.status == "queued" for outcome in await broker.push_many(items))
            while batch := await broker.pop(queue, batch=LANES, partitions=LANES):
                assert all(outcome.success for outcome in await broker.ack(batch))
                done += len(batch)
        return done

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(use(queue_named(number))) for number in range(QUEUES * count) for _ in range(CALLERS)
        ]
    return sum(task.result() for task in tasks)


async def move(suite: Suite, results: Results) -> None:
    """Move a queue with a backlog while producers push to it, and consumers read it."""
    messages = suite.scale.grown[0]
    await suite.turn(f"growth: moves a queue of {messages:,} messages")
    async with AsyncExitStack() as stack:
        second = stack.enter_context(postgres_server(suite.directory, major=18))
        url = await stack.enter_async_context(store_of([suite.server, second]))
        async with Broker.open(url) as broker:
            await broker.queues.configure(QUEUE, cell="0")
        await backlog(url, messages, spread=10)
        broker = await stack.enter_async_context(Broker.open(url, retention_interval=0))
        home = await stack.enter_async_context(await PostgresStore.open(url))
        load = MovingLoad(broker)
        tasks = [asyncio.create_task(load.produce(number)) for number in range(PRODUCERS)]
        tasks.append(asyncio.create_task(load.consume()))
        await asyncio.sleep(suite.scale.seconds)
        usual, began = max(load.waits), time.perf_counter()
        await QueueMover(home).move("default", QUEUE, 1)
        took = time.perf_counter() - began
        await asyncio.sleep(suite.scale.seconds)
        load.stopped = True
        await asyncio.gather(*tasks)
    what = f"move of a queue of {messages:,} messages under load"
    basis = f"{len(load.waits):,} pushes of 10, {load.errors} errors; the longest before the move took {usual:.2f} s"
    results.comparisons.append(Comparison(what, SYSTEM, took, "from the command to its end", " s"))
    results.comparisons.append(Comparison(f"{what}: longest push", SYSTEM, max(load.waits), basis, " s"))


class MovingLoad:
    """Producers and a consumer of the queue that is moved."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.stopped = False
        self.waits: list[float] = []
        """Seconds of each push."""
        self.errors = 0

    async def produce(self, number: int) -> None:
        items = [PushItem(queue=QUEUE, payload=PAYLOAD, partition=f"lane-{number}")] * 10
        while not self.stopped:
            began = time.perf_counter()
            try:
                outcomes = await self._broker.push_many(items)
                self.errors += any(outcome.status != "queued" for outcome in outcomes)
            except Unavailable:
                self.errors += 1
            self.waits.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)

    async def consume(self) -> None:
        while not self.stopped:
            with suppress(Unavailable):
                batch = await self._broker.pop(QUEUE, batch=100, wait=0.2)
                if batch:
                    await self._broker.ack(batch)
            await asyncio.sleep(PAUSE)
