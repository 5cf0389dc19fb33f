"""What handlers did once."""

from __future__ import annotations

import apsw

from fairlane.model.ids import PartitionId
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import value

GET = "select value from effects where tenant = ? and key = ? and kept_until > ?"
FORGET = """
delete from effects where (tenant, key) in (select tenant, key from effects where kept_until <= ? limit 100)
"""
FORGET_THIS = "delete from effects where tenant = ? and key = ? and kept_until <= ?"
KEEP = """
insert into effects (tenant, key, value, kept_until) values (?, ?, ?, ?)
on conflict (tenant, key) do nothing
"""


class Effects:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: str, key: str, partition: PartitionId) -> bytes | None:
        def work(db: apsw.Connection, now: int) -> bytes | None:
            found: bytes | None = value(db, GET, tenant, key, now)
            return found

        return await self._database.read(work)

    async def keep(self, tenant: str, key: str, partition: PartitionId, effect: bytes, *, seconds: int) -> bytes:
        def work(db: apsw.Connection, now: int) -> bytes:
            db.execute(FORGET, (now,))
            db.execute(FORGET_THIS, (tenant, key, now))
            db.execute(KEEP, (tenant, key, effect, now + seconds * 1_000_000))
            kept: bytes = value(db, GET, tenant, key, now)
            return kept

        return await self._database.write(work)
