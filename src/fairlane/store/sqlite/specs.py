"""Specs that were applied."""

from __future__ import annotations

import apsw
import msgspec

from fairlane.errors import Conflict
from fairlane.model.queue import labels_of
from fairlane.model.spec_version import QueueChange, SpecChange, SpecVersion
from fairlane.store.specs import SPECS, TAKEN, changed
from fairlane.store.sqlite import queues, schedules
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import rows, value

_HEAD = "tenant, version, app, hash, applied_by, applied_at"
LAST = "select coalesce(max(version), 0) from specs where tenant = ?"
INSERT = "insert into specs values (?, ?, ?, ?, ?, ?, ?, ?)"
GET = f"select {_HEAD}, source, document from specs where tenant = ? and version = ?"  # noqa: S608
IN_FORCE = f"""
select {_HEAD}, source, document from specs
where (tenant, version) in (select tenant, max(version) from specs where tenant = ? group by app) order by app
"""  # noqa: S608
VERSIONS = f"""
select {_HEAD}, '', '' from specs
where tenant = ?1 and (?2 is null or app = ?2) and (?3 is null or version < ?3) order by version desc limit ?4
"""  # noqa: S608


class Specs:
    def __init__(self, database: Database, families: queues.Queues) -> None:
        self._database = database
        self._queues = families

    async def apply(self, change: SpecChange) -> SpecVersion:
        applied = await self._database.write(lambda db, now: _apply(db, now, change))
        if change.queues_gone:
            await self._queues.purge()
        return applied

    async def in_force(self, tenant: str) -> list[SpecVersion]:
        return await self._database.read(lambda db, now: [_version(row) for row in rows(db, IN_FORCE, tenant)])

    async def get(self, tenant: str, version: int) -> SpecVersion | None:
        found = await self._database.read(lambda db, now: rows(db, GET, tenant, version))
        return _version(found[0]) if found else None

    async def versions(
        self, tenant: str, *, app: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[SpecVersion]:
        found = await self._database.read(lambda db, now: rows(db, VERSIONS, tenant, app, before, limit))
        return [_version(row) for row in found]


def _apply(db: apsw.Connection, now: int, change: SpecChange) -> SpecVersion:
    spec = msgspec.structs.replace(change.spec, applied_at=now)
    if spec.version != value(db, LAST, spec.tenant) + 1:
        raise Conflict(TAKEN)
    db.execute(INSERT, msgspec.structs.astuple(spec))
    for one in change.queues:
        _configure(db, now, spec.tenant, one)
    for name in change.queues_gone:
        found = queues.get(db, spec.tenant, name)
        if found is not None:
            queues.delete(db, found.id)
    for schedule in change.schedules:
        schedules.put(db, schedule)
    for name in change.schedules_gone:
        schedules.delete(db, spec.tenant, name)
    queues.note_change(db, SPECS)
    return spec


def _configure(db: apsw.Connection, now: int, tenant: str, change: QueueChange) -> None:
    queue = queues.get(db, tenant, change.name)
    if (queue.options if queue else None) != change.before:
        raise Conflict(changed(change.name))
    if queue is not None:
        queues.reconfigure(db, now, queue, msgspec.structs.replace(queue, options=change.after))
        return
    made = queues.make_queue(db, now, (tenant, change.name), change.after, labels_of(change.name))
    queues.note_change(db, made.id)


def _version(row: tuple[str, int, str, str, str, int, str, str]) -> SpecVersion:
    return SpecVersion(**dict(zip(SpecVersion.__struct_fields__, row, strict=True)))  # type: ignore[arg-type]
