"""Every verb through a pooler that gives each transaction another server connection.

The pooler of this system may be one that cannot keep prepared statements, so the statement cache is off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fairlane import sql
from fairlane.broker.broker import Broker
from tests.conftest import FreshDatabase
from tests.pooler.pgbouncer import PORT, pgbouncer, pooled
from tests.postgres import PostgresServer

pytestmark = pytest.mark.skipif(
    pgbouncer() is None, reason="there is no pgbouncer on this system; `make test` installs one as root on Debian"
)


@pytest.fixture(scope="module")
def pooler(postgres18: PostgresServer) -> Iterator[Path]:
    with pooled(postgres18) as directory:
        yield directory


@pytest.fixture
async def brokers(
    pooler: Path, postgres18: PostgresServer, fresh_database: FreshDatabase
) -> AsyncIterator[list[Broker]]:
    """Two brokers on one database. Only migrations and notifications bypass the pooler."""
    direct = await fresh_database(postgres18)
    database = direct.partition("@/")[2].partition("?")[0]
    url = f"postgresql://postgres@/{database}?host={pooler}&port={PORT}"
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Broker.open(url, statement_cache=False, listen_url=direct))
            for _ in range(2)
        ]


async def test_every_verb_works_behind_a_pooler(brokers: list[Broker]) -> None:
    one, other = brokers
    await one.push("orders", 1, partition="a", transaction_id="first")
    assert (await other.push("orders", 1, partition="a", transaction_id="first")).status == "duplicate"
    await other.push("orders", 2, partition="a")
    batch = await other.pop("orders", batch=10)
    assert [delivery.data for delivery in batch] == [1, 2]
    assert (await one.renew(batch, 120)).renewed == 1
    assert not await one.pop("orders"), "it is held"
    async with other.transaction() as transaction:
        transaction.ack(list(batch))
        transaction.push("done", "both", partition="a")
    assert [delivery.data for delivery in await one.pop("done")] == ["both"]
    await one.push("orders", 3, partition="a")
    failed = await one.pop("orders")
    assert [outcome.success for outcome in await one.nack(failed, error="no", delay_ms=0)] == [True]
    again = await other.pop("orders", wait=5)
    assert [delivery.data for delivery in again] == [3]
    assert await other.release(again) == 1


@pytest.mark.usefixtures("only_when_told")
async def test_a_poll_behind_a_pooler_is_woken_by_another_broker(brokers: list[Broker]) -> None:
    one, other = brokers
    await one.queues.configure("wakes")
    poll = asyncio.create_task(other.pop("wakes", wait=20))
    while not other._engine.waiters._polls:  # noqa: ASYNC110  # it tells nobody
        await asyncio.sleep(0.01)
    await one.push("wakes", 1)
    assert [delivery.data for delivery in await poll] == [1]


async def test_many_at_once_behind_a_pooler_keep_order_and_lose_nothing(brokers: list[Broker]) -> None:
    total, partitions = 200, 5
    seen: dict[str, list[int]] = {}

    async def produce(partition: int) -> None:
        for n in range(total // partitions):
            await brokers[n % 2].push("load", n, partition=f"p{partition}")

    async def consume(broker: Broker) -> None:
        while sum(map(len, seen.values())) < total:
            batch = await broker.pop("load", batch=7, wait=0.2)
            for delivery in batch:
                seen.setdefault(delivery.partition, []).append(delivery.data)
            await broker.ack(batch)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for partition in range(partitions):
            tasks.create_task(produce(partition))
        for broker in brokers * 2:
            tasks.create_task(consume(broker))
    assert seen == {f"p{partition}": list(range(total // partitions)) for partition in range(partitions)}


async def test_a_pooler_that_refuses_settings_of_sessions_gets_them_with_each_transaction(
    brokers: list[Broker],
) -> None:
    database = brokers[0]._engine.store._home._database  # type: ignore[attr-defined]
    name = "idle_in_transaction_session_timeout"
    assert [row[0] for row in await database.read("SELECT current_setting($1)", name)] == ["0"]

    async def work(connection: asyncpg.Connection[Any]) -> str:
        return str(await connection.fetchval("SELECT current_setting($1)", name))

    assert await database.transact(work) == "5s"
    assert [row[0] for row in await database.read("SELECT current_setting($1)", name)] == ["0"], "nobody else's"
    await brokers[0]._engine.store.check_health()


async def test_messages_are_enqueued_and_completed_through_a_pooler(
    brokers: list[Broker], pooler: Path, fresh_database: FreshDatabase
) -> None:
    """Each transaction of the application gets another connection, and so does each move."""
    [[database]] = await brokers[0]._engine.store._home._database.read("SELECT current_database()")  # type: ignore[attr-defined]
    pool = asyncpg.create_pool(
        f"postgresql://postgres@/{database}?host={pooler}&port={PORT}", min_size=2, max_size=4, statement_cache_size=0
    )
    async with pool:

        async def produce(lane: str) -> None:
            for n in range(30):
                async with pool.acquire() as connection, connection.transaction():
                    await sql.enqueue(connection, "orders", n, partition=lane)

        await asyncio.gather(*map(produce, "abc"))
        found: dict[str, list[int]] = {lane: [] for lane in "abc"}
        while sum(map(len, found.values())) < 90:
            batch = await brokers[1].pop("orders", batch=10, wait=30)
            for message in batch:
                async with pool.acquire() as connection, connection.transaction():
                    await sql.complete(connection, message)
                found[message.partition].append(message.data)
    assert found == {lane: list(range(30)) for lane in "abc"}
