"""Logical replication of the whole schema, as upgrades and moves to another server use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.model.message import PushItem
from tests.postgres import PostgresServer, running_server
from tests.until import until

PUSHES = 40
"""More than two epochs of a partition: its key changes on the way."""


@pytest.fixture(scope="module")
def source() -> Iterator[PostgresServer]:
    with running_server(18, settings={"wal_level": "logical"}) as server:
        yield server


async def tables(connection: asyncpg.Connection[Any]) -> list[str]:
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'fairlane' ORDER BY 1")
    return [row[0] for row in rows]


async def contents(connection: asyncpg.Connection[Any]) -> dict[str, list[str]]:
    """The rows of every table, as JSON."""
    found = {}
    for table in await tables(connection):
        rows = await connection.fetch(f'SELECT to_jsonb(t)::text FROM fairlane."{table}" t ORDER BY 1')
        found[table] = [row[0] for row in rows]
    return found


async def use(broker: Broker) -> None:
    """Insert into, update and delete from as many tables as a few calls reach."""
    await broker.queues.configure("limited", max_size=1000, retention_enabled=True, retention_seconds=3600)
    await broker.queues.configure("unordered", ordering="unordered")
    await broker.queues.configure("retried", retry_limit=0)
    for number in range(PUSHES):
        await broker.push("orders", number, partition="a", transaction_id=f"order {number}")
    queues = ("limited", "unordered", "retried")
    await broker.push_many([PushItem(queue=queue, payload=b"%d" % n) for queue in queues for n in range(4)])
    await broker.push("orders", "later", delay_ms=3_600_000)
    for queue in ("orders", *queues[:2]):
        await broker.ack(await broker.pop(queue, batch=3))
    await broker.nack((await broker.pop("retried"))[0], error="for a dead letter")
    await broker.pop("unordered", batch=1)
    await broker.queues.delete("limited")


async def test_every_table_is_replicated_to_another_server(source: PostgresServer, postgres18: PostgresServer) -> None:
    async with source.fresh_database() as url, postgres18.fresh_database() as target_url:
        for one in (url, target_url):
            async with Broker.open(one) as broker:
                if one == url:
                    await use(broker)
        source_db, target_db = await asyncpg.connect(url), await asyncpg.connect(target_url)
        try:
            names = await tables(source_db)
            assert len(names) > 40
            await target_db.execute(f"TRUNCATE {', '.join(f'fairlane.{name}' for name in names)}")
            await source_db.execute("CREATE PUBLICATION everything FOR ALL TABLES")
            database = await source_db.fetchval("SELECT current_database()")
            await target_db.execute(
                f"CREATE SUBSCRIPTION everything CONNECTION 'host={source.directory} user=postgres dbname={database}'"
                " PUBLICATION everything"
            )

            async def same() -> bool:
                return await contents(source_db) == await contents(target_db)

            try:
                async with Broker.open(url) as broker:
                    await use(broker)  # while the first copy is made, and behind it
                    await broker.push("orders", "the last")
                await until(same)
            finally:
                await target_db.execute("DROP SUBSCRIPTION everything")
            found = await contents(target_db)
            filled = {name for name, rows in found.items() if rows}
            assert {"partitions", "segments", "cursors", "message_keys", "dead_letters", "claims"} <= filled
        finally:
            await source_db.close()
            await target_db.close()


async def test_no_key_has_a_generated_column(postgres18: PostgresServer) -> None:
    """PostgreSQL 18 refuses to update a published table whose replica identity has one."""
    async with postgres18.fresh_database() as url:
        async with Broker.open(url):
            pass
        connection = await asyncpg.connect(url)
        try:
            found = await connection.fetch(
                "SELECT t.relname, a.attname FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace"
                " LEFT JOIN pg_index i ON i.indrelid = t.oid AND i.indisprimary"
                " LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ANY (i.indkey) AND a.attgenerated <> ''"
                " WHERE n.nspname = 'fairlane' AND t.relkind = 'r' AND (i.indexrelid IS NULL OR a.attname IS NOT NULL)"
            )
        finally:
            await connection.close()
        assert found == []
