"""The time to enqueue operations grows linearly with their number."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import msgspec

from fairlane.broker.broker import Broker
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.operations import NewOperation
from fairlane.store.postgres.operations import enqueue_on
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

FEW, MANY, ROUNDS = 500, 8_000, 5
TIMES_MAX = 4
"""Maximum cost per operation. Subscripts into an array of variable-length elements cost seven times as much."""


async def test_many_operations_of_a_call_cost_as_much_each_as_few(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    async with Broker.open(url) as broker:
        queue = await broker._engine.store.queues.ensure("default", "orders")
        [partition] = await broker._engine.store.queues.ensure_partitions(queue.id, ["default"])
        connection = await asyncpg.connect(url)

        async def cost(count: int) -> float:
            """Return the server's time per operation, in the fastest of several rounds."""
            taken: list[float] = []

            async def explained(sql: str, *values: Any) -> list[Any]:
                plan = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values)
                taken.append(msgspec.json.decode(plan)[0]["Execution Time"])
                return []

            for _ in range(ROUNDS):
                operations = [
                    NewOperation(
                        id=uuid4(),
                        type="PUSH",
                        partition=partition.id,
                        queue_id=queue.id,
                        options=QueueOptions(),
                        tenant="default",
                        queue="orders",
                        partition_name="default",
                        messages=1,
                        payload=b"x" * (200 + number % 7),
                    )
                    for number in range(count)
                ]
                transaction = connection.transaction()
                await transaction.start()
                await enqueue_on(explained, operations, None)
                await transaction.rollback()
            return min(taken) / count

        few, many = await cost(FEW), await cost(MANY)
        await connection.close()
    assert many < TIMES_MAX * few, (few, many)
