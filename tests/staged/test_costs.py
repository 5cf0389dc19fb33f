"""The work of the store for each moved message, counted in rows and statements."""

from __future__ import annotations

from collections import Counter
from typing import Any

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from tests.staged.conftest import Database
from tests.until import until

MANY = 10_000
STEP = 2_000
"""Messages of one move."""
READS_MAX = 2.1
"""Times that a row is read: to push the message and to delete it. The rest finds the next bucket."""
ENQUEUE = (
    "SELECT count(fairlane.enqueue($1, to_json(n), partition => 'p' || n % $2)) FROM generate_series(1, $3::int) n"
)
READ = (
    "SELECT seq_tup_read + idx_tup_fetch, n_tup_del FROM pg_stat_user_tables"
    " WHERE schemaname = 'fairlane' AND relname = 'staged'"
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of each function of the store that moves messages."""
    counted: Counter[str] = Counter()

    def count(verb: str) -> None:
        run = getattr(asyncpg.Connection, verb)

        async def counting(connection: asyncpg.Connection[Any], query: str, *values: Any, **options: Any) -> Any:
            for name in ("open_staged", "push", "delete_staged"):
                counted[name] += f"fairlane.{name}(" in query
            return await run(connection, query, *values, **options)

        monkeypatch.setattr(asyncpg.Connection, verb, counting)

    count("fetch")
    count("fetchval")
    return counted


async def enqueue(database: Database, queue: str, count: int, *, lanes: int = 1000) -> None:
    await database.sql(ENQUEUE, queue, lanes, count)


async def read_and_deleted(database: Database, *, deleted: int = 0) -> tuple[int, int]:
    """Return how many staged rows were read and deleted, once the server has counted that many deleted ones."""
    found: list[Any] = []

    async def counted() -> bool:
        found[:] = await database.sql(READ)
        return bool(found[0][1] >= deleted)

    await until(counted)
    return tuple(found[0])


async def move(database: Database, queue: str, count: int) -> int:
    """Run a broker until this many messages of a queue were moved. Returns how many staged rows were read."""

    async def pushed() -> int:
        [[found]] = await database.sql(
            "SELECT coalesce(sum(p.head), 0)::int FROM fairlane.partitions p"
            " JOIN fairlane.queues q ON q.id = p.queue_id WHERE q.name = $1",
            queue,
        )
        return int(found)

    async def moved() -> bool:
        return await pushed() >= pushed_before + count

    pushed_before = await pushed()
    before, deleted = await read_and_deleted(database)
    async with Broker.open(database.url):
        await until(moved)
    after, _ = await read_and_deleted(database, deleted=deleted + count)
    return after - before


async def test_a_move_reads_its_messages_and_no_others_if_the_table_was_analyzed_while_it_was_empty(
    database: Database, calls: Counter[str]
) -> None:
    await enqueue(database, "orders", STEP)
    await move(database, "orders", STEP)
    await database.sql("VACUUM ANALYZE")
    await enqueue(database, "orders", MANY)
    calls.clear()
    assert await move(database, "orders", MANY) < READS_MAX * MANY
    assert calls["push"] == calls["delete_staged"] == MANY / STEP


async def test_messages_that_wait_cost_the_others_little(database: Database, calls: Counter[str]) -> None:
    async with Broker.open(database.url) as broker:
        await broker.queues.configure("a full queue", max_size=1)
    await enqueue(database, "a full queue", MANY)
    await enqueue(database, "orders", MANY)
    # Each try for the full queue reads one step, as does each move.
    assert await move(database, "orders", MANY) < READS_MAX * MANY + STEP * calls["open_staged"]
    assert calls["delete_staged"] <= MANY / STEP + 1


async def test_a_small_queue_gets_its_messages_in_order_without_a_busy_loop(
    database: Database, calls: Counter[str]
) -> None:
    async with Broker.open(database.url) as broker:
        await broker.queues.configure("small", max_size=5)
        await enqueue(database, "small", 100, lanes=1)
        for number in range(1, 101):
            [message] = await broker.pop("small", wait=60)
            assert message.data == number
            await broker.ack([message])
    assert calls["open_staged"] < 300
