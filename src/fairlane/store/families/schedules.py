"""Schedules, by tenant and name. The caller of each change gives the schedule a new revision."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.errors import Conflict
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.families.query import (
    AppliedBody,
    DatabaseTransaction,
    Family,
    Value,
    as_json,
    no_more,
    one,
    struct,
)
from fairlane.store.families.unique_keys import NewUnique, check_free, keep
from fairlane.wire.schedules import ScheduleOptions


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its options, its revision and its next tick."""

    tenant: str
    name: str
    options: ScheduleOptions
    revision: str
    """Unique id that changes with every change and every tick."""
    next_at: int | None
    """Time of the next tick. None while the schedule is paused."""
    paused_at: int | None = None
    last_at: int | None = None
    """The last tick that was pushed, in `last_partition` of `last_queue`."""
    last_queue: str | None = None
    last_partition: str | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a schedule from one revision to the next."""

    tenant: str
    name: str
    before: str
    revision: str
    next_at: int
    last_at: int | None = None
    """The last tick that was pushed, to `last_partition` of `last_queue`. None before the first."""
    last_queue: str | None = None
    last_partition: str | None = None


class Schedules(Family):
    async def put(self, schedule: Schedule) -> Schedule:
        """Create the schedule or replace the one of this name, and return the stored one.

        A paused schedule stays paused. If the options are the same, nothing changes.
        """
        await self._runner.write("schedules.put", **put_values(schedule))
        return await self.get(schedule.tenant, schedule.name) or schedule

    async def get(self, tenant: str, name: str) -> Schedule | None:
        return one(Schedule, await self._runner.read("schedules.get", tenant=tenant, name=name))

    async def all(self, tenant: str) -> list[Schedule]:
        """Return the tenant's schedules by name."""
        return [struct(Schedule, row) for row in await self._runner.read("schedules.all", tenant=tenant)]

    async def delete(self, tenant: str, name: str) -> bool:
        return bool(await self._runner.write("schedules.delete", tenant=tenant, name=name))

    async def set_next(self, tenant: str, name: str, revision: str, next_at: int | None) -> Schedule | None:
        """Set the next run, or pause with None. Returns None if the schedule does not exist. Pausing is idempotent."""
        values: dict[str, Value] = {"revision": revision, "next_at": next_at}
        return one(Schedule, await self._runner.write("schedules.set_next", tenant=tenant, name=name, **values))

    async def due(self, *, limit: int) -> list[Schedule]:
        """Return due schedules of all tenants, longest due first."""
        return [struct(Schedule, row) for row in await self._runner.read("schedules.due", limit=limit)]

    async def next_in(self) -> int | None:
        """Return the microseconds until the first schedule is due, 0 or less if one is. None if none waits."""
        [[next_at, now]] = await self._runner.read("schedules.next")
        return None if next_at is None else int(next_at - now)

    async def advance(self, step: Advance) -> bool:
        """Move a schedule to its next tick. Returns False, without changing it, if it has another revision now."""
        return bool(await self._runner.write("schedules.advance", **msgspec.structs.asdict(step)))

    async def commit(
        self,
        step: Advance,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        *,
        also: AppliedBody = no_more,
        unique: Sequence[NewUnique] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Run `Messages.transact` and advance the schedule in the same transaction.

        Raises Conflict if the schedule has another revision now, or does not exist. `unique` is as in
        `UniqueKeys.commit`.
        """

        async def begin(transaction: DatabaseTransaction) -> None:
            await check_free(transaction, unique)
            if not await transaction.run("schedules.advance", **msgspec.structs.asdict(step)):
                raise Conflict(f"schedule {step.name!r:.80} is not at this tick any more")

        async def keep_also(transaction: DatabaseTransaction, pushed: Sequence[PushResult]) -> None:
            await keep(transaction, unique, slices, pushed)
            await also(transaction, pushed)

        return await self._runner.transact_messages(acks, slices, begin=begin, also=keep_also)


def put_values(schedule: Schedule) -> dict[str, Value]:
    values = {name: value for name, value in msgspec.structs.asdict(schedule).items() if not name.startswith("last_")}
    return {**values, "options": as_json(schedule.options)}
