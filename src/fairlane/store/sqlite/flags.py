"""Flags: what operators turned on for all brokers."""

from __future__ import annotations

import apsw

from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import rows

ON = "select name from flags where enabled"
TURN = "insert or replace into flags (name, enabled, changed_at) values (?, ?, ?)"


class Flags:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def on(self) -> set[str]:
        return await self._database.read(lambda db, now: {name for (name,) in rows(db, ON)})

    async def turn(self, name: str, on: bool) -> None:
        def work(db: apsw.Connection, now: int) -> None:
            db.execute(TURN, (name, on, now))

        await self._database.write(work)
