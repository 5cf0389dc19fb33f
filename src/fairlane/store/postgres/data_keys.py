"""Keys of encrypted queues, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.store.postgres.connection import Database
from fairlane.store.upkeep import WrappedKey

_COLUMNS = "SELECT k.id, k.queue_id, k.kek, k.wrapped FROM fairlane.data_keys k "
GET = _COLUMNS + "WHERE k.id = ANY ($1)"
OF_QUEUE = _COLUMNS + "WHERE k.queue_id = $1 ORDER BY k.created_at, k.id"
UNDER_OTHERS = _COLUMNS + "WHERE k.kek <> $1 AND k.id > $2 ORDER BY k.id LIMIT $3"
ADD = """
INSERT INTO fairlane.data_keys (id, queue_id, kek, wrapped, created_at)
VALUES ($1, $2, $3, $4, coalesce($5, clock_timestamp())) ON CONFLICT DO NOTHING
"""
REWRAP = "UPDATE fairlane.data_keys k SET kek = $2, wrapped = $3 WHERE k.id = $1 AND k.kek = $4 RETURNING k.id"


class DataKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: WrappedKey) -> None:
        await self._database.write(ADD, *key, self._database.time())

    async def get(self, ids: Sequence[bytes]) -> list[WrappedKey]:
        return [WrappedKey(*row) for row in await self._database.read(GET, list(ids))]

    async def of_queue(self, queue_id: int) -> list[WrappedKey]:
        return [WrappedKey(*row) for row in await self._database.read(OF_QUEUE, queue_id)]

    async def under_others(self, kek: str, *, after: bytes, limit: int) -> list[WrappedKey]:
        return [WrappedKey(*row) for row in await self._database.read(UNDER_OTHERS, kek, after, limit)]

    async def rewrap(self, key: WrappedKey, *, under: str) -> bool:
        return bool(await self._database.write(REWRAP, key.id, key.kek, key.wrapped, under))
