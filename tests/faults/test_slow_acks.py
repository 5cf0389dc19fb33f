"""Acks over a link far slower than the producers: all of them are applied within seconds."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import asyncpg
import pytest

# Imported here, because a broker imports them when it opens, on the event loop of the test.
import fairlane.store.journal.journal
import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.admission import LIMITS
from fairlane.broker.broker import Broker
from fairlane.errors import Overloaded
from tests.conftest import FreshDatabase
from tests.faults.producers import QUEUE
from tests.faults.slow_link import slow_link
from tests.postgres import PostgresServer

PRODUCERS = 64
BYTES_PER_SECOND = 4096
ACKS = 8
APPLIED_SECONDS = 5.0
LATE_SECONDS = 0.05
"""Delay of a timer above which the machine is the limit, and not the link."""


@pytest.mark.timeout(180)
async def test_an_ack_is_applied_within_seconds_though_the_pushes_of_its_partition_cannot_be(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """All in one partition. The pushes fill the journal until they are refused; in vain, for they are too many. The
    first acks come before anything is known of the link, each of the others while pushes are applied."""
    url = await fresh_database(server)
    statuses: Counter[str] = Counter()
    stop = asyncio.Event()
    stalled = 0.0

    async def count_stalls() -> None:
        nonlocal stalled
        while not stop.is_set():
            due = time.monotonic() + 0.05
            await asyncio.sleep(0.05)
            late = time.monotonic() - due
            stalled += late if late > LATE_SECONDS else 0.0

    async def produce(broker: Broker) -> None:
        while not stop.is_set():
            try:
                statuses[(await broker.push(QUEUE, "x" * 100)).status] += 1
            except Overloaded as refused:
                statuses["refused"] += refused.retry_after >= 1
                await asyncio.sleep(0.2)

    async def finished() -> int:
        """Read the cursor over a fast link."""
        return int(await look.fetchval("SELECT max(committed) FROM fairlane.cursors"))

    async def applied() -> int:
        return int(await look.fetchval("SELECT count(*) FROM fairlane.operations WHERE status = 'completed'"))

    look = await asyncpg.connect(url)
    async with slow_link(server) as link, Broker.open(link.url(url), limits=LIMITS, journal=str(tmp_path)) as broker:
        for number in range(ACKS):
            await broker.push(QUEUE, number)
        batch = await broker.pop(QUEUE, batch=ACKS, lease_seconds=150)
        link.byte_seconds = 1 / BYTES_PER_SECOND
        tasks = [asyncio.create_task(produce(broker)) for _ in range(PRODUCERS)]
        tasks.append(asyncio.create_task(count_stalls()))
        async with asyncio.timeout(60):
            while not statuses["refused"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        took = []
        for number, delivery in enumerate(batch):
            before, began, stalled_before = await applied(), time.monotonic(), stalled
            [outcome] = await broker.ack(delivery)
            assert outcome.success
            async with asyncio.timeout(60):
                while await finished() <= delivery.position:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            took.append(time.monotonic() - began - (stalled - stalled_before))
            async with asyncio.timeout(60):
                while number > 1 and await applied() <= before + 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        stop.set()
        await asyncio.gather(*tasks)
        link.byte_seconds = 0.0
    await look.close()
    assert max(took) < APPLIED_SECONDS, took
