"""What handlers did once, on PostgreSQL."""

from __future__ import annotations

from fairlane.model.ids import PartitionId
from fairlane.store.postgres.connection import Database

GET = """
SELECT e.value FROM fairlane.effects e
WHERE e.tenant = $1 AND e.key = $2 AND e.kept_until > coalesce($3, clock_timestamp())
"""
FORGET = """
DELETE FROM fairlane.effects e WHERE (e.tenant, e.key) IN (
    SELECT o.tenant, o.key FROM fairlane.effects o WHERE o.kept_until <= coalesce($1, clock_timestamp())
    LIMIT 100 FOR UPDATE SKIP LOCKED
)
"""
# The update of a row that stays as it is gives back the one that is there, also when it was put there meanwhile.
KEEP = """
INSERT INTO fairlane.effects AS e (tenant, key, value, kept_until)
VALUES ($1, $2, $3, coalesce($5, clock_timestamp()) + make_interval(secs => $4))
ON CONFLICT (tenant, key) DO UPDATE SET
    value = CASE WHEN e.kept_until > coalesce($5, clock_timestamp()) THEN e.value ELSE excluded.value END,
    kept_until = greatest(e.kept_until, excluded.kept_until)
RETURNING e.value
"""


class Effects:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: str, key: str, partition: PartitionId) -> bytes | None:
        found = await self._database.read(GET, tenant, key, self._database.time())
        return bytes(found[0][0]) if found else None

    async def keep(self, tenant: str, key: str, partition: PartitionId, effect: bytes, *, seconds: int) -> bytes:
        await self._database.write(FORGET, self._database.time())
        [[kept]] = await self._database.write(KEEP, tenant, key, effect, seconds, self._database.time())
        return bytes(kept)
