"""A table read with FOR UPDATE SKIP LOCKED, as teams write it for themselves, with asyncpg."""

from __future__ import annotations

import asyncpg
import closed

CREATE = """
    CREATE TABLE IF NOT EXISTS jobs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
"""
TAKE = "SELECT id, payload FROM jobs ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED"


class SkipLocked:
    async def open(self, url: str, payload: bytes, batch: int) -> None:
        self._pool = await asyncpg.create_pool(url, min_size=8, max_size=16)
        self._payload, self._batch = payload.decode(), batch
        await self._pool.execute(CREATE)
        self.version = "PostgreSQL " + str(await self._pool.fetchval("SHOW server_version"))

    async def push(self, task: int) -> int:
        await self._pool.execute("INSERT INTO jobs (payload) VALUES ($1)", self._payload)
        return 1

    async def push_batch(self, task: int) -> int:
        await self._pool.execute("INSERT INTO jobs (payload) SELECT unnest($1::jsonb[])", [self._payload] * self._batch)
        return self._batch

    async def consume(self, task: int) -> int:
        async with self._pool.acquire() as connection, connection.transaction():
            taken = await connection.fetch(TAKE, self._batch)
            await connection.execute("DELETE FROM jobs WHERE id = ANY ($1)", [row["id"] for row in taken])
            return len(taken)

    async def close(self) -> None:
        await self._pool.close()


if __name__ == "__main__":
    closed.main(SkipLocked())
