"""Staged messages while brokers are killed."""

from __future__ import annotations

import asyncio
from functools import partial

import asyncpg

from fairlane import Client
from fairlane.broker.broker import Broker
from tests.staged.conftest import Database, serving
from tests.until import until

TRANSACTIONS = 600
EACH = 10
LANES = 4
KILLS = 3
ENQUEUE = (
    "SELECT fairlane.enqueue('orders', to_json(n), partition => 'p' || n % $3) FROM generate_series($1::int, $2::int) n"
)


async def produce(database: Database) -> None:
    """Enqueue rising numbers. Every fifth transaction is rolled back and then repeated."""
    app = await asyncpg.connect(database.role_url)
    try:
        for n in range(TRANSACTIONS):
            numbers = n * EACH, n * EACH + EACH - 1
            if n % 5 == 0:
                transaction = app.transaction()
                await transaction.start()
                await app.execute(ENQUEUE, *numbers, LANES)
                await transaction.rollback()
            await app.execute(ENQUEUE, *numbers, LANES)
    finally:
        await app.close()


async def test_brokers_that_are_killed_move_each_message_once_and_in_order(database: Database) -> None:
    async with Broker.open(database.url) as broker:
        await broker.staged.grant(database.role)

    async def moved(count: int) -> bool:
        [[found]] = await database.sql("SELECT coalesce(sum(head), 0)::int FROM fairlane.partitions")
        return bool(found >= count)

    async with serving(database) as doomed, serving(database) as other:
        producing = asyncio.create_task(produce(database))
        for kill in range(1, KILLS + 1):
            await until(partial(moved, kill * TRANSACTIONS * EACH // (KILLS + 2)))
            await asyncio.to_thread(doomed.kill)
            await asyncio.to_thread(doomed.start)
        await producing
        await until(partial(moved, TRANSACTIONS * EACH))
        found: dict[str, list[int]] = {f"p{lane}": [] for lane in range(LANES)}
        async with Client(other.url) as client:
            while batch := await client.pop("orders", batch=1000, partitions=LANES):
                for message in batch:
                    found[message.partition].append(message.data)
                await client.ack(batch)
    assert await database.staged() == 0
    assert found == {f"p{lane}": list(range(lane, TRANSACTIONS * EACH, LANES)) for lane in range(LANES)}
