"""Unique messages: while one of them waits or runs, others with its key are not stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fairlane.errors import Conflict
from fairlane.model.ids import PartitionId, id_key
from fairlane.model.unique import Unique
from fairlane.store.contract.values import AckResult, Added, LaneAck, PushResult, ScheduledSlice, Slice, Stored
from fairlane.store.families.browse import MessageReader
from fairlane.store.families.query import (
    DatabaseTransaction,
    Family,
    QueryRunner,
    Row,
    Value,
)
from fairlane.store.families.scheduled import identity

KEEP_DUE_SECONDS: Final = 7 * 24 * 3600
"""Time after which the key of a message that was due is forgotten, if no push has looked it up since."""


class UniqueKey(NamedTuple):
    """A key of unique messages. `hash` stands for the key of the producer, or for type and payload."""

    queue_id: int
    hash: str


class NewUnique(NamedTuple):
    """A unique message to store."""

    key: UniqueKey
    unique: Unique
    partition: PartitionId
    transaction_id: str
    message_id: str


class Holder(NamedTuple):
    """A stored message that no group has finished."""

    key: UniqueKey
    partition: PartitionId
    position: int | None
    """Position, or None while it is scheduled."""
    transaction_id: str
    message_id: str
    due_at: int | None
    running: bool
    """True if a consumer of some group holds it."""

    def excludes(self, unique: Unique) -> bool:
        """Return True if another message with the key is not stored now."""
        return unique == "while_running" or not self.running


class KeyTaken(Conflict):
    """A message with the key was stored after the caller checked. Nothing was applied."""


class UniqueKeys(Family):
    def __init__(self, runner: QueryRunner, messages: MessageReader) -> None:
        super().__init__(runner)
        self._messages = messages

    async def holders(self, keys: Sequence[UniqueKey]) -> dict[UniqueKey, Holder]:
        """Return the message of each key that no group has finished."""
        found = {}
        for holder in map(_holder, await self._runner.read("unique_keys.open", **_key_columns(keys))):
            placed = holder if holder.position is not None else await self._placed(holder)
            if placed is not None:
                found[placed.key] = placed
        if found:
            # A synchronous standby may not have what a read shows. The commit of a lock waits for it.
            await self._runner.transact(lambda transaction: _lock(transaction, list(found)))
        return found

    async def _placed(self, holder: Holder) -> Holder | None:
        """Return a message that was scheduled, with its present place. None if it was cancelled or is finished."""
        key, transaction_id = holder.key, holder.transaction_id
        reads = self._runner.reads
        if await reads.is_scheduled(*identity(holder.partition, transaction_id)):
            return holder
        # It leaves the schedule and gets its position in one transaction, so this order finds it.
        position = await self._messages.find(holder.partition, transaction_id)
        which: dict[str, Value] = {"queue_id": key.queue_id, "key": key.hash, "transaction_id": transaction_id}
        if position is None:
            await self._runner.write("unique_keys.free", **which)
            return None
        await self._runner.write("unique_keys.place", position=position, **which)
        rows = await self._runner.read("unique_keys.open", **_key_columns([key]))
        return _holder(rows[0]) if rows else None

    async def commit(
        self,
        made: Sequence[NewUnique],
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        scheduled: Sequence[ScheduledSlice] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Run `Messages.transact` with slices that contain the unique messages `made`.

        Raises KeyTaken if a message excludes one of them.
        """

        async def begin(transaction: DatabaseTransaction) -> None:
            await check_free(transaction, made)

        async def also(transaction: DatabaseTransaction, pushed: Sequence[PushResult]) -> None:
            await keep(transaction, made, [*slices, *(part.slice for part in scheduled)], pushed)

        return await self._runner.transact_messages(acks, slices, begin=begin, also=also, scheduled=scheduled)


async def _lock(transaction: DatabaseTransaction, keys: Sequence[UniqueKey]) -> None:
    await transaction.lock("unique_keys.lock_rows", **_key_columns(keys))


async def check_free(transaction: DatabaseTransaction, made: Sequence[NewUnique]) -> None:
    """Lock the keys of unique messages, before any other lock. Raises KeyTaken if a message excludes one of them."""
    if not made:
        return
    keys = {one.key: one.unique for one in made}
    await transaction.lock("unique_keys.lock", locks=sorted({id_key(f"unique {id} {hash}") for id, hash in keys}))
    for holder in map(_holder, await transaction.run("unique_keys.open", **_key_columns(list(keys)))):
        if holder.position is None or holder.excludes(keys[holder.key]):
            raise KeyTaken("another message with this unique key was pushed meanwhile; try again")


async def keep(
    transaction: DatabaseTransaction, made: Sequence[NewUnique], slices: Sequence[Slice], pushed: Sequence[PushResult]
) -> None:
    """Store the places of unique messages. `slices` were pushed or scheduled in this transaction."""
    if not made:
        return
    places: dict[tuple[PartitionId, str], tuple[int | None, int | None]] = {}
    for part, result in zip(slices, pushed, strict=True):
        for index, transaction_id in enumerate(part.transaction_ids):
            if isinstance(result, Stored):
                places[part.partition, transaction_id] = result.first + index, None
            elif isinstance(result, Added):
                places[part.partition, transaction_id] = None, result.due_at[index]
    stored = [(one, *places[one.partition, one.transaction_id]) for one in made]
    ids = [one.partition.id for one, _, _ in stored]
    await transaction.run("unique_keys.forget", partition_ids=sorted(set(ids)), seconds=KEEP_DUE_SECONDS)
    await transaction.run(
        "unique_keys.keep",
        **_key_columns([one.key for one, _, _ in stored]),
        partition_ids=ids,
        positions=[position for _, position, _ in stored],
        due_at=[due_at for _, _, due_at in stored],
        transaction_ids=[one.transaction_id for one, _, _ in stored],
        message_ids=[one.message_id for one, _, _ in stored],
    )


def _key_columns(keys: Sequence[UniqueKey]) -> dict[str, Value]:
    return {"queue_ids": [key.queue_id for key in keys], "keys": [key.hash for key in keys]}


def _holder(row: Row) -> Holder:
    queue_id, hash, partition_id, position, transaction_id, message_id, due_at, running = row
    key, partition = UniqueKey(queue_id, hash), PartitionId.of(partition_id)
    return Holder(key, partition, position, transaction_id, message_id, due_at, bool(running))
