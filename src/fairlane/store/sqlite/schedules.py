"""Schedules."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from fairlane.errors import Conflict
from fairlane.model.schedule import Advance, Schedule, ScheduleOptions
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.messages import transact
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.values import PushResult, Settled, Settlement, Slice, Verdicts

_COLUMNS = "tenant, name, options, revision, next_at, paused_at"
GET = f"select {_COLUMNS} from schedules where tenant = ? and name = ?"  # noqa: S608
LIST = f"select {_COLUMNS} from schedules where tenant = ? order by name"  # noqa: S608
DUE = f"select {_COLUMNS} from schedules where next_at <= ? order by next_at limit ?"  # noqa: S608
PUT = """
insert into schedules (tenant, name, options, revision, next_at) values (?1, ?2, ?3, ?4, ?5)
on conflict (tenant, name) do update set options = excluded.options, revision = excluded.revision,
    next_at = iif(paused_at is null, excluded.next_at, null)
where options <> excluded.options
"""
DELETE = "delete from schedules where tenant = ? and name = ? returning name"
TURN = """
update schedules set revision = ?3, next_at = ?4, paused_at = iif(?4 is null, coalesce(paused_at, ?5), null)
where tenant = ?1 and name = ?2
"""
NEXT = "select min(next_at) from schedules where next_at is not null"
ADVANCE = """
update schedules set revision = ?4, next_at = ?5 where tenant = ?1 and name = ?2 and revision = ?3 returning name
"""

_decode = msgspec.json.Decoder(ScheduleOptions).decode


class Schedules:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, schedule: Schedule) -> Schedule:
        def work(db: apsw.Connection, now: int) -> Schedule:
            put(db, schedule)
            [row] = rows(db, GET, schedule.tenant, schedule.name)
            return _schedule(row)

        return await self._database.write(work)

    async def get(self, tenant: str, name: str) -> Schedule | None:
        def work(db: apsw.Connection, now: int) -> Schedule | None:
            found = rows(db, GET, tenant, name)
            return _schedule(found[0]) if found else None

        return await self._database.read(work)

    async def list(self, tenant: str) -> List[Schedule]:
        return await self._database.read(lambda db, now: [_schedule(row) for row in rows(db, LIST, tenant)])

    async def delete(self, tenant: str, name: str) -> bool:
        return await self._database.write(lambda db, now: delete(db, tenant, name))

    async def turn(self, tenant: str, name: str, revision: str, next_at: int | None) -> Schedule | None:
        def work(db: apsw.Connection, now: int) -> Schedule | None:
            db.execute(TURN, (tenant, name, revision, next_at, now))
            found = rows(db, GET, tenant, name)
            return _schedule(found[0]) if found else None

        return await self._database.write(work)

    async def due(self, *, limit: int) -> List[Schedule]:
        return await self._database.read(lambda db, now: [_schedule(row) for row in rows(db, DUE, now, limit)])

    async def next_in(self) -> int | None:
        def work(db: apsw.Connection, now: int) -> int | None:
            next_at: int | None = value(db, NEXT)
            return None if next_at is None else next_at - now

        return await self._database.read(work)

    async def advance(self, step: Advance) -> bool:
        return await self._database.write(lambda db, now: _advanced(db, step))

    async def transact(
        self, step: Advance, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        def work(db: apsw.Connection, now: int) -> tuple[List[Settled], List[PushResult]] | None:
            [row] = rows(db, GET, step.tenant, step.name) or [None]
            if row is None or _schedule(row).revision != step.before:
                return None
            return transact(db, now, settlements, slices, also=lambda: _must_advance(db, step))

        answer = await self._database.write(work)
        if answer is None:
            raise Conflict(f"schedule {step.name!r:.80} is not at this tick any more")
        return answer


def put(db: apsw.Connection, schedule: Schedule) -> None:
    text = msgspec.json.encode(schedule.options).decode()
    db.execute(PUT, (schedule.tenant, schedule.name, text, schedule.revision, schedule.next_at))


def delete(db: apsw.Connection, tenant: str, name: str) -> bool:
    return bool(rows(db, DELETE, tenant, name))


def _advanced(db: apsw.Connection, step: Advance) -> bool:
    return bool(rows(db, ADVANCE, step.tenant, step.name, step.before, step.revision, step.next_at))


def _must_advance(db: apsw.Connection, step: Advance) -> None:
    assert _advanced(db, step), "its revision was read in the same transaction"


def _schedule(row: Sequence[Any]) -> Schedule:
    tenant, name, options, revision, next_at, paused_at = row
    return Schedule(
        tenant=tenant,
        name=name,
        options=_decode(options),
        revision=revision,
        next_at=next_at,
        paused_at=paused_at,
    )
