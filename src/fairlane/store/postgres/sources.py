"""Sources, and what is known of their records, on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from typing import Any

import asyncpg

from fairlane.model.source import Source, SourceStep
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages
from fairlane.store.sources import refusal
from fairlane.store.values import PushResult, Settled, Settlement, Slice, Verdicts

_COLUMNS = (
    "s.id, s.tenant, s.name, s.revision, s.cursor, s.token, s.leased_until, s.created_at, s.sweep, s.sweeping, "
    "s.sweep_cursor, s.swept_at, s.committed_at, s.records"
)
GET = f"SELECT {_COLUMNS} FROM fairlane.sources s WHERE s.tenant = $1 AND s.name = $2"  # noqa: S608
LIST = f"SELECT {_COLUMNS} FROM fairlane.sources s WHERE s.tenant = $1 ORDER BY s.name"  # noqa: S608
LEASE = f"""
INSERT INTO fairlane.sources AS s (tenant, name, leased_until, created_at)
VALUES ($1, $2, coalesce($4, clock_timestamp()) + make_interval(secs => $3), coalesce($4, clock_timestamp()))
ON CONFLICT (tenant, name) DO UPDATE SET token = s.token + 1, leased_until = excluded.leased_until
WHERE s.leased_until IS NULL OR s.leased_until <= coalesce($4, clock_timestamp())
RETURNING {_COLUMNS}
"""  # noqa: S608
KEEP = f"""
UPDATE fairlane.sources s SET leased_until = coalesce($5, clock_timestamp()) + make_interval(secs => $4)
WHERE s.tenant = $1 AND s.name = $2 AND s.token = $3 AND s.leased_until > coalesce($5, clock_timestamp())
RETURNING {_COLUMNS}
"""  # noqa: S608
RELEASE = """
UPDATE fairlane.sources s SET leased_until = NULL
WHERE s.tenant = $1 AND s.name = $2 AND s.token = $3 AND s.leased_until > coalesce($4, clock_timestamp())
RETURNING s.id
"""
DELETE = "DELETE FROM fairlane.sources s WHERE s.tenant = $1 AND s.name = $2 RETURNING s.id"
DELETE_RECORDS = "DELETE FROM fairlane.shadow_records r WHERE r.source_id = $1"
KNOWN = "SELECT r.key, r.hash FROM fairlane.shadow_records r WHERE r.source_id = $1 AND r.key = ANY ($2)"
UNSEEN = """
SELECT r.key FROM fairlane.shadow_records r WHERE r.source_id = $1 AND r.sweep < $2 ORDER BY r.sweep, r.key LIMIT $3
"""
LOCK = f"""
SELECT {_COLUMNS} FROM fairlane.sources s WHERE s.tenant = $1 AND s.name = $2 FOR UPDATE
"""  # noqa: S608
NOW = "SELECT coalesce($1, clock_timestamp())"
STEP = """
UPDATE fairlane.sources s SET revision = $3, cursor = $4, sweep = $5, sweeping = $6, sweep_cursor = $7,
    swept_at = CASE WHEN $8 THEN $9::timestamptz ELSE s.swept_at END, committed_at = $9, records = $10
WHERE s.tenant = $1 AND s.name = $2
"""
SEE = """
INSERT INTO fairlane.shadow_records AS r (source_id, key, hash, sweep)
SELECT $1, u.key, u.hash, $4 FROM unnest($2::text[], $3::text[]) u(key, hash)
ON CONFLICT (source_id, key) DO UPDATE SET hash = excluded.hash, sweep = excluded.sweep
"""
FORGET = "DELETE FROM fairlane.shadow_records r WHERE r.source_id = $1 AND r.key = ANY ($2)"


class Sources:
    def __init__(self, database: Database, messages: Messages) -> None:
        self._database = database
        self._messages = messages

    async def lease(self, tenant: str, name: str, *, seconds: int) -> Source | None:
        return _one(await self._database.write(LEASE, tenant, name, seconds, self._database.time()))

    async def keep(self, tenant: str, name: str, token: int, *, seconds: int) -> Source | None:
        return _one(await self._database.write(KEEP, tenant, name, token, seconds, self._database.time()))

    async def release(self, tenant: str, name: str, token: int) -> bool:
        return bool(await self._database.write(RELEASE, tenant, name, token, self._database.time()))

    async def get(self, tenant: str, name: str) -> Source | None:
        return _one(await self._database.read(GET, tenant, name))

    async def list(self, tenant: str) -> List[Source]:
        return [Source(**row) for row in await self._database.read(LIST, tenant)]

    async def delete(self, tenant: str, name: str) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            found = await connection.fetch(DELETE, tenant, name)
            if found:
                await connection.execute(DELETE_RECORDS, found[0][0])
            return bool(found)

        return await self._database.transact(work)

    async def known(self, source_id: int, keys: Sequence[str]) -> dict[str, str]:
        return dict(await self._database.read(KNOWN, source_id, keys))

    async def unseen(self, source_id: int, sweep: int, *, limit: int) -> List[str]:
        return [row[0] for row in await self._database.read(UNSEEN, source_id, sweep, limit)]

    async def commit(
        self, step: SourceStep, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        async def begin(connection: asyncpg.Connection[Any]) -> None:
            """Its row is locked before anything else, so that of two commits the second finds the step taken."""
            source = _one(await connection.fetch(LOCK, step.tenant, step.name))
            now = await connection.fetchval(NOW, self._database.time())
            if refused := refusal(step, source, now):
                raise refused
            where = (step.cursor, step.sweep, step.sweeping, step.sweep_cursor, step.swept)
            await connection.execute(STEP, step.tenant, step.name, step.revision, *where, now, step.records)
            if step.seen:
                keys, hashes = map(list, zip(*step.seen, strict=True))
                await connection.execute(SEE, step.source_id, keys, hashes, step.sweep)
            if step.gone:
                await connection.execute(FORGET, step.source_id, step.gone)

        return await self._messages.transact(settlements, slices, begin=begin)


def _one(found: List[Any]) -> Source | None:
    return Source(**found[0]) if found else None
