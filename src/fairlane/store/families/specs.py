"""Specs that were applied, by tenant. Every version is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from fairlane.errors import Conflict
from fairlane.model.group import Subscription
from fairlane.model.moment import Moment
from fairlane.model.names import COMMANDS
from fairlane.model.queue import QueueOptions
from fairlane.store.families.groups import Groups
from fairlane.store.families.query import DatabaseTransaction, Family, QueryRunner, Value, as_json, one, struct
from fairlane.store.families.queues import SPECS, Queues, changed_concurrently, note_changes
from fairlane.store.families.schedules import Schedule, put_values
from fairlane.wire.specs import SpecDetail, SpecHead


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A queue to create or change."""

    name: str
    before: QueueOptions | None
    """Options that the plan is based on. None if the queue did not exist."""
    after: QueueOptions


class SpecChange(msgspec.Struct, frozen=True, kw_only=True):
    """All changes that applying a spec makes."""

    tenant: str
    spec: SpecDetail
    """The new version. The store sets its `applied_at`."""
    queues: tuple[QueueChange, ...] = ()
    queues_gone: tuple[str, ...] = ()
    declared: dict[str, QueueOptions] = {}
    """Options of every queue of the spec, by name."""
    mapped: tuple[str, ...] = ()
    """Queues whose messages become commands. The group of commands is made if it is missing."""
    unmapped: tuple[str, ...] = ()
    """Queues whose messages are no longer commands. Their group of commands is deleted."""
    schedules: tuple[Schedule, ...] = ()
    schedules_gone: tuple[str, ...] = ()


async def no_op_elsewhere() -> None: ...


class Specs(Family):
    def __init__(self, runner: QueryRunner, queues: Queues, groups: Groups) -> None:
        super().__init__(runner)
        self._queues = queues
        self._groups = groups

    async def apply(
        self, change: SpecChange, *, elsewhere: Callable[[], Awaitable[None]] = no_op_elsewhere
    ) -> SpecDetail:
        """Record the version, then create, change and delete its queues and schedules, in one transaction.

        Returns the version as stored. A new queue gets labels from its name, an existing one keeps its labels. The
        version of the catalogue rises for each queue, and once more for SPECS.

        Raises Conflict if the version is taken, a queue does not have its options of `before`, or its ordering cannot
        change. `elsewhere` changes queues of other cells, while no other spec of this version can be applied.
        """
        values: dict[str, Value] = {"tenant": change.tenant, **msgspec.structs.asdict(change.spec)}
        values["document"] = bytes(change.spec.raw).decode()

        async def work(transaction: DatabaseTransaction) -> SpecDetail:
            recorded = await transaction.run("specs.record", **values)
            if not recorded:
                raise Conflict("another spec was applied meanwhile; plan again")
            await elsewhere()
            # Schedules first, because a schedule that fires locks its own row before those of queues.
            for schedule in change.schedules:
                await transaction.run("schedules.put", **put_values(schedule))
            for name in change.schedules_gone:
                await transaction.run("schedules.delete", tenant=change.tenant, name=name)
            await note_changes(transaction, [*await self._declare(transaction, change), SPECS])
            return msgspec.structs.replace(change.spec, applied_at=Moment(recorded[0][0]))

        applied = await self._runner.transact(work)
        if change.queues_gone:
            await self._queues.purge()
        return applied

    async def declare(self, change: SpecChange) -> None:
        """Create, change and delete the queues of a spec, in one transaction, without a version or schedules.

        Raises Conflict like `apply`.
        """

        async def work(transaction: DatabaseTransaction) -> None:
            await note_changes(transaction, await self._declare(transaction, change))

        await self._runner.transact(work)
        if change.queues_gone:
            await self._queues.purge()

    async def _declare(self, transaction: DatabaseTransaction, change: SpecChange) -> list[int]:
        """Change the queues of a spec. Returns the ids of those that changed."""
        names, options = [*change.declared], [*map(as_json, change.declared.values())]
        declared: dict[str, Value] = {"names": names, "options": options}
        declared["mapped"] = [name in change.mapped for name in names]
        await transaction.run("specs.declare", tenant=change.tenant, app=change.spec.app, **declared)
        ids = await self._queues.declare(transaction, change)
        for name in change.mapped:
            if name not in ids:
                raise changed_concurrently(name)
            await self._groups.subscribe_in(transaction, ids[name], COMMANDS, Subscription())
        for name in change.unmapped:
            if name in ids:
                await self._groups.end(transaction, ids[name], COMMANDS)
        return [*ids.values()]

    async def in_force(self, tenant: str) -> list[SpecDetail]:
        """Return the latest version of each app, by name."""
        return [struct(SpecDetail, row) for row in await self._runner.read("specs.in_force", tenant=tenant)]

    async def heads(self) -> dict[str, set[int]]:
        """Return the ids of the versions in force, by tenant."""
        found: dict[str, set[int]] = {}
        for tenant, version in await self._runner.read("specs.heads"):
            found.setdefault(tenant, set()).add(version)
        return found

    async def get(self, tenant: str, version: int) -> SpecDetail | None:
        return one(SpecDetail, await self._runner.read("specs.get", tenant=tenant, version=version))

    async def versions(
        self, tenant: str, *, apps: Sequence[str] | None = None, before: int | None = None, limit: int = 100
    ) -> list[SpecHead]:
        """Return versions of the given apps or of all, newest first, without their texts.

        `before` is the last version that the caller has seen.
        """
        rows = await self._runner.read("specs.versions", tenant=tenant, apps=apps, before=before, limit=limit)
        return [struct(SpecHead, row) for row in rows]
