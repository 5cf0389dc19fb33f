"""Flags: what operators turned on for all brokers."""

from __future__ import annotations

from fairlane.store.postgres.connection import Database

ON = "SELECT s.name FROM fairlane.flags s WHERE s.enabled"
TURN = """
INSERT INTO fairlane.flags (name, enabled, changed_at) VALUES ($1, $2, coalesce($3, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled, changed_at = excluded.changed_at
"""


class Flags:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def on(self) -> set[str]:
        return {row["name"] for row in await self._database.read(ON)}

    async def turn(self, name: str, on: bool) -> None:
        await self._database.write(TURN, name, on, self._database.time())
