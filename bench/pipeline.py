"""An ordered pipeline of two stages: what the first pops it acks and pushes on in one transaction."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import NamedTuple

from fairlane import Client

PARTITIONS = 20
CONSUMERS = 4
"""Of each stage."""
TICK_SECONDS = 0.01
LEASE_LANES = 10
_runs = count()


class Taken(NamedTuple):
    """Seconds that each message took from its push to the second consumer, and how long the whole of it took."""

    took: list[float]
    seconds: float


async def pipeline(url: str, *, rate: int, seconds: float) -> Taken:
    """So many messages a second by the clock, until the last is through both stages, each lane in its order."""
    number = next(_runs)
    first, second = f"first-{number}", f"second-{number}"
    messages = int(rate * seconds)
    took: list[float] = []
    latest: dict[str, int] = {}
    through = asyncio.Event()
    began = time.perf_counter()

    async def produce(client: Client) -> None:
        for sent in range(messages):
            if (wait := began + sent / rate - time.perf_counter()) > TICK_SECONDS:
                await asyncio.sleep(wait)
            data = {"number": sent, "at": time.perf_counter()}
            pushing.add(task := asyncio.create_task(client.push(first, data, partition=f"lane-{sent % PARTITIONS}")))
            task.add_done_callback(pushing.discard)

    async def advance(client: Client) -> None:
        while True:
            batch = await client.pop(first, group="stage", batch=100, partitions=LEASE_LANES, wait=1.0)
            async with client.transaction() as transaction:
                transaction.ack(batch)
                for one in batch:
                    transaction.push(second, one.data, partition=one.partition)

    async def finish(client: Client) -> None:
        while True:
            batch = await client.pop(second, group="stage", batch=100, partitions=LEASE_LANES, wait=1.0)
            now = time.perf_counter()
            for one in batch:
                assert latest.get(one.partition, -1) < one.data["number"], "out of order"
                latest[one.partition] = one.data["number"]
                took.append(now - one.data["at"])
            if batch:
                await client.ack(batch)
            if len(took) >= messages:
                through.set()

    pushing: set[asyncio.Task[object]] = set()
    async with Client(url) as client, asyncio.TaskGroup() as group:
        workers = [group.create_task(kind(client)) for kind in (advance, finish) for _ in range(CONSUMERS)]
        await produce(client)
        await through.wait()
        taken = time.perf_counter() - began
        for worker in workers:
            worker.cancel()
    assert len(took) == messages, (len(took), messages)
    return Taken(took, taken)
