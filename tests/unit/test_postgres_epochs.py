"""While a transaction elsewhere stays open, no old version of a row can be removed: what a lane costs must not grow
with how often it was used."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.store.postgres.connection import Database
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

CYCLES = 100
PARTITIONS = 20
BLOCKS_MAX = PARTITIONS * 60
"""Maximum blocks read by one call. The versions of its lanes are spread over more blocks than that."""


async def test_a_lane_costs_no_more_the_more_it_was_used_while_a_snapshot_is_pinned(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await fresh_database(postgres18)
    called: dict[str, tuple[Any, ...]] = {}
    write = Database.write

    async def watched(database: Database, sql: str, *values: Any) -> Any:
        for verb in ("push", "pop", "ack"):
            if f"fairlane.{verb}(" in sql:
                called[verb] = (database, sql, *values)
        return await write(database, sql, *values)

    monkeypatch.setattr(Database, "write", watched)
    pinning = await asyncpg.connect(url)
    async with Broker.open(url) as broker, pinning.transaction(isolation="repeatable_read"):
        await pinning.fetchval("SELECT count(*) FROM fairlane.cursors")
        for number in range(CYCLES):
            await asyncio.gather(
                *(broker.push("q", number, partition=f"p{partition}") for partition in range(PARTITIONS))
            )
            await broker.ack(await broker.pop("q", batch=PARTITIONS, partitions=PARTITIONS))
        for verb, (database, sql, *values) in called.items():
            hits = []
            for _ in range(10):  # a connection that never made the call reads the catalogue for it
                [[plan]] = await write(database, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *values)
                [found] = msgspec.json.decode(plan)
                hits.append(found["Plan"]["Shared Hit Blocks"])
            assert min(hits) < BLOCKS_MAX, (verb, hits)
    await pinning.close()


async def test_what_a_lane_costs_does_not_begin_with_a_plan(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """PostgreSQL would plan each call again after counting the versions that a pinned snapshot keeps."""
    url = await fresh_database(postgres18)
    async with Broker.open(url):
        connection = await asyncpg.connect(url)
        planned = await connection.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'fairlane'::regnamespace "
            "AND proname IN ('push', 'pop', 'ack', 'pop_unordered', 'ack_unordered') "
            "AND 'plan_cache_mode=force_generic_plan' = ANY (proconfig)"
        )
        await connection.close()
    assert sorted(name for [name] in planned) == ["ack", "ack_unordered", "pop", "pop_unordered", "push"]
