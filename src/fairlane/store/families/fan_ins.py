"""Fan-ins: messages pushed together, and a callback message that is pushed once after the ends of all of them.

The parts are stored in the transaction that pushes their messages. The end of a part is read from its lane, where every
ack, dead letter, cancellation and deletion leaves it, so that these cost nothing more for messages without a fan-in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from fairlane.errors import AlreadyApplied, Conflict
from fairlane.model.fan_in import Callback
from fairlane.model.ids import PartitionId
from fairlane.model.queue import Queue
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, ScheduledSlice, Slice
from fairlane.store.families.query import DatabaseTransaction, Family, Row, Value, struct
from fairlane.store.families.unique_keys import NewUnique, check_free, keep

PART_RESULT_BYTES_MAX = 16 * 1024
"""Size of the largest result of a part that its fan-in keeps."""
_NOWHERE = PartitionId(0, 0)
"""Partition id for sealing callbacks, which belong to no partition yet."""
_callback = msgspec.json.Decoder(Callback).decode


class NewFanIn(msgspec.Struct, frozen=True, kw_only=True):
    """A fan-in to store. `queue` is the queue of its callback."""

    tenant: str
    id: str
    group: str
    total: int
    callback: Callback
    queue: Queue


class NewPart(NamedTuple):
    """A part to store, by the position of its message."""

    part: int
    partition: PartitionId
    position: int
    queue: str
    transaction_id: str


class StoredPart(NamedTuple):
    """A part as stored. `status` is None while it is open."""

    part: int
    queue: str
    partition: str
    partition_id: PartitionId
    position: int
    transaction_id: str
    status: str | None
    error: str | None
    ended_at: int | None
    result: bytes | None


class StoredFanIn(msgspec.Struct, frozen=True, kw_only=True):
    """A fan-in as stored, with the numbers of parts that completed and that ended otherwise."""

    id: str
    queue: str
    group: str
    total: int
    created_at: int
    ended_at: int | None
    error: str | None
    callback: bytes
    completed: int
    failed: int


Key = tuple[str, str]
"""Tenant and id of a fan-in."""
PartsOf = Callable[[Sequence[PushResult]], list[list[NewPart]]]


class FanIns(Family):
    async def commit(
        self,
        made: Sequence[NewFanIn],
        parts_of: PartsOf,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        scheduled: Sequence[ScheduledSlice] = (),
        *,
        unique: Sequence[NewUnique] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Run `Messages.transact` and store fan-ins in the same transaction. `unique` is as in `UniqueKeys.commit`.

        `parts_of` returns the parts of each, given the results of the slices. Storing a fan-in again is a no-op.
        Raises AlreadyApplied if one exists and slices would be stored, because its parts were stored before.
        """
        callbacks = [await self._sealed(one) for one in made]

        async def begin(transaction: DatabaseTransaction) -> None:
            await check_free(transaction, unique)

        async def also(transaction: DatabaseTransaction, pushed: Sequence[PushResult]) -> None:
            await keep(transaction, unique, [*slices, *(part.slice for part in scheduled)], pushed)
            for fan_in, callback, parts in zip(made, callbacks, parts_of(pushed[: len(slices)]), strict=True):
                fields: dict[str, Value] = {"tenant": fan_in.tenant, "id": fan_in.id, "group_name": fan_in.group}
                stored: dict[str, Value] = {"total": fan_in.total, "queue": fan_in.queue.name, "callback": callback}
                if not await transaction.run("fan_ins.add", **fields, **stored):
                    if pushed:
                        raise AlreadyApplied(f"rolled back: fan-in {fan_in.id!r:.80} exists", index=0)
                elif parts:
                    await transaction.run("fan_ins.add_parts", **fields, **_columns(parts))

        return await self._runner.transact_messages(acks, slices, begin=begin, also=also, scheduled=scheduled)

    async def _sealed(self, made: NewFanIn) -> bytes:
        data, codec, queue = msgspec.json.encode(made.callback), self._runner.codec, made.queue
        if not await codec.seals(queue.id, queue.options):
            return data
        return await codec.seal(_NOWHERE, data, f"fan-in {made.id}", queue_id=queue.id)

    async def callback(self, fan_in: StoredFanIn) -> Callback:
        """Return the callback of a fan-in. Raises SealError if this broker lacks the key that sealed it."""
        return _callback(await self._runner.codec.open(_NOWHERE, fan_in.callback, f"fan-in {fan_in.id}"))

    async def get(self, tenant: str, id: str) -> StoredFanIn | None:
        found = await self._runner.read("fan_ins.get", tenant=tenant, id=id)
        return _fan_in(found[0]) if found else None

    async def newest(self, tenant: str, *, limit: int) -> list[StoredFanIn]:
        """Return the tenant's fan-ins, newest first if the ids are UUIDv7."""
        return [_fan_in(row) for row in await self._runner.read("fan_ins.newest", tenant=tenant, limit=limit)]

    async def parts(self, tenant: str, id: str, *, first: int = 0, limit: int) -> list[StoredPart]:
        """Return parts in their order, with the status that each has now, from the part `first` on."""
        found = await self._runner.read("fan_ins.parts_of", tenant=tenant, id=id, first=first, limit=limit)
        return [struct(StoredPart, row) for row in found]

    async def result(self, part: StoredPart, *, sealing: bool) -> bytes | None:
        """Return the result of a completed part in clear, for a message that is sealed again if `sealing`.

        None if it has none. Empty if it is too large to keep, or sealed and the message is not.
        """
        if part.result is None:
            return None
        stored = bytes(part.result)
        clear = await self._runner.codec.open(part.partition_id, stored, f"result {part.position}")
        return clear if sealing or clear is stored else b""

    async def settle(self, partitions: Sequence[PartitionId] | None, *, limit: int) -> list[str]:
        """Note the ends of parts in these partitions, or in all, and return the id of the fan-in of each."""
        sizes: dict[str, Value] = {"limit": limit, "bytes": PART_RESULT_BYTES_MAX}
        if partitions is None:
            rows = await self._runner.write("fan_ins.settle_all", **sizes)
        else:
            ids = [partition.id for partition in partitions]
            rows = await self._runner.write("fan_ins.settle", partition_ids=ids, **sizes)
        return [id for (id,) in rows]

    async def open_queues(self) -> set[int]:
        """Return the ids of queues with open parts of any tenant, and 0 if any fan-in waits for its callback."""
        return {id for (id,) in await self._runner.read("fan_ins.open_queues")}

    async def ready(self, ids: Sequence[str] | None, *, limit: int) -> list[Key]:
        """Return fan-ins whose parts have all ended and whose callback is not pushed, among these ids or all."""
        if ids is None:
            rows = await self._runner.read("fan_ins.all_ready", limit=limit)
        else:
            rows = await self._runner.read("fan_ins.ready", ids=list(ids), limit=limit)
        return [(tenant, id) for tenant, id in rows]

    async def end(
        self, key: Key, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Run `Messages.transact` and end the fan-in in the same transaction. Raises Conflict if it has ended."""
        tenant, id = key

        async def begin(transaction: DatabaseTransaction) -> None:
            if not await transaction.run("fan_ins.end", tenant=tenant, id=id):
                raise Conflict(f"fan-in {id!r:.80} has ended")

        return await self._runner.transact_messages(acks, slices, begin=begin)

    async def refuse(self, key: Key, error: str) -> None:
        """Note why the callback could not be pushed."""
        tenant, id = key
        await self._runner.write("fan_ins.refuse", tenant=tenant, id=id, error=error)

    async def delete(self, tenant: str, id: str) -> bool:
        """Delete the fan-in. Its callback is not pushed any more. Returns False if it does not exist."""

        async def work(transaction: DatabaseTransaction) -> bool:
            found = bool(await transaction.run("fan_ins.delete", tenant=tenant, id=id))
            await transaction.run("fan_ins.delete_parts", tenant=tenant, id=id)
            return found

        return await self._runner.transact(work)

    async def forget(self, *, seconds: int, limit: int) -> int:
        """Delete fan-ins that ended so long ago, and return their number."""
        old = await self._runner.read("fan_ins.old", seconds=seconds, limit=limit)
        for tenant, id in old:
            await self.delete(tenant, id)
        return len(old)


def _columns(parts: Sequence[NewPart]) -> dict[str, Value]:
    return {
        "parts": [one.part for one in parts],
        "partition_ids": [one.partition.id for one in parts],
        "positions": [one.position for one in parts],
        "queues": [one.queue for one in parts],
        "transaction_ids": [one.transaction_id for one in parts],
    }


def _fan_in(row: Row) -> StoredFanIn:
    return StoredFanIn(**dict(zip(StoredFanIn.__struct_fields__, row, strict=True)))
