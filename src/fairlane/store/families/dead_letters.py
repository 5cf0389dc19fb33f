"""Dead letters, messages that a group gave up on.

There is one per partition, group and position. If the message fails again after a seek, a new one replaces it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

import msgspec

from fairlane.errors import LaneLocked, LaneWaiting, NotFound, QueueElsewhere, QueueFull, QuotaReached, SealError
from fairlane.model.idempotency import replayed
from fairlane.model.ids import PartitionId, known_partition, uuid7
from fairlane.model.operation import push_payload
from fairlane.model.queue import Queue, QueueOptions
from fairlane.model.segment import pack, unpack
from fairlane.store.codec import Codec
from fairlane.store.contract.failures import StoredLetter
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import Appended, DeadFilter, Full, Gone, OperationsAhead, PushResult, Slice, Stored
from fairlane.store.families.query import DatabaseTransaction, Family, QueryRunner, Row, Value, struct, value
from fairlane.store.families.queues import Queues
from fairlane.store.forwarding import AGAIN_SECONDS, Forwarding, TargetQueues, prepare
from fairlane.wire.dead_letters import DeadLetterError

_ID = re.compile(r"(\d{1,3}-\d{1,18})-(\d{1,18})-(\d{1,18})", re.ASCII)
COUNTED_MAX = 100_000
"""Dead letters of a queue that are counted by error. Bounds the time of the count."""


class DeadLetters(Family):
    def __init__(self, runner: QueryRunner, queues: Queues) -> None:
        super().__init__(runner)
        self.targets: TargetQueues = queues
        """Queues that letters are forwarded to."""

    async def page(
        self, queue_id: int, where: DeadFilter, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> list[StoredLetter]:
        """Return a page of dead letters, newest failure first. `before` is (failed_at, id) of the last one seen."""
        at, id = before or (None, None)
        wanted = _values(queue_id, where) | {"before_at": at, "before_id": id, "limit": limit}
        found = [_letter(row) for row in await self._runner.read("dead_letters.page", **wanted)]
        return await self._runner.codec.open_letters(found)

    async def get(self, queue_id: int, id: str) -> StoredLetter | None:
        if (match := _ID.fullmatch(id)) is None or (partition := known_partition(match[1])) is None:
            return None
        key: dict[str, Value] = {"partition_id": partition.id, "group_id": int(match[2]), "position": int(match[3])}
        rows = await self._runner.read("dead_letters.get", queue_id=queue_id, **key)
        found = await self._runner.codec.open_letters([_letter(row) for row in rows])
        return found[0] if found else None

    async def count(self, queue_id: int, where: DeadFilter) -> int:
        return value(await self._runner.read("dead_letters.count", **_values(queue_id, where))) or 0

    async def queues(self, tenant: str, *, since: int | None = None) -> set[int]:
        """Return the ids of queues that have dead letters, or have any that failed at or after `since`."""
        return {id for (id,) in await self._runner.read("dead_letters.queues", tenant=tenant, since=since)}

    async def errors(self, queue: Queue, where: DeadFilter, *, limit: int) -> tuple[list[DeadLetterError], bool]:
        """Count dead letters by group and error, the most frequent first.

        Counts only the latest COUNTED_MAX. The flag is True if that was all of them.
        """
        wanted = _values(queue.id, where) | {"limit": limit, "counted": COUNTED_MAX}
        rows = await self._runner.read("dead_letters.errors", **wanted)
        found = [struct(DeadLetterError, (queue.name, *row)) for row in rows]
        return found, sum(one.count for one in found) < COUNTED_MAX

    async def replay(
        self, queue_id: int, where: DeadFilter, *, payload: bytes | None = None, limit: int = 1000
    ) -> list[tuple[str, str]]:
        """Append matching messages that were not replayed yet to their partitions, oldest failure first.

        Returns the dead letter id and the new message id of each. The `replay-of` header of a new message names the
        first transactionId. `payload` replaces the payload of all of them.

        The dead letters are marked in the same transaction, so a second call replays nothing again. In a partition with
        open operations the messages become an operation. Raises LaneWaiting if that queue is encrypted, and QueueFull
        unless all messages fit.
        """
        if where.replayed:
            return []
        unreplayed = msgspec.structs.replace(where, replayed=False)
        run = partial(self._replay, queue_id=queue_id, where=unreplayed, payload=payload, limit=limit)
        return await self._runner.codec.replay(queue_id, lambda: self._runner.transact(run))

    async def _replay(
        self, transaction: DatabaseTransaction, *, queue_id: int, where: DeadFilter, payload: bytes | None, limit: int
    ) -> list[tuple[str, str]]:
        text = value(await transaction.run("dead_letters.options", queue_id=queue_id))
        if text is None:
            return []
        options = msgspec.json.decode(text, type=QueueOptions)
        rows = await transaction.run("dead_letters.oldest", limit=limit, **_values(queue_id, where))
        letters = [_letter(row) for row in rows]
        slices = {one.partition: Slice(one.partition, queue_id, options, [], [], [], [], []) for one in letters}
        await transaction.hold([*slices.values()])
        free = await _lock_matching(transaction, "dead_letters.still_dead", letters)
        codec = self._runner.codec
        new = {one.id: _append_copy(slices[one.partition], one, codec, payload) for one in letters if one.id in free}
        await self._append(transaction, [part for part in slices.values() if part.fragments])
        keys, some = _columns([one for one in letters if one.id in free])
        await transaction.run("dead_letters.replayed", replayed_as=[new[one.id] for one in some], **keys)
        return [*new.items()]

    async def _append(self, transaction: DatabaseTransaction, slices: Sequence[Slice]) -> None:
        """Append slices to the log. In a partition with open operations, a slice becomes an operation."""
        results: list[PushResult | EnqueueResult] = [*await transaction.push(slices)]
        operations = []
        for part, result in zip(slices, results, strict=True):
            if isinstance(result, OperationsAhead):
                where = {"partition_id": part.partition.id}
                [[tenant, queue, partition]] = await transaction.run("dead_letters.names", **where)
                operations.append(_operation(part, tenant, queue, partition, self._runner.codec))
        results += await transaction.enqueue(operations) if operations else []
        for result in results:
            if isinstance(result, Full):
                # Raising rolls back what the other partitions got.
                raise QueueFull(
                    f"the replay does not fit: {result.depth} of {result.capacity} places are taken",
                    depth=result.depth,
                    capacity=result.capacity,
                )
            if isinstance(result, Gone):
                raise NotFound("the queue of these dead letters does not exist any more")

    async def forward(
        self, *, limit: int = 100, allow: Callable[[str, str], Awaitable[None]] | None = None
    ) -> Appended:
        """Append up to `limit` waiting dead letters to the `dead_letter_queue` of their queues, longest waiting first.

        Serves all tenants, and ignores the `max_size` of the target queue. Concurrent calls append each letter once. A
        letter waits from the transaction that created it. `allow` is called for each tenant and queue first; if it
        raises QuotaReached, the letters keep waiting.
        """
        targets: dict[tuple[str, str | None], list[StoredLetter]] = defaultdict(list)
        rows = await self._runner.read("dead_letters.pending", limit=limit)
        for tenant, target, *row in rows:
            letter = _letter(row)
            if target is None or self._runner.codec.is_trusted(letter):
                targets[tenant, target].append(letter)
            else:
                await _postpone(self._runner.write, [letter], AGAIN_SECONDS)
        appended: dict[int, int] = defaultdict(int)
        # One transaction for each target queue, so that a failure affects only the letters of that queue.
        for (tenant, target), letters in targets.items():
            if target is None:  # its queue names none any more
                await _postpone(self._runner.write, letters, None)
                continue
            try:
                if allow is not None:
                    await allow(tenant, target)
                forwarding = await prepare(tenant, target, letters, self.targets, self._runner.codec)
                many = await self._runner.transact(partial(self._forward, forwarding=forwarding))
            except (NotFound, QuotaReached, SealError, LaneLocked, QueueElsewhere):
                await _postpone(self._runner.write, letters, AGAIN_SECONDS)
                continue
            if many:
                appended[forwarding.queue.id] += many
        return Appended(dict(appended), len(rows))

    async def _forward(self, transaction: DatabaseTransaction, *, forwarding: Forwarding) -> int:
        """Append the letters that still wait and return the number of messages."""
        slices = forwarding.slices()
        await transaction.hold(slices)
        free = await _lock_matching(transaction, "dead_letters.still_pending", forwarding.letters)
        placed = forwarding.fill(slices, free, self._runner.codec)
        filled = [part for part in slices if part.fragments]
        queue_id, limited = forwarding.queue.id, forwarding.queue.options.max_size > 0
        depth = 0
        if limited:
            # A letter may exceed the limit of the target queue. So this transaction makes room first.
            [[depth, _]] = await transaction.run("queues.depth", queue_id=queue_id)
            await transaction.run(
                "queues.set_depth", queue_id=queue_id, depth=-sum(len(part.fragments) for part in filled)
            )
        results = await transaction.push(filled)
        done = [part for part, result in zip(filled, results, strict=True) if isinstance(result, Stored)]
        stored = sum(len(part.fragments) for part in done)
        if limited:
            await transaction.run("queues.set_depth", queue_id=queue_id, depth=depth + stored)
        refused = [part for part in filled if part not in done]
        for some, seconds in ((done, None), (refused, AGAIN_SECONDS)):
            letters = [letter for part in some for letter in placed[part.partition]]
            await _postpone(transaction.run, letters, seconds)
        return stored

    async def purge(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> int:
        """Delete up to `limit` matching dead letters and return their number."""
        rows = await self._runner.read("dead_letters.oldest", limit=limit, **_values(queue_id, where))
        if not rows:
            return 0
        return await self._runner.transact(partial(_purge, letters=[_letter(row) for row in rows]))


async def _postpone(
    run: Callable[..., Awaitable[list[Row]]], letters: Sequence[StoredLetter], seconds: int | None
) -> None:
    """Postpone the forwarding of letters by `seconds`. None means that they are not forwarded."""
    if letters:
        await run("dead_letters.postpone", seconds=seconds, **_columns(letters)[0])


async def _purge(transaction: DatabaseTransaction, *, letters: Sequence[StoredLetter]) -> int:
    """Delete the letters that have not changed since they were read.

    Locks their lanes, as the code that creates dead letters does.
    """
    keys, some = _columns(letters)
    await transaction.hold([], [letter.partition for letter in some])
    await transaction.lock("dead_letters.lock_cursors", **keys)
    failed_at = [letter.failed_at for letter in some]
    return len(await transaction.run("dead_letters.delete", failed_at=failed_at, **keys))


async def _lock_matching(transaction: DatabaseTransaction, statement: str, letters: Sequence[StoredLetter]) -> set[str]:
    """Lock letters and return the ids of those that `statement` selects."""
    rows = await transaction.run(statement, **_columns(letters)[0])
    return {f"{PartitionId.of(id)}-{group_id}-{position}" for id, group_id, position in rows}


def _columns(letters: Sequence[StoredLetter]) -> tuple[dict[str, Value], list[StoredLetter]]:
    """Return the keys of letters as columns, in lock order, and the letters in that order."""
    some = sorted(letters, key=lambda one: (one.partition, one.group_id, one.position))
    return {
        "partition_ids": [one.partition.id for one in some],
        "group_ids": [one.group_id for one in some],
        "positions": [one.position for one in some],
    }, some


def _values(queue_id: int, where: DeadFilter) -> dict[str, Value]:
    partition_id = None if where.partition is None else where.partition.id
    return {"queue_id": queue_id, "partition_id": partition_id, **msgspec.structs.asdict(where)}


def _letter(row: Row) -> StoredLetter:
    return struct(StoredLetter, row)


def _append_copy(part: Slice, letter: StoredLetter, codec: Codec, payload: bytes | None) -> str:
    """Append a copy of a dead letter to a slice, with another payload if given. Returns the id of the new message."""
    clear = codec.open_letter(letter)
    old = unpack(clear, position=letter.position, created_at=letter.message_created_at)
    item, id = replayed(old, letter.queue, letter.partition_name, payload), uuid7()
    part.add(id, codec.replayed(part, pack(id, id, item)))
    return id


def _operation(part: Slice, tenant: str, queue: str, partition: str, codec: Codec) -> NewOperation:
    """Build an operation from the messages of a slice.

    Raises LaneWaiting for sealed messages. They are sealed for their position in the log, and an operation has none.
    """
    if codec.is_prepared(part.queue_id):
        raise LaneWaiting("operations wait in a partition of these dead letters; try again when they are done")
    return NewOperation(
        id=UUID(uuid7()),
        type="PUSH",
        partition=part.partition,
        queue_id=part.queue_id,
        options=part.options,
        tenant=tenant,
        queue=queue,
        partition_name=partition,
        messages=len(part.fragments),
        payload=push_payload(part.fragments, doubt=False),
    )
