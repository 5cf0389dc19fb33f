"""Who leads the work that one broker does for all, on PostgreSQL."""

from __future__ import annotations

from fairlane.store.postgres.connection import Database

LEAD = """
INSERT INTO fairlane.services AS s (name, token, leads_until, rests_until)
VALUES ($1, 1, coalesce($4, clock_timestamp()) + make_interval(secs => $2), '-infinity')
ON CONFLICT (name) DO UPDATE SET token = s.token + 1, leads_until = excluded.leads_until
WHERE s.leads_until <= coalesce($4, clock_timestamp()) AND ($3 OR s.rests_until <= coalesce($4, clock_timestamp()))
RETURNING s.token
"""
KEEP = """
UPDATE fairlane.services s SET leads_until = coalesce($4, clock_timestamp()) + make_interval(secs => $3)
WHERE s.name = $1 AND s.token = $2 AND s.leads_until > coalesce($4, clock_timestamp())
RETURNING s.token
"""
REST = """
UPDATE fairlane.services s
SET leads_until = '-infinity', rests_until = coalesce($4, clock_timestamp()) + make_interval(secs => $3)
WHERE s.name = $1 AND s.token = $2
"""


class Services:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def lead(self, name: str, *, seconds: int, early: bool = False) -> int | None:
        rows = await self._database.write(LEAD, name, seconds, early, self._database.time())
        return int(rows[0][0]) if rows else None

    async def keep(self, name: str, token: int, *, seconds: int) -> bool:
        return bool(await self._database.write(KEEP, name, token, seconds, self._database.time()))

    async def rest(self, name: str, token: int, *, seconds: int) -> None:
        await self._database.write(REST, name, token, seconds, self._database.time())
