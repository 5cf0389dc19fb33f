"""Scans that begin at a floor, as they do while a transaction elsewhere pins dead index entries: a lane beneath the
floor comes late, within a bound, and no lane above it is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.store.postgres import scan_floors as module
from fairlane.store.postgres.connection import MINUS_INFINITY
from fairlane.store.postgres.scan_floors import ScanFloors
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

BOUND_SECONDS = 1.5


@pytest.fixture
async def url(postgres18: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(postgres18)


@pytest.fixture
async def broker(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """A broker whose full scans count as slow and scans from the floor as fast. Most scans then begin at the floor."""
    monkeypatch.setattr(module, "_FULL_SCAN_SECONDS_MAX", BOUND_SECONDS)
    record_scan = ScanFloors.record_scan

    def recorded(floors: ScanFloors, key: int, began: int, at: int, _: float) -> None:
        record_scan(floors, key, at, at, 0.001)
        if began == MINUS_INFINITY:
            record_scan(floors, key, began, at, BOUND_SECONDS)

    monkeypatch.setattr(ScanFloors, "record_scan", recorded)
    async with Broker.open(url) as broker:
        yield broker


async def test_a_lane_beneath_the_floor_comes_within_the_bound(broker: Broker, url: str) -> None:
    await broker.push("q", "beneath", partition="beneath")
    assert not await broker.pop("q", partition="none"), "the group is made"
    [held] = await broker.pop("q")
    connection = await asyncpg.connect(url)
    await broker.push("q", "above", partition="above")
    assert [delivery.data for delivery in await broker.pop("q", auto_ack=True)] == ["above"]
    # As if the push had taken its time long before its commit.
    await connection.execute(
        "UPDATE fairlane.cursors SET ready_at = clock_timestamp() - interval '1 hour', lease = NULL"
        " WHERE lease IS NOT NULL"
    )
    await connection.close()
    began = time.monotonic()
    assert not await broker.pop("q"), "the floor is in use"
    await broker.push("q", "above", partition="above")
    assert [delivery.data for delivery in await broker.pop("q", auto_ack=True)] == ["above"], "at once"
    while not (late := await broker.pop("q")):
        assert time.monotonic() - began < BOUND_SECONDS + 5
        await asyncio.sleep(0.05)
    assert [delivery.data for delivery in late] == [held.data]


async def test_no_lane_is_missed_while_a_snapshot_is_pinned(broker: Broker, url: str) -> None:
    pinning = await asyncpg.connect(url)
    snapshot = pinning.transaction(isolation="repeatable_read")
    await snapshot.start()
    await pinning.fetchval("SELECT count(*) FROM fairlane.cursors")
    total, partitions = 300, 10
    seen: dict[str, list[int]] = {}
    waits: list[float] = []

    async def produce() -> None:
        for n in range(total // partitions):
            await asyncio.gather(
                *(broker.push("q", [n, time.monotonic()], partition=f"p{partition}") for partition in range(partitions))
            )

    async def consume() -> None:
        while sum(map(len, seen.values())) < total:
            batch = await broker.pop("q", batch=3, wait=0.5)
            for delivery in batch:
                n, pushed_at = delivery.data
                seen.setdefault(delivery.partition, []).append(n)
                waits.append(time.monotonic() - pushed_at)
            await broker.ack(batch)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(produce())
        for _ in range(3):
            tasks.create_task(consume())
    await snapshot.rollback()
    await pinning.close()
    assert seen == {f"p{partition}": list(range(total // partitions)) for partition in range(partitions)}
    # The queue itself is drained in a fraction of it.
    assert max(waits) < BOUND_SECONDS + 10
