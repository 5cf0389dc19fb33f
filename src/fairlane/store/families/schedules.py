"""Schedules, by tenant and name. Each change gives one the revision that the caller made for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.errors import Conflict
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.families.query import DatabaseTransaction, Family, Value, as_json, one, struct
from fairlane.wire.schedules import ScheduleOptions


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule by its name, and where it stands."""

    tenant: str
    name: str
    options: ScheduleOptions
    revision: str
    """Another one after every change and every tick."""
    next_at: int | None
    """None while it is paused."""
    paused_at: int | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a schedule from one revision to the next."""

    tenant: str
    name: str
    before: str
    revision: str
    next_at: int


class Schedules(Family):
    async def put(self, schedule: Schedule) -> Schedule:
        """Make it, or replace what has its name; a paused one stays paused. If its options are those that are
        stored, nothing changes. What is stored afterwards."""
        await self._runner.write("schedules.put", **put_values(schedule))
        return await self.get(schedule.tenant, schedule.name) or schedule

    async def get(self, tenant: str, name: str) -> Schedule | None:
        return one(Schedule, await self._runner.read("schedules.get", tenant=tenant, name=name))

    async def all(self, tenant: str) -> list[Schedule]:
        """By name."""
        return [struct(Schedule, row) for row in await self._runner.read("schedules.all", tenant=tenant)]

    async def delete(self, tenant: str, name: str) -> bool:
        return bool(await self._runner.write("schedules.delete", tenant=tenant, name=name))

    async def set_next(self, tenant: str, name: str, revision: str, next_at: int | None) -> Schedule | None:
        """Set the next run, or pause with None. Returns None if the schedule does not exist. Pausing is idempotent."""
        values: dict[str, Value] = {"revision": revision, "next_at": next_at}
        return one(Schedule, await self._runner.write("schedules.set_next", tenant=tenant, name=name, **values))

    async def due(self, *, limit: int) -> list[Schedule]:
        """Those of all tenants whose time has come, longest due first."""
        return [struct(Schedule, row) for row in await self._runner.read("schedules.due", limit=limit)]

    async def next_in(self) -> int | None:
        """Microseconds until the first one is due, 0 or less if one is; None if none waits."""
        [[next_at, now]] = await self._runner.read("schedules.next")
        return None if next_at is None else int(next_at - now)

    async def advance(self, step: Advance) -> bool:
        """Let it wait for its next tick; False and nothing done if it has another revision by now."""
        return bool(await self._runner.write("schedules.advance", **msgspec.structs.asdict(step)))

    async def commit(
        self, step: Advance, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        """`Messages.transact` and the step in the same transaction: all of it, or nothing. Conflict if the schedule
        has another revision by now, or is gone."""

        async def begin(transaction: DatabaseTransaction) -> None:
            if not await transaction.run("schedules.advance", **msgspec.structs.asdict(step)):
                raise Conflict(f"schedule {step.name!r:.80} is not at this tick any more")

        return await self._runner.transact_messages(acks, slices, begin=begin)


def put_values(schedule: Schedule) -> dict[str, Value]:
    return {**msgspec.structs.asdict(schedule), "options": as_json(schedule.options)}
