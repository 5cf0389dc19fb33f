"""Consumer groups of a queue, each with a cursor in every partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fairlane.errors import NotFound
from fairlane.model.group import Group, GroupResult, LaneState, Seek, Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.names import COMMANDS
from fairlane.store.contract.failures import StoredFailure
from fairlane.store.contract.wakes import RepairedWakes
from fairlane.store.families.dialect import Dialect
from fairlane.store.families.query import DatabaseTransaction, Family, Row, Value, one, struct, value
from fairlane.store.families.queues import no_such_queue, recount

SEED_PARTITIONS: Final = 5000
"""Cursors created in one transaction, so that a group over a million partitions does not lock them all at once."""


class _Asleep(NamedTuple):
    last: int | None
    """Last partition checked."""
    ids: list[int]
    groups: list[int]
    queues: list[int]


class Groups(Family):
    async def get(self, queue_id: int, name: str) -> Group | None:
        found = await self._runner.read("groups.get", queue_id=queue_id, name=name)
        return group_of(found[0]) if found else None

    async def queue_of(self, tenant: str, group_id: int) -> int | None:
        """Return the queue of a group. None if the group belongs to another tenant."""
        found: int | None = value(await self._runner.read("groups.owned", tenant=tenant, group_id=group_id))
        return found

    async def all(self, queue_id: int) -> list[Group]:
        return [group_of(row) for row in await self._runner.read("groups.all", queue_id=queue_id)]

    async def by_name(self, tenant: str, name: str) -> list[Group]:
        """Return the groups of this name in all queues of a tenant, in no order."""
        return [group_of(row) for row in await self._runner.read("groups.by_name", tenant=tenant, name=name)]

    async def subscribe(self, queue_id: int, name: str, subscription: Subscription) -> Group:
        """Return the group, and create it if it does not exist. `new` starts at the heads of this moment.

        An existing group keeps its first subscription. A group created with `look` becomes a consumer's group at the
        first subscription without it.

        Some groups do not count towards the depth of the queue while another group exists: those with `look`, and the
        default group of a queue whose messages become commands.

        Raises NotFound if the queue does not exist. For the group of commands, also raises it if no spec in force has a
        `map_to` for the queue.
        """
        return await self._subscribe(self._runner.writes, queue_id, name, subscription)

    async def subscribe_in(
        self, transaction: DatabaseTransaction, queue_id: int, name: str, subscription: Subscription
    ) -> Group:
        """Like `subscribe`, inside a transaction."""
        return await self._subscribe(transaction.dialect, queue_id, name, subscription)

    async def _subscribe(self, dialect: Dialect, queue_id: int, name: str, subscription: Subscription) -> Group:
        found = await dialect.subscribe(queue_id, name, subscription, SEED_PARTITIONS)
        if found:
            return group_of(found[0])
        if name == COMMANDS:
            raise NotFound(f"no spec in force maps the messages of this queue to a command: it has no group {name!r}")
        raise no_such_queue(queue_id)

    async def _choose_counting(self, transaction: DatabaseTransaction, queue_id: int, limit: int) -> None:
        """Choose the groups that count towards the depth, and recount it. The caller has locked the queue's row."""
        await transaction.run("groups.choose_counting", queue_id=queue_id)
        if limit:
            await recount(transaction, queue_id)

    async def seed(self, group_id: int) -> bool:
        """Create up to SEED_PARTITIONS missing cursors of a new group. Returns False if none are missing."""

        async def work(transaction: DatabaseTransaction) -> bool:
            queue_id = value(await transaction.run("groups.queue_of", group_id=group_id))
            limit = value(await transaction.run("queues.lock_by_id", queue_id=queue_id))
            more = await transaction.dialect.seed_group(group_id, SEED_PARTITIONS)
            if limit:
                await recount(transaction, queue_id)
            return more

        return await self._runner.transact(work)

    async def lanes(
        self, group_id: int, *, partition: PartitionId | None = None, after: str = "", limit: int = 1000
    ) -> list[LaneState]:
        """Return the group's lanes whose partition name is greater than `after`, by name, or that of one partition."""
        queue_id = await self._queue_of(group_id)
        where: dict[str, Value] = {"group_id": group_id, "queue_id": queue_id}
        if partition is not None:
            rows = await self._runner.read("groups.lane", partition_id=partition.id, **where)
        else:
            rows = await self._runner.read("groups.lanes", after=after, limit=limit, **where)
        return [struct(LaneState, row) for row in rows]

    async def urgent(self, group_id: int, *, limit: int) -> list[LaneState]:
        """Return lanes that the group has not finished, blocked and parked ones first, then longest ready.

        Lanes become blocked when a pop reaches them. Reads only the rows that it returns, however many partitions there
        are.
        """
        queue_id = await self._queue_of(group_id)
        where: dict[str, Value] = {"group_id": group_id, "queue_id": queue_id}
        return [struct(LaneState, row) for row in await self._runner.read("groups.urgent", limit=limit, **where)]

    async def seek(self, group_id: int, seek: Seek, *, partition: PartitionId | None = None) -> int:
        """Move the cursor of every partition, or of one, end its lease, and return the number of cursors moved.

        A time selects the first message created at or after it. A position is clamped to the retained range. The
        attempts of the messages are forgotten.
        """
        queue_id = await self._queue_of(group_id)

        async def work(transaction: DatabaseTransaction) -> int:
            limit = value(await transaction.run("queues.lock_by_id", queue_id=queue_id))
            moved = await transaction.dialect.seek(queue_id, group_id, partition.id if partition else 0, seek)
            if limit:
                await recount(transaction, queue_id)
            return moved

        return await self._runner.transact(work) if queue_id else 0

    async def preview_seek(self, group_id: int, seek: Seek, *, limit: int) -> tuple[int, int, int]:
        """Preview a seek over up to `limit` partitions.

        Returns the number of partitions, of finished messages that would be delivered again, and of unfinished messages
        that would be skipped.
        """
        queue_id = await self._queue_of(group_id)
        found = await self._runner.reads.preview_seek(queue_id, group_id, seek, limit)
        [[partitions, again, skipped]] = found or [[0, 0, 0]]
        return partitions, again, skipped

    async def delete(self, group_id: int, *, keep_subscription: bool = False) -> int:
        """Delete the group's cursors and dead letters, then the group, and return the number of cursors.

        With `keep_subscription` the group stays and starts over from its subscription, where `new` means since its
        creation.
        """
        queue_id = await self._queue_of(group_id)

        async def work(transaction: DatabaseTransaction) -> int:
            return await self._end(
                transaction, queue_id, group_id, "groups.begin_anew" if keep_subscription else "groups.delete"
            )

        return await self._runner.transact(work) if queue_id else 0

    async def end(self, transaction: DatabaseTransaction, queue_id: int, name: str) -> None:
        """Delete the group of this name, if there is one, inside a transaction."""
        for row in await transaction.run("groups.get", queue_id=queue_id, name=name):
            await self._end(transaction, queue_id, group_of(row).id, "groups.delete")

    async def _end(self, transaction: DatabaseTransaction, queue_id: int, group_id: int, statement: str) -> int:
        limit = value(await transaction.run("queues.lock_by_id", queue_id=queue_id))
        await transaction.run(statement, group_id=group_id)
        deleted: int = value(await transaction.run("groups.forget", queue_id=queue_id, group_id=group_id))
        await self._choose_counting(transaction, queue_id, limit)
        return deleted

    async def resubscribe(self, group_id: int, subscription: Subscription) -> bool:
        """Change where the group starts in partitions that still lack its cursor.

        Returns False if the group does not exist.
        """
        values: dict[str, Value] = {"mode": subscription.mode, "from_at": subscription.start}
        return bool(await self._runner.write("groups.resubscribe", group_id=group_id, **values))

    async def result(self, group_id: int, partition: PartitionId, position: int) -> bytes | None:
        """Return the result that the ack of a message stored."""
        where = {"partition_id": partition.id, "group_id": group_id, "position": position}
        found: bytes | None = value(await self._runner.read("groups.result", **where))
        return found and await self._runner.codec.open(partition, found, f"result {position}")

    async def results(self, partition: PartitionId, position: int) -> list[GroupResult]:
        """Return the results that acks of a message stored, by group name."""
        where = {"partition_id": partition.id, "position": position}
        found = [struct(GroupResult, row) for row in await self._runner.read("groups.results", **where)]
        open = self._runner.codec.open
        return [replace(one, result=await open(partition, one.result, f"result {position}")) for one in found]

    async def failed(self, partition: PartitionId, position: int, group_ids: Sequence[int]) -> StoredFailure | None:
        """Return the failures of a message in the group with the most failed attempts. None if none counts any."""
        where: dict[str, Any] = {"partition_id": partition.id, "position": position, "group_ids": list(group_ids)}
        return one(StoredFailure, await self._runner.read("groups.failed", **where))

    async def repair_wakes(self, after: PartitionId | None, *, limit: int) -> RepairedWakes:
        """Wake lanes, in up to `limit` partitions after `after`, that sleep although they have work.

        A lane has work if it has messages to read, or is stopped although it is neither paused nor parked and its
        message has attempts left. Pushes and resumes wake their lanes themselves. This scan turns a wake-up that they
        missed into a delay. A lane woken for nothing goes back to sleep at the next pop.

        It also corrects lanes that were leased, failed or became ready while the clock was ahead, which would sleep
        until the clock gets there. Their leases keep the time that was left when the lane was last leased.
        """
        [row] = await self._runner.read("groups.asleep", after=after.id if after else 0, limit=limit)
        found = struct(_Asleep, row)
        if found.ids:
            await self._runner.write("groups.repair_wakes", ids=found.ids, groups=found.groups)
        last = None if found.last is None else PartitionId.of(found.last)
        return RepairedWakes(dict(Counter(found.queues)), last)

    async def _queue_of(self, group_id: int) -> int:
        """Return the id of the group's queue. 0 if the group does not exist."""
        return value(await self._runner.read("groups.queue_of", group_id=group_id)) or 0


def group_of(row: Row) -> Group:
    id, queue_id, name, *subscription, created_at, seeding = row
    begun = struct(Subscription, subscription)
    return Group(id=id, queue_id=queue_id, name=name, subscription=begun, created_at=created_at, seeding=bool(seeding))
