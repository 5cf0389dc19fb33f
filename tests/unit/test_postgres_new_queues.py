"""Partitions and groups are made under the lock of their queue: making some must not cost more the more there are."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.broker import Broker
from fairlane.model.group import Subscription
from fairlane.model.message import PushItem
from fairlane.store.postgres.connection import Database
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

MADE = 200
THERE = 100_000
TIMES_MAX = 3
"""Tolerance for indexes that become slightly deeper."""


async def test_partitions_cost_the_same_however_many_there_are(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use the plans that a connection made when there were no partitions."""
    url = await fresh_database(postgres18)
    blocks: list[int] = []
    write = Database.write

    async def explained(database: Database, sql: str, *values: Any) -> Any:
        if "fairlane.ensure_partitions(" in sql:
            [[plan]] = await write(database, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *values)
            [found] = msgspec.json.decode(plan)
            blocks.append(found["Plan"]["Shared Hit Blocks"])
        return await write(database, sql, *values)

    async with Broker.open(url, connections=1) as broker:
        queue = await broker._engine.store.queues.ensure("default", "orders")
        await broker._engine.store.queues.ensure_partitions(
            queue.id, ["the first"]
        )  # a connection that never made any reads the catalogue
        monkeypatch.setattr(Database, "write", explained)
        await broker._engine.store.queues.ensure_partitions(queue.id, [f"few {number}" for number in range(MADE)])
        connection = await asyncpg.connect(url)
        await connection.execute(
            "INSERT INTO fairlane.partitions (queue_id, name, created_at, last_at)"
            " SELECT $1, 'there ' || i, now(), now() FROM generate_series(1, $2::int) i",
            queue.id,
            THERE,
        )
        await connection.close()
        await broker._engine.store.queues.ensure_partitions(queue.id, [f"many {number}" for number in range(MADE)])
    assert blocks[1] < TIMES_MAX * blocks[0], blocks


async def test_many_new_names_of_one_request_are_made_in_one_statement(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    run = Database._run

    async def counted(database: Database, work: Any, lost: Any) -> Any:
        called.append("call")
        return await run(database, work, lost)

    async with Broker.open(await fresh_database(postgres18)) as broker:
        await broker.push("the first", 1)
        monkeypatch.setattr(Database, "_run", counted)
        items = [PushItem(queue=f"q{number}", payload=b"1", partition=f"p{number % 7}") for number in range(500)]
        outcomes = await broker.push_many(items)
        assert {outcome.status for outcome in outcomes} == {"queued"}
    assert len(called) < 20, (
        "one for the queues, one for the partitions, one for the messages; others are the broker's own"
    )


async def test_brokers_that_make_a_group_at_once_make_one(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """Each must see the group that another committed meanwhile, and keep its starting point."""
    url = await fresh_database(postgres18)
    async with Broker.open(url) as one, Broker.open(url) as other:
        await one.push("q", 1)
        queue = await one._engine.store.queues.ensure("default", "q")
        for number in range(30):
            first, second = await asyncio.gather(
                one._engine.store.groups.subscribe(queue.id, f"g{number}", Subscription("all")),
                other._engine.store.groups.subscribe(queue.id, f"g{number}", Subscription("new")),
            )
            assert first == second
            popped = [bool(await broker.pop("q", group=first.name)) for broker in (one, other)]
            assert popped == [first.subscription.mode == "all", False]


async def test_a_group_over_many_partitions_looks_at_each_once(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """By the plans that the connection made when there was one partition."""
    there, blocks_max = 5000, 40
    subscribe = "SELECT fairlane.subscribe($1, $2, 'all', NULL, false, false, 5000, NULL)"
    url = await fresh_database(postgres18)
    async with Broker.open(url) as broker:
        await broker.push("q", 1)
        queue = await broker._engine.store.queues.ensure("default", "q")
    connection = await asyncpg.connect(url)
    try:
        for number in range(10):
            await connection.execute(subscribe, queue.id, f"few {number}")
        await connection.execute(
            "INSERT INTO fairlane.partitions (queue_id, name, created_at, last_at)"
            " SELECT $1, 'there ' || i, now(), now() FROM generate_series(1, $2::int) i",
            queue.id,
            there,
        )
        [[plan]] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {subscribe}", queue.id, "many")
    finally:
        await connection.close()
    [found] = msgspec.json.decode(plan)
    assert found["Plan"]["Shared Hit Blocks"] < blocks_max * there
