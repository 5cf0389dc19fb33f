"""The log and its leases on PostgreSQL: each verb is one function call per shard."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from fairlane.errors import OutcomeUnknown, Unavailable
from fairlane.model.ids import PartitionId, id_key, uuid7_ms
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import RenewOutcome
from fairlane.model.segment import Segment, may_be_traced, traces_of, transaction_ids
from fairlane.store.contract.acks import in_force, only_repeats
from fairlane.store.contract.values import (
    AckResult,
    Gone,
    LaneAck,
    Leased,
    Locked,
    PopCall,
    PopResult,
    PushResult,
    Renewal,
    Slice,
    Stored,
    merged,
    repeats,
)
from fairlane.store.postgres import ack, push
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.locked import Item, LockedRows, Partitioned, Result
from fairlane.store.postgres.pop import Popper
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "messages.sql")
LOCK_PARTITIONS = SQL["lock_partitions"]
_LOCKED = AckResult("locked")


class _LockedPartition(NamedTuple):
    """A partition that is locked and not changed."""

    partition: PartitionId


class _Refused(Exception):
    """The rollback of a transaction whose results were recorded."""


class Messages:
    def __init__(self, database: Database, shards: list[int], saw: Callable[[int], None]) -> None:
        self._database = database
        self._shards = shards
        self._saw = saw
        self._popper = Popper(database, shards, SQL["pop"])
        self.locked = LockedRows(database)

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        async def run(shard: int, part: list[Slice]) -> list[PushResult]:
            return await self.locked.around(part, partial(self._push, shard), Locked())

        if self._database.codec.always or [part for part in slices if part.options.encryption_enabled]:
            slices = await self._database.codec.seal_slices(slices)
        return await by_shard(slices, _partition, run)

    async def _push(self, shard: int, slices: list[Slice]) -> list[PushResult]:
        if any(part.traced and may_be_traced(part.fragments) for part in slices):  # to be found by it from the start
            return await self._database.transact(lambda connection: self.push_shard(connection.fetch, shard, slices))
        return await self.push_shard(self._database.write, shard, slices)

    async def push_shard(self, run: Callable[..., Any], shard: int, slices: list[Slice]) -> list[PushResult]:
        if repeated := repeats(slices):
            firsts = [part for index, part in enumerate(slices) if index not in repeated]
            stored = await self.push_shard(run, shard, firsts)
            return merged(repeated, stored, await self.push_shard(run, shard, [slices[index] for index in repeated]))
        limited = sorted({part.queue_id for part in slices if part.options.max_size > 0})
        texts = any(-1 in part.id_times for part in slices)
        while True:
            arguments = push.arguments(shard, slices, limited, texts=texts, now=self._database.time())
            rows: list[asyncpg.Record] = await run(SQL["push"], *arguments)
            if texts or not push.wants_texts(rows):
                break
            texts = True
        results = push.results(rows, slices)
        now = push.clock_of(rows)
        if now is not None:
            self._saw(now)
            await self._note_traces(run, shard, slices, results)
        return results

    async def _note_traces(
        self, run: Callable[..., Any], shard: int, slices: list[Slice], results: list[PushResult]
    ) -> None:
        """`run` belongs to a transaction whenever there is anything to note."""
        noted = [
            (UUID(trace_id), part.partition.id, result.first + index)
            for part, result in zip(slices, results, strict=True)
            if part.traced and isinstance(result, Stored)
            for index, trace_id in traces_of(part.fragments)
        ]
        if noted:
            await run(SQL["add_traced"], shard, *map(list, zip(*noted, strict=True)))

    async def pop(self, call: PopCall) -> PopResult:
        result = await self._popper(call)
        # A sealed message ends with a quote, and of others only those whose payload is a string.
        quoted = [1 for lanes in result.lanes for lane in lanes for one in lane.segments if one.body[-1:] == b'"']
        if quoted or self._database.codec.always:
            await self._database.codec.open_lanes(result)
        return result

    async def expire(self, queue_id: int, group_id: int) -> int:
        return await self._popper.expire(queue_id, group_id)

    async def expiring(self) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in await self._database.read(SQL["expiring"])]

    async def ack(self, acks: Sequence[LaneAck]) -> list[AckResult]:
        async def run(shard: int, part: list[LaneAck]) -> list[AckResult]:
            async def around(some: list[LaneAck]) -> list[AckResult]:
                return await self.locked.around(some, partial(self.ack_shard, self._database.write, shard), _LOCKED)

            # Two calls, of which the second may meet a locked lane when the first is applied.
            return await _by_ordering(part, around, around)

        if [ack for ack in acks if ack.results]:
            acks = await self._database.codec.seal_acks(acks)
        return await by_shard(acks, _lane, run)

    async def ack_shard(self, run: Callable[..., Any], shard: int, part: Sequence[LaneAck]) -> list[AckResult]:
        async def ordered(some: list[LaneAck]) -> list[AckResult]:
            return ack.results(await run(SQL["ack"], *ack.arguments(shard, some, self._database.time())), len(some))

        async def unordered(some: list[LaneAck]) -> list[AckResult]:
            arguments = ack.unordered_arguments(shard, some, self._database.time())
            return ack.unordered_results(await run(SQL["ack_unordered"], *arguments), len(some))

        return await _by_ordering(part, ordered, unordered)

    async def renew(self, renewals: Sequence[Renewal]) -> list[RenewOutcome]:
        renewed = [0] * len(renewals)
        ends: list[list[int]] = [[] for _ in renewals]
        for shard in self._shards:
            rows = await self._database.write(
                SQL["renew"],
                shard,
                [renewal.lease.group_id for renewal in renewals],
                [renewal.lease.token for renewal in renewals],
                [renewal.seconds for renewal in renewals],
                self._database.time(),
            )
            for index, (count, at) in enumerate(rows):
                renewed[index] += count
                ends[index] += [at] if at is not None else []
        return [RenewOutcome(count, min(at, default=None)) for count, at in zip(renewed, ends, strict=True)]

    async def release(self, lease: LeaseId, *, partition: PartitionId | None = None) -> int:
        released = 0
        for shard in self._shards if partition is None else [partition.shard]:
            id = partition.id if partition else 0
            [[count]] = await self._database.write(
                SQL["release"], shard, lease.group_id, lease.token, id, self._database.time()
            )
            released += count
        return released

    async def leased(self, lease: LeaseId) -> list[Leased]:
        found = []
        for shard in self._shards:
            rows = await self._database.read(SQL["leased"], shard, lease.group_id, lease.token, self._database.time())
            found += [Leased(PartitionId(shard, row[0]), *row[1:]) for row in rows]
        return found

    async def read(self, partition: PartitionId, first: int, upto: int) -> list[Segment]:
        rows = await self._database.read(SQL["segments_between"], *partition, first, upto)
        return await self._database.codec.open_segments(partition, [Segment(*row) for row in rows], first, upto)

    async def find(self, partition: PartitionId, transaction_id: str, *, deleted: bool = False) -> int | None:
        keys, read = [id_key(transaction_id), id_key(transaction_id, salt=1)], self._database.read
        found = [row[0] for row in await read(SQL["find_key"], *partition, keys, transaction_id, deleted)]
        made_at = uuid7_ms(transaction_id)
        if made_at is not None and made_at < 2**43:
            since, until = made_at * 1000 - 1_000_000, made_at * 1000 + 61_000_000
            for row in await read(SQL["find_segments"], *partition, keys, since, until):
                *columns, taken_out = row
                segment = Segment(*columns)
                fragments = segment.fragments(segment.first, segment.first + len(segment.ends))
                for position, stored in enumerate(transaction_ids(fragments), segment.first):
                    if stored == transaction_id and position not in taken_out:
                        found.append(position)
            if deleted:
                gone = await read(SQL["find_deleted"], *partition, keys, transaction_id, since, until)
                found += [row[0] for row in gone]
        return max(found, default=None)

    async def transact(
        self,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        *,
        begin: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
        check: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
        also: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
        locked: Sequence[PartitionId] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        """`begin` comes before every lock of the transaction, `check` when partitions are locked and nothing was done
        yet, `also` after all of it was applied; `locked` are further partitions to lock."""
        acks, slices = await self._database.codec.seal_all(acks, slices)
        acked: list[AckResult] = []
        pushed: list[PushResult] = []

        async def work(connection: asyncpg.Connection[Any]) -> None:
            nonlocal acked, pushed
            acked, pushed = [], [Gone()] * len(slices)

            async def ack_part(shard: int, part: list[LaneAck]) -> list[AckResult]:
                return await self.ack_shard(connection.fetch, shard, part)

            async def append(shard: int, part: list[Slice]) -> list[PushResult]:
                return await self.push_shard(connection.fetch, shard, part)

            if begin is not None:
                await begin(connection)
            await self.lock(connection, acks, slices, locked)
            if check is not None:
                await check(connection)
            acked = await by_shard(acks, _lane, ack_part, at_once=False)
            if not all(map(in_force, acks, acked)):
                raise _Refused
            pushed = await by_shard(slices, _partition, append, at_once=False)
            again = only_repeats(acks, acked)
            if not all(isinstance(result, Stored) for result in pushed) or (again and slices):
                raise _Refused
            if also is not None and not again:
                await also(connection)

        with contextlib.suppress(_Refused):
            await self.locked.transact([*acks, *slices, *(_LockedPartition(one) for one in locked)], work)
        return acked, pushed

    async def lock(
        self,
        connection: asyncpg.Connection[Any],
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        locked: Sequence[PartitionId] = (),
    ) -> None:
        """Take all locks of a transaction in the one order, before its parts take theirs each in its own."""
        ids: dict[int, set[int]] = defaultdict(set)
        items: list[Partitioned] = [*acks, *slices]
        for partition in (*(item.partition for item in items), *locked):
            ids[partition.shard].add(partition.id)
        limited = {part.queue_id for part in slices if part.options.max_size > 0}
        for shard in sorted(ids):
            limited.update(await connection.fetchval(SQL["limited_queues"], shard, sorted(ids[shard])))
        if limited:
            await connection.fetch(SQL["lock_queues"], sorted(limited))
        for shard in sorted(ids):
            await connection.fetch(LOCK_PARTITIONS, shard, sorted(ids[shard]))


def _partition(part: Slice) -> tuple[int, int]:
    return part.partition.id, 0


def _lane(ack: LaneAck) -> tuple[int, int]:
    return ack.partition.id, ack.group_id


async def _by_ordering(
    acks: Sequence[LaneAck],
    ordered: Callable[[list[LaneAck]], Awaitable[list[AckResult]]],
    unordered: Callable[[list[LaneAck]], Awaitable[list[AckResult]]],
) -> list[AckResult]:
    """The results of acks of ordered lanes, and then of unordered ones, in the order of the acks."""
    lanes = [one for one in acks if not one.unordered]
    each = [one for one in acks if one.unordered]
    acked = iter(await ordered(lanes) if lanes else [])
    acked_each = iter(await unordered(each) if each else [])
    return [next(acked_each if one.unordered else acked) for one in acks]


async def by_shard(
    items: Sequence[Item],
    order: Callable[[Item], tuple[int, int]],
    run: Callable[[int, list[Item]], Awaitable[list[Result]]],
    *,
    at_once: bool = True,
) -> list[Result]:
    """Run the items of each shard in lock order, and give the results in the order of the items."""
    shards: dict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        shards[item.partition.shard].append(index)
    for indexes in shards.values():
        indexes.sort(key=lambda index: order(items[index]))
    calls = [(shard, [items[index] for index in shards[shard]]) for shard in sorted(shards)]
    if at_once and len(calls) > 1:
        answers = _whole(await asyncio.gather(*(run(*call) for call in calls), return_exceptions=True))
    else:
        answers = [await run(*call) for call in calls]
    results: dict[int, Result] = {}
    for (shard, _), answer in zip(calls, answers, strict=True):
        results.update(zip(shards[shard], answer, strict=True))
    return [results[index] for index in range(len(items))]


def _whole(answers: list[list[Result] | BaseException]) -> list[list[Result]]:
    """The answers of all shards. When only some answered, or of one it is not known, the fate of the call is not known;
    each part may be repeated."""
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in failed:
        if isinstance(error, OutcomeUnknown) or not isinstance(error, Unavailable):
            raise error
    if failed and len(failed) < len(answers):
        raise OutcomeUnknown(f"some shards did not answer: {failed[0]}") from failed[0]
    if failed:
        raise failed[0]
    return answers  # type: ignore[return-value]
