"""Consumer groups of a queue, each with a cursor in every partition."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlane.errors import NotFound
from fairlane.model.group import Group, GroupResult, LaneState, Seek, Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.names import COMMANDS
from fairlane.store.contract.values import Roused
from fairlane.store.families.port import Family, Row, Transaction, Value, struct, value
from fairlane.store.families.queues import gone, recount

SEED_PARTITIONS: Final = 5000
"""Cursors made in one transaction: a group over a million partitions must not hold their locks all at once."""


class _Asleep(NamedTuple):
    last: int | None
    """The last partition that was looked at."""
    ids: list[int]
    groups: list[int]
    queues: list[int]


class Groups(Family):
    async def get(self, queue_id: int, name: str) -> Group | None:
        found = await self._port.read("groups.get", queue_id=queue_id, name=name)
        return group_of(found[0]) if found else None

    async def queue_of(self, tenant: str, group_id: int) -> int | None:
        """The queue of a group; None also of another tenant's."""
        found: int | None = value(await self._port.read("groups.owned", tenant=tenant, group_id=group_id))
        return found

    async def list(self, queue_id: int) -> List[Group]:
        return [group_of(row) for row in await self._port.read("groups.list", queue_id=queue_id)]

    async def everywhere(self, tenant: str, name: str) -> List[Group]:
        """The groups of this name of all queues of a tenant, in no order."""
        return [group_of(row) for row in await self._port.read("groups.everywhere", tenant=tenant, name=name)]

    async def subscribe(self, queue_id: int, name: str, subscription: Subscription) -> Group:
        """The group; if it is new, begun as the subscription says, as of now: `new` starts at the heads of this moment.

        An existing group keeps its first decision, but one that a look made is a consumer's from the first
        subscription on that is none. What a look's group has not finished is no part of the queue's depth while
        another group is, and neither is that of the nameless one where messages become commands. NotFound if the
        queue is gone, and of the group of commands also if no spec in force has a `map_to` for the queue.
        """
        return await self._begin(self._port.write, queue_id, name, subscription)

    async def begin(self, transaction: Transaction, queue_id: int, name: str, subscription: Subscription) -> Group:
        """Subscribe inside a transaction."""
        return await self._begin(transaction.run, queue_id, name, subscription)

    async def _begin(
        self, run: Callable[..., Awaitable[List[Row]]], queue_id: int, name: str, subscription: Subscription
    ) -> Group:
        begun: dict[str, Value] = {"mode": subscription.mode, "from_at": subscription.start}
        begun |= {"conflation": subscription.conflation, "look": subscription.look, "limit": SEED_PARTITIONS}
        found = await run("groups.subscribe", queue_id=queue_id, name=name, **begun)
        if found:
            return group_of(found[0])
        if name == COMMANDS:
            raise NotFound(f"no spec in force maps the messages of this queue to a command: it has no group {name!r}")
        raise gone(queue_id)

    async def _weigh(self, transaction: Transaction, queue_id: int, limit: int) -> None:
        """Which groups count, and with it the depth. The caller holds the queue's row."""
        await transaction.run("groups.weigh", queue_id=queue_id)
        if limit:
            await recount(self._port, transaction, queue_id)

    async def seed(self, group_id: int) -> bool:
        """Make the next bounded number of missing cursors of a new group; False when none is missing."""

        async def work(transaction: Transaction) -> bool:
            queue_id = value(await transaction.run("groups.queue_of", group_id=group_id))
            limit = value(await transaction.run("queues.lock_by_id", queue_id=queue_id))
            more = bool(value(await transaction.run("groups.seed", group_id=group_id, limit=SEED_PARTITIONS)))
            if limit:
                await recount(self._port, transaction, queue_id)
            return more

        return await self._port.transact(work)

    async def lanes(
        self, group_id: int, *, partition: PartitionId | None = None, after: str = "", limit: int = 1000
    ) -> List[LaneState]:
        """The group's view of its partitions, by name after `after`, or of one."""
        queue_id = await self._queue_of(group_id)
        where: dict[str, Value] = {"group_id": group_id, "queue_id": queue_id, "shard": self._shard_of(queue_id)}
        if partition is not None:
            rows = await self._port.read("groups.lane", partition_id=partition.id, **where)
        else:
            rows = await self._port.read("groups.lanes", after=after, limit=limit, **where)
        return [struct(LaneState, row) for row in rows]

    async def urgent(self, group_id: int, *, limit: int) -> List[LaneState]:
        """The group's view of partitions that it has not finished: those that are blocked or parked, as far as a pop
        has met them, then by how long they are ready. Only these are looked at, whatever the number of partitions."""
        queue_id = await self._queue_of(group_id)
        where: dict[str, Value] = {"group_id": group_id, "queue_id": queue_id, "shard": self._shard_of(queue_id)}
        return [struct(LaneState, row) for row in await self._port.read("groups.urgent", limit=limit, **where)]

    async def seek(self, group_id: int, seek: Seek, *, partition: PartitionId | None = None) -> int:
        """Move the cursor of every partition, or of one, and end its lease; how many moved.

        To a time: the first message created at or after it. A position is clamped to what is retained. Attempts are
        forgotten."""
        queue_id = await self._queue_of(group_id)
        target: dict[str, Value] = {
            "to": seek.to,
            "at": seek.target if seek.to == "time" else None,
            "position": seek.target,
        }
        target |= {"queue_id": queue_id, "group_id": group_id, "partition_id": partition.id if partition else 0}

        async def work(transaction: Transaction) -> int:
            limit = value(await transaction.run("queues.lock_by_id", queue_id=queue_id))
            moved = 0
            for shard in self._port.shards if partition is None else [partition.shard]:
                moved += value(await transaction.run("groups.seek", shard=shard, **target)) or 0
            if limit:
                await recount(self._port, transaction, queue_id)
            return moved

        return await self._port.transact(work) if queue_id else 0

    async def preview_seek(self, group_id: int, seek: Seek, *, limit: int) -> tuple[int, int, int]:
        """Of up to `limit` partitions: how many there are, how many finished messages a seek would bring again, and how
        many unfinished ones it would skip."""
        queue_id = await self._queue_of(group_id)
        target: dict[str, Value] = {
            "to": seek.to,
            "at": seek.target if seek.to == "time" else None,
            "position": seek.target,
        }
        partitions = again = skipped = 0
        for shard in self._port.shards if queue_id else ():
            where = {"shard": shard, "queue_id": queue_id, "group_id": group_id, "limit": limit - partitions}
            [[many, back, ahead]] = await self._port.read("groups.preview_seek", **where, **target) or [[0, 0, 0]]
            partitions, again, skipped = partitions + many, again + back, skipped + ahead
        return partitions, again, skipped

    async def delete(self, group_id: int, *, keep_subscription: bool = False) -> int:
        """Forget the group, its cursors and its dead letters; how many cursors there were.

        With `keep_subscription` the group stays, and begins anew where its subscription says: `new` at the time of
        its first pop."""
        queue_id = await self._queue_of(group_id)

        async def work(transaction: Transaction) -> int:
            return await self._end(
                transaction, queue_id, group_id, "groups.begin_anew" if keep_subscription else "groups.delete"
            )

        return await self._port.transact(work) if queue_id else 0

    async def end(self, transaction: Transaction, queue_id: int, name: str) -> None:
        """Delete the group of this name, if there is one, inside a transaction."""
        for row in await transaction.run("groups.get", queue_id=queue_id, name=name):
            await self._end(transaction, queue_id, group_of(row).id, "groups.delete")

    async def _end(self, transaction: Transaction, queue_id: int, group_id: int, statement: str) -> int:
        limit = value(await transaction.run("queues.lock_by_id", queue_id=queue_id))
        await transaction.run(statement, group_id=group_id, shard=self._port.shards[0])
        deleted = 0
        for shard in self._port.shards:
            where: dict[str, Value] = {"shard": shard, "queue_id": queue_id, "group_id": group_id}
            deleted += value(await transaction.run("groups.forget", **where))
        await self._weigh(transaction, queue_id, limit)
        return deleted

    async def resubscribe(self, group_id: int, subscription: Subscription) -> bool:
        """Change where the group begins in partitions that still lack its cursor; False if the group is gone."""
        values: dict[str, Value] = {"mode": subscription.mode, "from_at": subscription.start}
        return bool(await self._port.write("groups.resubscribe", group_id=group_id, **values))

    async def result(self, group_id: int, partition: PartitionId, position: int) -> bytes | None:
        """What the ack of this message carried as its result."""
        where = {"shard": partition.shard, "partition_id": partition.id, "group_id": group_id, "position": position}
        found: bytes | None = value(await self._port.read("groups.result", **where))
        return found and await self._port.codec.open(partition, found, f"result {position}")

    async def results(self, partition: PartitionId, position: int) -> List[GroupResult]:
        """What acks of this message carried, by the name of the group."""
        where = {"shard": partition.shard, "partition_id": partition.id, "position": position}
        found = [struct(GroupResult, row) for row in await self._port.read("groups.results", **where)]
        open = self._port.codec.open
        return [replace(one, result=await open(partition, one.result, f"result {position}")) for one in found]

    async def rouse(self, after: PartitionId | None, *, limit: int) -> Roused:
        """Of up to `limit` partitions behind `after`, of all queues, wake the lanes that sleep though they hold
        messages to read, or are stopped though nobody paused or parked them and their message has attempts left. There
        are none while every push wakes what it fills and every resume what it frees; beneath a wake that was missed
        this makes it late instead of lost. A lane that is woken for nothing goes back to sleep at the next pop.

        Also correct lanes that were leased, failed or made ready while the clock was ahead: they would sleep until the
        clock gets there. A lease then ends as many seconds from now as it had left when the lane was leased last."""
        shard, id = after or (self._port.shards[0], 0)
        [row] = await self._port.read("groups.asleep", shard=shard, after=id, limit=limit)
        found = struct(_Asleep, row)
        if found.ids:
            await self._port.write("groups.rouse", shard=shard, ids=found.ids, groups=found.groups)
        if found.last is not None:
            return Roused(dict(Counter(found.queues)), PartitionId(shard, found.last))
        next_shards = [other for other in self._port.shards if other > shard]
        return Roused({}, PartitionId(next_shards[0], 0) if next_shards else None)

    async def next_ready_at(self, group_id: int) -> int | None:
        """When the earliest lane of the group is ready (the past if one is now); None while none has anything to
        read."""
        found = await self._read_all("groups.next_ready", group_id=group_id)
        return min((at for (at,) in found if at is not None), default=None)

    async def _queue_of(self, group_id: int) -> int:
        """0 if there is no such group."""
        return value(await self._port.read("groups.queue_of", group_id=group_id)) or 0


def group_of(row: Row) -> Group:
    id, queue_id, name, *subscription, created_at, seeding = row
    begun = struct(Subscription, subscription)
    return Group(id=id, queue_id=queue_id, name=name, subscription=begun, created_at=created_at, seeding=bool(seeding))
