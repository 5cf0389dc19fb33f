"""Schedules on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from fairlane.errors import Conflict
from fairlane.model.schedule import Advance, Schedule, ScheduleOptions
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages
from fairlane.store.values import PushResult, Settled, Settlement, Slice, Verdicts

_COLUMNS = "SELECT r.tenant, r.name, r.options, r.revision, r.next_at, r.paused_at FROM fairlane.schedules r "
GET = _COLUMNS + "WHERE r.tenant = $1 AND r.name = $2"
LIST = _COLUMNS + "WHERE r.tenant = $1 ORDER BY r.name"
DUE = _COLUMNS + "WHERE r.next_at <= coalesce($1, clock_timestamp()) ORDER BY r.next_at LIMIT $2"
PUT = """
INSERT INTO fairlane.schedules AS r (tenant, name, options, revision, next_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, name) DO UPDATE SET options = excluded.options, revision = excluded.revision,
    next_at = CASE WHEN r.paused_at IS NULL THEN excluded.next_at END
WHERE r.options <> excluded.options
"""
DELETE = "DELETE FROM fairlane.schedules r WHERE r.tenant = $1 AND r.name = $2 RETURNING r.name"
TURN = """
UPDATE fairlane.schedules r SET revision = $3, next_at = $4,
    paused_at = CASE WHEN $4::timestamptz IS NULL THEN coalesce(r.paused_at, $5, clock_timestamp()) END
WHERE r.tenant = $1 AND r.name = $2
RETURNING r.tenant, r.name, r.options, r.revision, r.next_at, r.paused_at
"""
NEXT = """
SELECT min(r.next_at), coalesce($1::timestamptz, clock_timestamp()) FROM fairlane.schedules r
WHERE r.next_at IS NOT NULL
"""
ADVANCE = """
UPDATE fairlane.schedules r SET revision = $4, next_at = $5
WHERE r.tenant = $1 AND r.name = $2 AND r.revision = $3 RETURNING r.name
"""

_decode = msgspec.json.Decoder(ScheduleOptions).decode


class Schedules:
    def __init__(self, database: Database, messages: Messages) -> None:
        self._database = database
        self._messages = messages

    async def put(self, schedule: Schedule) -> Schedule:
        await self._database.write(PUT, *put_arguments(schedule))
        return await self.get(schedule.tenant, schedule.name) or schedule

    async def get(self, tenant: str, name: str) -> Schedule | None:
        found = await self._database.read(GET, tenant, name)
        return _schedule(found[0]) if found else None

    async def list(self, tenant: str) -> List[Schedule]:
        return [_schedule(row) for row in await self._database.read(LIST, tenant)]

    async def delete(self, tenant: str, name: str) -> bool:
        return bool(await self._database.write(DELETE, tenant, name))

    async def turn(self, tenant: str, name: str, revision: str, next_at: int | None) -> Schedule | None:
        found = await self._database.write(TURN, tenant, name, revision, next_at, self._database.time())
        return _schedule(found[0]) if found else None

    async def due(self, *, limit: int) -> List[Schedule]:
        return [_schedule(row) for row in await self._database.read(DUE, self._database.time(), limit)]

    async def next_in(self) -> int | None:
        [[next_at, now]] = await self._database.read(NEXT, self._database.time())
        return None if next_at is None else next_at - now

    async def advance(self, step: Advance) -> bool:
        return bool(await self._database.write(ADVANCE, *_arguments(step)))

    async def transact(
        self, step: Advance, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        async def begin(connection: asyncpg.Connection[Any]) -> None:
            """Its row is locked before anything else, so that of two brokers the second finds the step taken."""
            if not await connection.fetch(ADVANCE, *_arguments(step)):
                raise Conflict(f"schedule {step.name!r:.80} is not at this tick any more")

        return await self._messages.transact(settlements, slices, begin=begin)


def put_arguments(schedule: Schedule) -> tuple[object, ...]:
    text = msgspec.json.encode(schedule.options).decode()
    return schedule.tenant, schedule.name, text, schedule.revision, schedule.next_at


def _arguments(step: Advance) -> tuple[object, ...]:
    return step.tenant, step.name, step.before, step.revision, step.next_at


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
