"""Dead letters: messages given up on. One per (partition, group, position); failing again after a seek replaces it."""

from __future__ import annotations

import re
from builtins import list as List  # the family has a verb of that name
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

import msgspec

from fairlane.errors import LaneLocked, LaneWaiting, NotFound, QueueFull, QuotaReached, SealError
from fairlane.model.idempotency import replayed
from fairlane.model.ids import uuid7
from fairlane.model.operation import push_payload
from fairlane.model.queue import Queue, QueueOptions
from fairlane.model.segment import pack, unpack
from fairlane.store.codec import Codec
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import (
    Appended,
    DeadFilter,
    Full,
    Gone,
    OperationsAhead,
    PushResult,
    Slice,
    Stored,
    StoredLetter,
)
from fairlane.store.families.port import Family, Port, Row, Transaction, Value, struct, value
from fairlane.store.families.queues import Queues
from fairlane.store.forwarding import AGAIN_SECONDS, Forwarding, prepare
from fairlane.wire.dead_letters import DeadLetterError

_ID = re.compile(r"(\d{1,9})-(\d{1,18})-(\d{1,18})-(\d{1,18})", re.ASCII)
COUNTED_MAX = 100_000
"""Dead letters of a queue that are counted by error: so many take a moment."""


class DeadLetters(Family):
    def __init__(self, port: Port, queues: Queues) -> None:
        super().__init__(port)
        self._queues = queues

    def _shards(self, where: DeadFilter) -> Sequence[int]:
        return self._port.shards if where.partition is None else [where.partition.shard]

    async def list(
        self, queue_id: int, where: DeadFilter, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> List[StoredLetter]:
        """Newest failure first; `before` is (failed_at, id) of the last one seen."""
        at, id = before or (None, None)
        wanted = _values(queue_id, where) | {"before_at": at, "before_id": id, "limit": limit}
        found: List[StoredLetter] = []
        for shard in self._shards(where):
            found += map(_letter, await self._port.read("dead_letters.list", shard=shard, **wanted))
        found.sort(key=lambda letter: (letter.failed_at, letter.id), reverse=True)
        return await self._port.codec.open_letters(found[:limit])

    async def get(self, queue_id: int, id: str) -> StoredLetter | None:
        if (match := _ID.fullmatch(id)) is None:
            return None
        key = dict(zip(("shard", "partition_id", "group_id", "position"), map(int, match.groups()), strict=True))
        rows = await self._port.read("dead_letters.get", queue_id=queue_id, **key)
        found = await self._port.codec.open_letters([_letter(row) for row in rows])
        return found[0] if found else None

    async def count(self, queue_id: int, where: DeadFilter) -> int:
        wanted = _values(queue_id, where)
        counts = [await self._port.read("dead_letters.count", shard=shard, **wanted) for shard in self._shards(where)]
        return sum(value(found) or 0 for found in counts)

    async def queues(self, tenant: str, *, since: int | None = None) -> set[int]:
        """The ids of the queues that have dead letters, or have any since then."""
        return {id for (id,) in await self._read_all("dead_letters.queues", tenant=tenant, since=since)}

    async def errors(self, queue: Queue, where: DeadFilter, *, limit: int) -> tuple[List[DeadLetterError], bool]:
        """Dead letters by group and error, the most frequent first, and whether all of them were counted: of very many
        only the latest are."""
        wanted = _values(queue.id, where) | {"limit": limit, "counted": COUNTED_MAX}
        found: List[DeadLetterError] = []
        for shard in self._shards(where):
            rows = await self._port.read("dead_letters.errors", shard=shard, **wanted)
            found += [struct(DeadLetterError, (queue.name, *row)) for row in rows]
        found.sort(key=lambda one: one.count, reverse=True)
        return found[:limit], sum(one.count for one in found) < COUNTED_MAX

    async def replay(
        self, queue_id: int, where: DeadFilter, *, payload: bytes | None = None, limit: int = 1000
    ) -> List[tuple[str, str]]:
        """Append the messages that match and were not replayed yet to their partitions, oldest failure first, as
        new messages whose `replay-of` header names the first transactionId; (dead letter id, new message id) of each.
        Recorded in the same transaction, so that a second call replays nothing again. QueueFull if they do not all
        fit. Where a partition has open operations, its messages become one; LaneWaiting if the queue is
        encrypted. With a `payload` that is theirs."""
        if where.replayed:
            return []
        unreplayed = msgspec.structs.replace(where, replayed=False)
        run = partial(self._replay, queue_id=queue_id, where=unreplayed, payload=payload, limit=limit)
        return await self._port.codec.replay(queue_id, lambda: self._port.transact(run))

    async def _replay(
        self, transaction: Transaction, *, queue_id: int, where: DeadFilter, payload: bytes | None, limit: int
    ) -> List[tuple[str, str]]:
        text = value(await transaction.run("dead_letters.options", queue_id=queue_id))
        if text is None:
            return []
        options = msgspec.json.decode(text, type=QueueOptions)
        letters: List[StoredLetter] = []
        for shard in self._shards(where):
            wanted = _values(queue_id, where)
            letters += map(_letter, await transaction.run("dead_letters.oldest", shard=shard, limit=limit, **wanted))
        letters = sorted(letters, key=lambda one: (one.failed_at, one.partition, one.position, one.group_id))[:limit]
        slices = {one.partition: Slice(one.partition, queue_id, options, [], [], [], [], []) for one in letters}
        await transaction.hold([*slices.values()])
        free = await _still(transaction, "dead_letters.still_dead", letters)
        codec = self._port.codec
        new = {one.id: _again(slices[one.partition], one, codec, payload) for one in letters if one.id in free}
        await self._append(transaction, [part for part in slices.values() if part.fragments])
        for keys, some in _columns([one for one in letters if one.id in free]):
            await transaction.run("dead_letters.replayed", replayed_as=[new[one.id] for one in some], **keys)
        return [*new.items()]

    async def _append(self, transaction: Transaction, slices: Sequence[Slice]) -> None:
        """Store them; in a partition with open operations, as operations."""
        results: List[PushResult | EnqueueResult] = [*await transaction.push(slices)]
        operations = []
        for part, result in zip(slices, results, strict=True):
            if isinstance(result, OperationsAhead):
                where = {"shard": part.partition.shard, "partition_id": part.partition.id}
                [[tenant, queue, partition]] = await transaction.run("dead_letters.names", **where)
                operations.append(_operation(part, tenant, queue, partition, self._port.codec))
        results += await transaction.enqueue(operations) if operations else []
        for result in results:
            if isinstance(result, Full):
                # Raised, so that what the other partitions got is taken back.
                raise QueueFull(
                    f"the replay does not fit: {result.depth} of {result.capacity} places are taken",
                    depth=result.depth,
                    capacity=result.capacity,
                )
            if isinstance(result, Gone):
                raise NotFound("the queue of these dead letters is not there (any more)")

    async def forward(
        self, *, limit: int = 100, allow: Callable[[str, str], Awaitable[None]] | None = None
    ) -> Appended:
        """Append up to `limit` dead letters that wait for it to the queue that their queue names (`dead_letter_queue`),
        of all tenants, longest waiting first: each once, whoever else forwards at the same time, and beyond that
        queue's `max_size`. A letter waits from the transaction on that gave its message up. `allow` is asked for each
        tenant and queue first; if it raises QuotaReached, the letters wait."""
        targets: dict[tuple[str, str | None], List[StoredLetter]] = defaultdict(list)
        count = 0
        for shard in self._port.shards:
            rows = await self._port.read("dead_letters.pending", shard=shard, limit=limit - count)
            count += len(rows)
            for tenant, target, *row in rows:
                letter = _letter(row)
                if target is None or self._port.codec.believes(letter):
                    targets[tenant, target].append(letter)
                else:
                    await _postpone(self._port.write, [letter], AGAIN_SECONDS)
        appended: dict[int, int] = defaultdict(int)
        # Each queue's letters by themselves: one that cannot take them keeps no other's back.
        for (tenant, target), letters in targets.items():
            if target is None:  # its queue names none any more
                await _postpone(self._port.write, letters, None)
                continue
            try:
                if allow is not None:
                    await allow(tenant, target)
                forwarding = await prepare(tenant, target, letters, self._queues, self._port.codec)
                many = await self._port.transact(partial(self._forward, forwarding=forwarding))
            except (NotFound, QuotaReached, SealError, LaneLocked):
                await _postpone(self._port.write, letters, AGAIN_SECONDS)
                continue
            if many:
                appended[forwarding.queue.id] += many
        return Appended(dict(appended), count)

    async def _forward(self, transaction: Transaction, *, forwarding: Forwarding) -> int:
        """Append those of its letters that still wait; how many messages that were."""
        slices = forwarding.slices()
        await transaction.hold(slices)
        free = await _still(transaction, "dead_letters.still_pending", forwarding.letters)
        placed = forwarding.fill(slices, free, self._port.codec)
        filled = [part for part in slices if part.fragments]
        queue_id, limited = forwarding.queue.id, forwarding.queue.options.max_size > 0
        depth = 0
        if limited:
            # A letter has its place beyond the limit of the queue that it goes to.
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
        """Delete up to `limit` that match; how many."""
        purged = 0
        for shard in self._shards(where):
            wanted = _values(queue_id, where) | {"limit": limit - purged}
            rows = await self._port.read("dead_letters.oldest", shard=shard, **wanted)
            if rows:
                purged += await self._port.transact(partial(_purge, letters=[_letter(row) for row in rows]))
            if purged >= limit:
                break
        return purged


async def _postpone(
    run: Callable[..., Awaitable[List[Row]]], letters: Sequence[StoredLetter], seconds: int | None
) -> None:
    """Let letters wait for so many seconds, or not any more."""
    for keys, _ in _columns(letters):
        await run("dead_letters.postpone", seconds=seconds, **keys)


async def _purge(transaction: Transaction, *, letters: Sequence[StoredLetter]) -> int:
    """Remove those of these letters that are still the same; with their lanes held, as who makes one holds them."""
    purged = 0
    for keys, some in _columns(letters):
        await transaction.hold([], [letter.partition for letter in some])
        await transaction.lock("dead_letters.lock_cursors", **keys)
        failed_at = [letter.failed_at for letter in some]
        purged += len(await transaction.run("dead_letters.delete", failed_at=failed_at, **keys))
    return purged


async def _still(transaction: Transaction, statement: str, letters: Sequence[StoredLetter]) -> set[str]:
    """Lock letters; the ids of those of which the statement holds."""
    rows = [row for keys, _ in _columns(letters) for row in await transaction.run(statement, **keys)]
    return {"-".join(map(str, row)) for row in rows}


def _columns(letters: Sequence[StoredLetter]) -> List[tuple[dict[str, Value], List[StoredLetter]]]:
    """The keys of letters as columns, and the letters in that order; those of each shard by themselves."""
    shards: dict[int, List[StoredLetter]] = defaultdict(list)
    for letter in sorted(letters, key=lambda one: (one.partition, one.group_id, one.position)):
        shards[letter.partition.shard].append(letter)
    return [
        (
            {
                "shard": shard,
                "partition_ids": [one.partition.id for one in some],
                "group_ids": [one.group_id for one in some],
                "positions": [one.position for one in some],
            },
            some,
        )
        for shard, some in shards.items()
    ]


def _values(queue_id: int, where: DeadFilter) -> dict[str, Value]:
    partition_id = None if where.partition is None else where.partition.id
    return {"queue_id": queue_id, "partition_id": partition_id, **msgspec.structs.asdict(where)}


def _letter(row: Row) -> StoredLetter:
    return struct(StoredLetter, row)


def _again(part: Slice, letter: StoredLetter, codec: Codec, payload: bytes | None) -> str:
    """Add a dead letter's message to a slice, as a new message, with another payload if there is one; its id."""
    clear = codec.open_letter(letter)
    old = unpack(clear, position=letter.position, created_at=letter.message_created_at)
    item, id = replayed(old, letter.queue, letter.partition_name, payload), uuid7()
    part.add(id, codec.replayed(part, pack(id, id, item)))
    return id


def _operation(part: Slice, tenant: str, queue: str, partition: str, codec: Codec) -> NewOperation:
    """The messages of a slice as an operation. LaneWaiting for sealed ones, which are sealed for their place in the
    log, and not for the way there."""
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
