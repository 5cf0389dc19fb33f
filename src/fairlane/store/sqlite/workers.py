"""Workers that told of themselves."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name

import apsw

from fairlane.store.programs import Seen
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import rows

BEAT = """
insert into workers (tenant, id, facts, seen_at) values (?1, ?2, ?3, ?4)
on conflict (tenant, id) do update set facts = excluded.facts, seen_at = excluded.seen_at
"""
FORGET = "delete from workers where seen_at < ?"
LIST = "select id, facts, seen_at from workers where tenant = ? and seen_at >= ? order by id"
LEAVE = "delete from workers where tenant = ? and id = ? returning id"


class Workers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, tenant: str, id: str, facts: str, *, keep_seconds: int) -> None:
        def work(db: apsw.Connection, now: int) -> None:
            db.execute(BEAT, (tenant, id, facts, now))
            db.execute(FORGET, (now - keep_seconds * 1_000_000,))

        await self._database.write(work)

    async def list(self, tenant: str, *, seconds: int) -> List[Seen]:
        def work(db: apsw.Connection, now: int) -> List[Seen]:
            return [Seen(*row) for row in rows(db, LIST, tenant, now - seconds * 1_000_000)]

        return await self._database.read(work)

    async def leave(self, tenant: str, id: str) -> bool:
        return await self._database.write(lambda db, now: bool(rows(db, LEAVE, tenant, id)))
