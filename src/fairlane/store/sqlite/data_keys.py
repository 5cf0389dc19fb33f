"""Keys of encrypted queues."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import rows
from fairlane.store.upkeep import WrappedKey

_COLUMNS = "select id, queue_id, kek, wrapped from data_keys "
GET = _COLUMNS + "where id = ?"
OF_QUEUE = _COLUMNS + "where queue_id = ? order by created_at, id"
UNDER_OTHERS = _COLUMNS + "where kek <> ? and id > ? order by id limit ?"
ADD = "insert or ignore into data_keys (id, queue_id, kek, wrapped, created_at) values (?, ?, ?, ?, ?)"
REWRAP = "update data_keys set kek = ?, wrapped = ? where id = ? and kek = ? returning id"


class DataKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: WrappedKey) -> None:
        def work(db: apsw.Connection, now: int) -> None:
            db.execute(ADD, (*key, now))

        await self._database.write(work)

    async def get(self, ids: Sequence[bytes]) -> list[WrappedKey]:
        return await self._database.read(lambda db, now: [WrappedKey(*row) for id in ids for row in rows(db, GET, id)])

    async def of_queue(self, queue_id: int) -> list[WrappedKey]:
        return await self._database.read(lambda db, now: [WrappedKey(*row) for row in rows(db, OF_QUEUE, queue_id)])

    async def under_others(self, kek: str, *, after: bytes, limit: int) -> list[WrappedKey]:
        return await self._database.read(
            lambda db, now: [WrappedKey(*row) for row in rows(db, UNDER_OTHERS, kek, after, limit)]
        )

    async def rewrap(self, key: WrappedKey, *, under: str) -> bool:
        return await self._database.write(lambda db, now: bool(rows(db, REWRAP, key.kek, key.wrapped, key.id, under)))
