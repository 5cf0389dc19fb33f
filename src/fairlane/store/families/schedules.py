"""Schedules, by tenant and name. Each change gives one the revision that the caller made for it."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence

import msgspec

from fairlane.errors import Conflict
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.families.port import Family, Transaction, Value, as_json, one, struct
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
        await self._port.write("schedules.put", **put_values(schedule))
        return await self.get(schedule.tenant, schedule.name) or schedule

    async def get(self, tenant: str, name: str) -> Schedule | None:
        return one(Schedule, await self._port.read("schedules.get", tenant=tenant, name=name))

    async def list(self, tenant: str) -> List[Schedule]:
        """By name."""
        return [struct(Schedule, row) for row in await self._port.read("schedules.list", tenant=tenant)]

    async def delete(self, tenant: str, name: str) -> bool:
        return bool(await self._port.write("schedules.delete", tenant=tenant, name=name))

    async def turn(self, tenant: str, name: str, revision: str, next_at: int | None) -> Schedule | None:
        """Pause it with None, or let it go on at a time; None if it is not there. Pausing twice is as good as once."""
        values: dict[str, Value] = {"revision": revision, "next_at": next_at}
        return one(Schedule, await self._port.write("schedules.turn", tenant=tenant, name=name, **values))

    async def due(self, *, limit: int) -> List[Schedule]:
        """Those of all tenants whose time has come, longest due first."""
        return [struct(Schedule, row) for row in await self._port.read("schedules.due", limit=limit)]

    async def next_in(self) -> int | None:
        """Microseconds until the first one is due, 0 or less if one is; None if none waits."""
        [[next_at, now]] = await self._port.read("schedules.next")
        return None if next_at is None else int(next_at - now)

    async def advance(self, step: Advance) -> bool:
        """Let it wait for its next tick; False and nothing done if it has another revision by now."""
        return bool(await self._port.write("schedules.advance", **msgspec.structs.asdict(step)))

    async def commit(
        self, step: Advance, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[List[AckResult], List[PushResult]]:
        """`Messages.transact` and the step in the same transaction: all of it, or nothing. Conflict if the schedule
        has another revision by now, or is gone."""

        async def begin(transaction: Transaction) -> None:
            if not await transaction.run("schedules.advance", **msgspec.structs.asdict(step)):
                raise Conflict(f"schedule {step.name!r:.80} is not at this tick any more")

        return await self._port.transact_messages(acks, slices, begin=begin)


def put_values(schedule: Schedule) -> dict[str, Value]:
    return {**msgspec.structs.asdict(schedule), "options": as_json(schedule.options)}
