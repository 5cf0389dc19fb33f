"""Specs that were applied, on PostgreSQL."""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec

from fairlane.errors import Conflict
from fairlane.model.queue import labels_of
from fairlane.model.spec_version import SpecChange, SpecVersion
from fairlane.store.postgres import schedules
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.queues import SQL as QUEUES
from fairlane.store.postgres.queues import Queues, Reconfigured
from fairlane.store.specs import SPECS, TAKEN, changed

_HEAD = "SELECT s.tenant, s.version, s.app, s.hash, s.applied_by, s.applied_at"
# The row is the lock: whoever applies the same version waits here, and finds it taken.
INSERT = """
INSERT INTO fairlane.specs AS s SELECT $1, $2, $3, $4, $5, coalesce($6, clock_timestamp()), $7, $8
WHERE $2 = 1 + (SELECT coalesce(max(x.version), 0) FROM fairlane.specs x WHERE x.tenant = $1)
ON CONFLICT DO NOTHING RETURNING s.applied_at
"""
GET = f"{_HEAD}, s.source, s.document FROM fairlane.specs s WHERE s.tenant = $1 AND s.version = $2"
IN_FORCE = f"""
{_HEAD}, s.source, s.document FROM fairlane.specs s
WHERE s.tenant = $1 AND s.version IN (SELECT max(x.version) FROM fairlane.specs x WHERE x.tenant = $1 GROUP BY x.app)
ORDER BY s.app
"""  # noqa: S608
VERSIONS = f"""
{_HEAD}, '' AS source, '' AS document FROM fairlane.specs s
WHERE s.tenant = $1 AND ($2::text IS NULL OR s.app = $2) AND ($3::bigint IS NULL OR s.version < $3)
ORDER BY s.version DESC LIMIT $4
"""


class Specs:
    def __init__(self, database: Database, queues: Queues) -> None:
        self._database = database
        self._queues = queues

    async def apply(self, change: SpecChange) -> SpecVersion:
        async def work(connection: asyncpg.Connection[Any]) -> SpecVersion:
            applied = await self._record(connection, change.spec)
            queue_ids = await self._configure(connection, change)
            for schedule in change.schedules:
                await connection.execute(schedules.PUT, *schedules.put_arguments(schedule))
            for name in change.schedules_gone:
                await connection.execute(schedules.DELETE, change.spec.tenant, name)
            await self._queues.note_changes(connection, [*queue_ids, SPECS])
            return applied

        applied = await self._database.transact(work)
        if change.queues_gone:
            await self._queues.purge()
        return applied

    async def _record(self, connection: asyncpg.Connection[Any], spec: SpecVersion) -> SpecVersion:
        values = {**msgspec.structs.asdict(spec), "applied_at": self._database.time()}
        at = await connection.fetchval(INSERT, *values.values())
        if at is None:
            raise Conflict(TAKEN)
        return msgspec.structs.replace(spec, applied_at=at)

    async def _configure(self, connection: asyncpg.Connection[Any], change: SpecChange) -> list[int]:
        """The ids of the queues that changed. Rows are locked by id, as everybody locks them."""
        tenant = change.spec.tenant
        wanted = {one.name: one for one in change.queues}
        for name in sorted(name for name, one in wanted.items() if one.before is None):
            # Its options are those that it is to have: nothing of it has to be counted or woken.
            options = msgspec.json.encode(wanted[name].after).decode()
            made = (tenant, name, *labels_of(name), options, self._database.time())
            if await connection.fetchval(QUEUES["make"], *made) is None:
                raise Conflict(changed(name))
        rows = await connection.fetch(QUEUES["lock"], tenant, [*wanted, *change.queues_gone])
        found = {row["name"] for row in rows}
        if missing := [name for name in wanted if name not in found]:
            raise Conflict(changed(missing[0]))
        old = []
        for row in rows:
            name = row["name"]
            if name in wanted and wanted[name].before is not None:
                old.append(Reconfigured(row, wanted[name].after, row["namespace"], row["task"]))
                if old[-1].before != wanted[name].before:
                    raise Conflict(changed(name))
        await self._queues.reconfigure(connection, old)
        for row in rows:
            if row["name"] not in wanted:
                await self._queues.drop(connection, row["id"])
        return [row["id"] for row in rows]

    async def in_force(self, tenant: str) -> list[SpecVersion]:
        return [SpecVersion(**row) for row in await self._database.read(IN_FORCE, tenant)]

    async def get(self, tenant: str, version: int) -> SpecVersion | None:
        found = await self._database.read(GET, tenant, version)
        return SpecVersion(**found[0]) if found else None

    async def versions(
        self, tenant: str, *, app: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[SpecVersion]:
        found = await self._database.read(VERSIONS, tenant, app, before, limit)
        return [SpecVersion(**row) for row in found]
