"""The cost of looking up old ids on PostgreSQL: it reads the segments of their time, not the whole log."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.model.ids import id_key
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

SEGMENTS = 5000
IDS = 100
NOW = datetime(2026, 1, 1, tzinfo=UTC)

# Each id costs a binary search of some 13 steps and the segments written in the minute after it.
BLOCKS_PER_ID_MAX = 150


@pytest.mark.parametrize("step", [10.0, 0.01], ids=["all along the log", "all of one minute"])
async def test_old_ids_are_looked_up_in_the_segments_of_their_time(
    step: float, postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """One segment was written every `step` seconds. All are looked at once at most, whatever the number of ids."""
    url = await fresh_database(postgres18)
    async with Broker.open(url) as broker:
        await broker.push("q", 1)
    first = NOW - timedelta(seconds=SEGMENTS * step + 120)
    times = [first + timedelta(seconds=number * step) for number in range(SEGMENTS)]
    ids = [_uuid7(at) for at in times]
    asked = range(0, SEGMENTS, SEGMENTS // IDS)
    connection = await asyncpg.connect(url)
    try:
        partition = await connection.fetchval("SELECT id FROM fairlane.partitions")
        await connection.execute("DELETE FROM fairlane.segments")
        await connection.execute("UPDATE fairlane.partitions SET head = $1", SEGMENTS)
        await connection.execute(
            "INSERT INTO fairlane.segments (partition_id, first_pos, n, created_at, checksum, ends, keys, body)"
            " SELECT $1, s.i - 1, 1, s.at + interval '1 ms', 0, '{1}', ARRAY[s.key], 'x'"
            " FROM unnest($2::timestamptz[], $3::bigint[]) WITH ORDINALITY s(at, key, i)",
            *(partition, times, [id_key(id) for id in ids]),
        )
        await connection.execute("ANALYZE fairlane.segments")
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        look_up = "fairlane.look_up($1, $2, $3, $4, -1, $5, 86400)"
        values = [
            *(partition, [id_key(ids[number]) for number in asked]),
            *([_ms(times[number]) for number in asked], _ms(NOW), NOW),
        ]
        found = await connection.fetch(f"SELECT item, pos FROM {look_up} ORDER BY item", *values)
        assert [(item, pos) for item, pos in found] == list(enumerate(asked, start=1))
        explained = await connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {look_up}", *values
        )
    finally:
        await connection.close()
    [plan] = msgspec.json.decode(explained)
    assert plan["Plan"]["Shared Hit Blocks"] < BLOCKS_PER_ID_MAX * IDS


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _uuid7(at: datetime) -> str:
    digits = f"{_ms(at):012x}7{secrets.randbits(12):03x}{0b10 << 62 | secrets.randbits(62):016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
