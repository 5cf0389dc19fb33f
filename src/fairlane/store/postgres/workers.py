"""Workers that told of themselves, on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name

from fairlane.store.postgres.connection import Database
from fairlane.store.programs import Seen

BEAT = """
INSERT INTO fairlane.workers (tenant, id, facts, seen_at) VALUES ($1, $2, $3, coalesce($4, clock_timestamp()))
ON CONFLICT (tenant, id) DO UPDATE SET facts = excluded.facts, seen_at = excluded.seen_at
"""
FORGET = "DELETE FROM fairlane.workers w WHERE w.seen_at < coalesce($1, clock_timestamp()) - make_interval(secs => $2)"
LIST = """
SELECT w.id, w.facts, w.seen_at FROM fairlane.workers w
WHERE w.tenant = $1 AND w.seen_at >= coalesce($2, clock_timestamp()) - make_interval(secs => $3) ORDER BY w.id
"""
LEAVE = "DELETE FROM fairlane.workers w WHERE w.tenant = $1 AND w.id = $2 RETURNING w.id"


class Workers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, tenant: str, id: str, facts: str, *, keep_seconds: int) -> None:
        await self._database.write(BEAT, tenant, id, facts, self._database.time())
        await self._database.write(FORGET, self._database.time(), keep_seconds)

    async def list(self, tenant: str, *, seconds: int) -> List[Seen]:
        return [Seen(*row) for row in await self._database.read(LIST, tenant, self._database.time(), seconds)]

    async def leave(self, tenant: str, id: str) -> bool:
        return bool(await self._database.write(LEAVE, tenant, id))
