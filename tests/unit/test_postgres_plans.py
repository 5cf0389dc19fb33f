"""Plans of pushes, pop, renew, release and ack are made once for each connection, perhaps while a table has next to
nothing in it: they must not walk it when it has much."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import asyncpg
import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import OutcomeUnknown
from fairlane.model.message import PushItem
from fairlane.store.postgres.connection import Database
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

LANES = 20
THERE = 50_000
TIMES_MAX = 3
"""Tolerance for indexes that become slightly deeper."""


@pytest.mark.parametrize("pushed", [0, 64], ids=["new database", "pushed to before"])
@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_the_verbs_of_a_consumer_cost_the_same_however_many_lanes_there_are(
    ordering: str,
    pushed: int,
    postgres18: PostgresServer,
    fresh_database: FreshDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = await fresh_database(postgres18)
    blocks: dict[str, list[int]] = defaultdict(list)
    write = Database.write

    async def explained(database: Database, sql: str, *values: Any) -> Any:
        """Explain a call with its blocks, roll it back, and then make the call."""
        for verb in ("push", "add_scheduled", "pop", "renew", "release", "ack", "ack_unordered"):
            if f"fairlane.{verb}(" in sql:

                async def explain(connection: asyncpg.Connection[Any]) -> str:
                    transaction = connection.transaction()
                    await transaction.start()
                    plan: str = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *values)
                    await transaction.rollback()
                    return plan

                [found] = msgspec.json.decode(await database._run(explain, OutcomeUnknown))
                blocks[verb].append(found["Plan"]["Shared Hit Blocks"])
        return await write(database, sql, *values)

    items = [PushItem(queue="before", payload=b"1", partition=f"p{number}") for number in range(5 * LANES)]
    async with Broker.open(url) as broker:
        for _ in range(pushed):  # each leaves entries in the index of the key, and few in the others
            await broker.push_many(items)
    async with Broker.open(url, connections=1) as broker:
        await broker.queues.configure("q", ordering=ordering)

        async def cycle() -> dict[str, int]:
            blocks.clear()
            await asyncio.gather(*(broker.push("q", 1, partition=f"p{number}") for number in range(LANES)))
            await asyncio.gather(*(broker.push("q", 1, partition=f"p{n}", delay_ms=3_600_000) for n in range(LANES)))
            await broker.release(await broker.pop("q", batch=LANES, partitions=LANES))
            found = await broker.pop("q", batch=LANES, partitions=LANES)
            assert len(found) == LANES
            await broker.renew(found)
            await broker.ack(found)
            return {verb: min(hits) for verb, hits in blocks.items()}

        await cycle()
        monkeypatch.setattr(Database, "write", explained)
        for _ in range(3):
            before = await cycle()
        await _fill(url)
        after = await cycle()
    assert len(before) == 6
    for verb, hits in after.items():
        assert hits < TIMES_MAX * before[verb], (verb, before, after)


async def _fill(url: str) -> None:
    """Many lanes of the same queue and group, each with messages that were read."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "WITH made AS (INSERT INTO fairlane.partitions (queue_id, name, head, created_at, last_at)"
        " SELECT q.id, 'there ' || i, 1, now(), now()"
        " FROM fairlane.queues q, generate_series(1, $1::int) i"
        " RETURNING id, queue_id),"
        " cursors AS (INSERT INTO fairlane.cursors (partition_id, group_id, committed)"
        " SELECT m.id, g.id, 1 FROM made m JOIN fairlane.groups g USING (queue_id))"
        " INSERT INTO fairlane.segments (partition_id, first_pos, n, created_at, checksum, ends, keys, body)"
        " SELECT id, 0, 1, now(), 0, '{1}', '{1}', 'x' FROM made",
        THERE,
    )
    await connection.close()
