"""The table of rows on bare asyncpg, with four connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import asyncpg

from bench.load import BATCH, PARTITIONS, PAYLOAD, Load, Rate, closed_loop, fresh_ids

CONNECTIONS = 4

_LANES = list(range(PARTITIONS))
_PAYLOADS = [PAYLOAD] * BATCH

_TAKE = f"SELECT id, payload FROM jobs WHERE status = 0 ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
_DONE = "UPDATE jobs SET status = 1 WHERE id = ANY ($1::bigint[])"


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[list[Any]]:
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    try:
        await connections[0].execute(files(__package__).joinpath("postgres.sql").read_text())
        yield connections
    finally:
        for connection in connections:
            await connection.close()


async def push(url: str, load: Load) -> Rate:
    async with _connected(url) as connections:
        await connections[0].executemany("INSERT INTO lanes (id) VALUES ($1)", [(lane,) for lane in _LANES])
        calls = [await connection.prepare("SELECT * FROM push ($1, $2, $3)") for connection in connections]

        async def step(caller: int) -> int:
            return len(await calls[caller].fetch(_LANES, fresh_ids(BATCH), _PAYLOADS))

        rate = await closed_loop(step, load._replace(callers=CONNECTIONS))
        stored = await connections[0].fetchval("SELECT count(*) FROM messages")
        positions = await connections[0].fetchval("SELECT sum(head)::bigint FROM lanes")
        assert stored == positions == rate.items, (stored, positions, rate)
    return rate


async def pop_ack(url: str, load: Load) -> Rate:
    async with _connected(url) as connections:
        await _fill(connections[0], load.backlog)
        takes = [await connection.prepare(_TAKE) for connection in connections]
        dones = [await connection.prepare(_DONE) for connection in connections]

        async def step(caller: int) -> int:
            async with connections[caller].transaction():
                jobs = await takes[caller].fetch()
                await dones[caller].fetch([job for job, _ in jobs])
            return len(jobs)

        rate = await closed_loop(step, load._replace(callers=CONNECTIONS))
        done = await connections[0].fetchval("SELECT count(*) FROM jobs WHERE status = 1")
        assert done == rate.items, (done, rate)
    return rate


async def _fill(connection: Any, jobs: int) -> None:
    rows = ((job, PAYLOAD) for job in range(jobs))
    await connection.copy_records_to_table("jobs", records=rows, columns=["id", "payload"])
    await connection.execute("VACUUM (ANALYZE) jobs")
    await connection.execute("CHECKPOINT")
