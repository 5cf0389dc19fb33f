"""Who leads the work that is done now and then. One process has the file, but several of its tasks may want to."""

from __future__ import annotations

import apsw

from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import rows

LEAD = """
insert into services (name, token, leads_until, rests_until) values (?1, 1, ?2, 0)
on conflict (name) do update set token = token + 1, leads_until = excluded.leads_until
where leads_until <= ?3 and (?4 or rests_until <= ?3)
returning token
"""
KEEP = "update services set leads_until = ? where name = ? and token = ? and leads_until > ? returning token"
REST = "update services set leads_until = 0, rests_until = ? where name = ? and token = ?"


class Services:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def lead(self, name: str, *, seconds: int, early: bool = False) -> int | None:
        def work(db: apsw.Connection, now: int) -> int | None:
            found = rows(db, LEAD, name, now + seconds * 1_000_000, now, early)
            return int(found[0][0]) if found else None

        return await self._database.write(work)

    async def keep(self, name: str, token: int, *, seconds: int) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            return bool(rows(db, KEEP, now + seconds * 1_000_000, name, token, now))

        return await self._database.write(work)

    async def rest(self, name: str, token: int, *, seconds: int) -> None:
        def work(db: apsw.Connection, now: int) -> None:
            db.execute(REST, (now + seconds * 1_000_000, name, token))

        await self._database.write(work)
