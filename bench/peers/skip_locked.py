"""A table read with FOR UPDATE SKIP LOCKED, as teams write it themselves, with asyncpg."""

from __future__ import annotations

import asyncpg
import closed_loop

CREATE = """
    CREATE TABLE IF NOT EXISTS {table} (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now()
    )
"""
TAKE = "SELECT id, payload FROM {table} ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED"


class SkipLocked:
    async def open(self, url: str, task: closed_loop.Task) -> None:
        self._pool = await asyncpg.create_pool(url, min_size=8, max_size=16)
        self._table, self._payload, self._batch = task.name, task.payload.decode(), task.batch
        await self._pool.execute(CREATE.format(table=task.name))
        self.version = "PostgreSQL " + str(await self._pool.fetchval("SHOW server_version"))

    async def push(self, task: int) -> int:
        await self._pool.execute(f"INSERT INTO {self._table} (payload) VALUES ($1)", self._payload)
        return 1

    async def push_batch(self, task: int) -> int:
        await self._pool.execute(
            f"INSERT INTO {self._table} (payload) SELECT unnest($1::jsonb[])", [self._payload] * self._batch
        )
        return self._batch

    async def consume(self, task: int) -> int:
        return await self._consume(self._batch)

    async def consume_one(self, task: int) -> int:
        return await self._consume(1)

    async def _consume(self, limit: int) -> int:
        async with self._pool.acquire() as connection, connection.transaction():
            taken = await connection.fetch(TAKE.format(table=self._table), limit)
            await connection.execute(f"DELETE FROM {self._table} WHERE id = ANY ($1)", [row["id"] for row in taken])
            return len(taken)

    async def close(self) -> None:
        await self._pool.close()


if __name__ == "__main__":
    closed_loop.main(SkipLocked())
