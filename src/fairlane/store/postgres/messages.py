"""The log and its leases on PostgreSQL. Each verb is one function call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from fairlane.errors import Unavailable, after_commit, as_outcome_unknown
from fairlane.model.ids import PartitionId, id_key, uuid7_ms
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import RenewOutcome
from fairlane.model.segment import Segment, Verified, may_be_traced, traces_of, transaction_ids
from fairlane.store.contract.ack_rules import doubtful, in_force, only_repeats
from fairlane.store.contract.values import (
    AckResult,
    Added,
    Gone,
    LaneAck,
    Leased,
    PartitionLocked,
    PopCall,
    PopResult,
    PushResult,
    Renewal,
    ScheduledSlice,
    Slice,
    Stored,
    merged,
    repeats,
)
from fairlane.store.postgres import ack, add_scheduled, push
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.driver import WAL_RECORD
from fairlane.store.postgres.pop import AckStatement, PopRunner
from fairlane.store.postgres.row_locks import Partitioned, Result, RowLocks
from fairlane.store.statements import load
from fairlane.store.tail_cache import TailCache

SQL = load("fairlane.store.postgres", "messages.sql")
LOCK_PARTITIONS = SQL["lock_partitions"]
_WITH_POP = {
    SQL["ack"]: (SQL["ack_and_pop"], SQL["ack_and_pop_groups"]),
    SQL["ack_unordered"]: (SQL["ack_unordered_and_pop"], None),
}
"""Statements that apply acks, with those that also call `fairlane.pop` and `fairlane.pop_groups`."""
_LOCKED = AckResult("locked")
T = TypeVar("T")


class _LockedPartition(NamedTuple):
    """A partition that is locked and not changed."""

    partition: PartitionId


class _Refused(Exception):
    """The rollback of a transaction whose results were recorded."""


class Messages:
    def __init__(self, database: Database, set_clock: Callable[[int], None], tail_cache: TailCache) -> None:
        self._database = database
        self._set_clock = set_clock
        self.tail_cache = tail_cache
        flushes = max(1, database.connections // 4)
        self._popper = PopRunner(database, SQL["pop"], tail_cache, flushes=flushes)
        self.locked = RowLocks(database)

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        async def run(part: list[Slice]) -> list[PushResult]:
            return await self.locked.run_unlocked(part, self._push, PartitionLocked())

        if self._database.codec.always or [part for part in slices if part.options.encryption_enabled]:
            slices = await self._database.codec.seal_slices(slices)
        return await in_lock_order(slices, _partition, run)

    async def _push(self, slices: list[Slice]) -> list[PushResult]:
        cache: list[tuple[Slice, Verified]] = []
        # So that they can be found by it from the start.
        if any(part.traced and may_be_traced(part.fragments) for part in slices):
            results = await self._database.transact(lambda connection: self.push_on(connection.fetch, slices, cache))
        else:
            results = await self.push_on(self._database.write, slices, cache)
        for part, segment in cache:  # only now they are committed
            self.tail_cache.add(part.queue_id, part.partition.id, segment)
        return results

    async def push_on(
        self, run: Callable[..., Any], slices: list[Slice], cache: list[tuple[Slice, Verified]] | None = None
    ) -> list[PushResult]:
        """Push slices, sorted by partition, with `run`: by a call of its own or inside a transaction.

        Adds the segments to `cache` that the tail cache wants.
        """
        if len(slices) > 1 and (repeated := repeats(slices)):
            firsts = [part for index, part in enumerate(slices) if index not in repeated]
            stored = await self.push_on(run, firsts, cache)
            return merged(repeated, stored, await self.push_on(run, [slices[index] for index in repeated], cache))
        built: list[push.Built] = []
        limited = sorted({part.queue_id for part in slices if part.options.max_size > 0})
        texts = any(-1 in part.id_times for part in slices)
        while True:
            arguments = push.arguments(slices, limited, texts=texts, now=self._database.time(), built=built)
            rows: list[asyncpg.Record] = await run(SQL["push"], *arguments)
            if texts or not push.needs_texts(rows):
                break
            texts = True
        results = push.results(rows, slices)
        now = push.clock_of(rows)
        if now is not None:
            self._set_clock(now)
            await self._note_traces(run, slices, results)
        if cache is not None:
            follows = self.tail_cache.follows
            cache += [
                (part, one.segment(result))
                for one in built
                if follows((part := slices[one.slice]).queue_id) and isinstance(result := results[one.slice], Stored)
            ]
        return results

    async def _note_traces(self, run: Callable[..., Any], slices: list[Slice], results: list[PushResult]) -> None:
        """Record the traceIds of stored messages. `run` belongs to a transaction if there are any."""
        noted = [
            (UUID(trace_id), part.partition.id, result.first + index)
            for part, result in zip(slices, results, strict=True)
            if part.traced and isinstance(result, Stored)
            for index, trace_id in traces_of(part.fragments)
        ]
        if noted:
            await run(SQL["add_traced"], *map(list, zip(*noted, strict=True)))

    async def pop(self, call: PopCall) -> PopResult:
        result = await self._popper(call)
        return await self._database.codec.open_lanes(result)

    async def expire(self, queue_id: int, group_id: int) -> int:
        return await self._popper.expire(queue_id, group_id)

    async def expiring(self) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in await self._database.read(SQL["expiring"])]

    async def ack(self, acks: Sequence[LaneAck]) -> list[AckResult]:
        async def ack_unlocked(some: list[LaneAck]) -> list[AckResult]:
            return await self.locked.run_unlocked(some, partial(self.ack_on, self._database.write), _LOCKED)

        async def run(part: list[LaneAck]) -> list[AckResult]:
            # Two calls: the second may find a locked lane after the first was applied.
            return await _by_ordering(part, ack_unlocked, ack_unlocked)

        if [ack for ack in acks if ack.results]:
            acks = await self._database.codec.seal_acks(acks)
        return await in_lock_order(acks, _lane, run)

    async def ack_and_pop(self, acks: Sequence[LaneAck], call: PopCall) -> tuple[list[AckResult], PopResult]:
        popped: PopResult | None = None

        async def run(statement: str, *arguments: object) -> Sequence[asyncpg.Record]:
            nonlocal popped
            if statement not in _WITH_POP or popped is not None:
                return await self._database.write(statement, *arguments)
            text, groups_text = _WITH_POP[statement]
            applying = AckStatement(text, arguments, groups_text)
            popped = await self._popper(call, applying)
            return applying.rows or ()

        async def run_unlocked(part: list[LaneAck]) -> list[AckResult]:
            return await self.locked.run_unlocked(part, partial(self.ack_on, run), _LOCKED)

        if [ack for ack in acks if ack.results]:
            acks = await self._database.codec.seal_acks(acks)
        try:
            acked = await in_lock_order(acks, _lane, run_unlocked)
        except Unavailable as error:
            if popped is not None:
                raise as_outcome_unknown(error) from error
            raise
        if popped is None:  # there are no acks, or their lanes are locked
            popped = await self._popper(call)
        return acked, await self._database.codec.open_lanes(popped)

    async def ack_on(self, run: Callable[..., Any], part: Sequence[LaneAck]) -> list[AckResult]:
        """Apply acks, sorted by lane, with `run`: by calls of its own or inside a transaction."""
        acked = await self._apply(run, part)
        spans = [
            (index, ack.partition.id, ack.group_id, first, upto)
            for index, (ack, result) in enumerate(zip(part, acked, strict=True))
            for first, upto in doubtful(ack, result)
        ]
        if spans:
            with after_commit():
                found = await run(SQL["cancelled"], *map(list, zip(*spans, strict=True)))
            for index, positions in found:
                acked[index] = msgspec.structs.replace(acked[index], cancelled=positions)
        return acked

    async def _apply(self, run: Callable[..., Any], part: Sequence[LaneAck]) -> list[AckResult]:
        async def ordered(some: list[LaneAck]) -> list[AckResult]:
            return ack.results(await run(SQL["ack"], *ack.arguments(some, self._database.time())), len(some))

        async def unordered(some: list[LaneAck]) -> list[AckResult]:
            arguments = ack.unordered_arguments(some, self._database.time())
            return ack.unordered_results(await run(SQL["ack_unordered"], *arguments), len(some))

        return await _by_ordering(part, ordered, unordered)

    async def renew(self, renewals: Sequence[Renewal]) -> list[RenewOutcome]:
        rows = await self._database.write(
            SQL["renew"],
            [renewal.lease.group_id for renewal in renewals],
            [renewal.lease.token for renewal in renewals],
            [renewal.seconds for renewal in renewals],
            self._database.time(),
        )
        return [
            RenewOutcome(
                count, ends_at, [(PartitionId.of(id), at) for id, at in zip(ids or (), at_ or (), strict=True)]
            )
            for count, ends_at, ids, at_ in rows
        ]

    async def release(self, lease: LeaseId, *, partition: PartitionId | None = None) -> int:
        id = partition.id if partition else 0
        [[released]] = await self._database.write(SQL["release"], *lease, id, self._database.time())
        return int(released)

    async def leased(self, lease: LeaseId) -> list[Leased]:
        rows = await self._database.read(SQL["leased"], *lease, self._database.time())
        return [Leased(PartitionId.of(id), *rest) for id, *rest in rows]

    async def read(self, partition: PartitionId, first: int, upto: int) -> list[Segment]:
        rows = await self._database.read(SQL["segments_between"], partition.id, first, upto)
        return await self._database.codec.open_segments(partition, [Segment(*row) for row in rows], first, upto)

    async def find(self, partition: PartitionId, transaction_id: str, *, deleted: bool = False) -> int | None:
        keys, read = [id_key(transaction_id), id_key(transaction_id, salt=1)], self._database.read
        found = [row[0] for row in await read(SQL["find_key"], partition.id, keys, transaction_id, deleted)]
        made_at = uuid7_ms(transaction_id)
        if made_at is not None and made_at < 2**43:
            since, until = made_at * 1000 - 1_000_000, made_at * 1000 + 61_000_000
            for row in await read(SQL["find_segments"], partition.id, keys, since, until):
                *columns, taken_out = row
                segment = Segment(*columns)
                fragments = segment.fragments(segment.first, segment.first + len(segment.ends))
                for position, stored in enumerate(transaction_ids(fragments), segment.first):
                    if stored == transaction_id and position not in taken_out:
                        found.append(position)
            if deleted:
                gone = await read(SQL["find_deleted"], partition.id, keys, transaction_id, since, until)
                found += [row[0] for row in gone]
        return max(found, default=None)

    async def transact(
        self,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        scheduled: Sequence[ScheduledSlice] = (),
        *,
        begin: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
        check: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
        also: Callable[[asyncpg.Connection[Any], Sequence[PushResult]], Awaitable[None]] | None = None,
        locked: Sequence[PartitionId] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Apply acks, slices and scheduled ones in one transaction.

        `begin` runs before all locks, `check` when partitions are locked and nothing is changed yet, `also` at the end.
        `locked` are additional partitions to lock.
        """
        acks, slices = await self._database.codec.seal_all(acks, slices)
        later = await self._database.codec.seal_scheduled(scheduled) if scheduled else []
        locked = [*locked, *(part.partition for part in later)]
        acked: list[AckResult] = []
        pushed: list[PushResult] = []

        async def work(connection: asyncpg.Connection[Any]) -> None:
            nonlocal acked, pushed
            acked, pushed = [], [Gone()] * (len(slices) + len(later))

            if begin is not None:
                await begin(connection)
            await self.lock(connection, acks, slices, locked)
            if check is not None:
                await check(connection)
            acked = await self.acks_on(connection, acks)
            if not all(map(in_force, acks, acked)):
                raise _Refused
            pushed = await self.pushes_on(connection, slices, later)
            again = only_repeats(acks, acked)
            if not all(isinstance(result, Stored | Added) for result in pushed) or (again and pushed):
                raise _Refused
            if also is not None and not again:
                await also(connection, pushed)

        try:
            await self.locked.transact([*acks, *slices, *(_LockedPartition(one) for one in locked)], work)
        except _Refused:
            # Repeats may have been found that no synchronous standby has. This commit waits for it.
            await self._database.write(f"SELECT {WAL_RECORD}")
        return acked, pushed

    async def acks_on(self, connection: asyncpg.Connection[Any], acks: Sequence[LaneAck]) -> list[AckResult]:
        """Apply sealed acks inside a transaction that holds their partitions."""
        return await in_lock_order(acks, _lane, partial(self.ack_on, connection.fetch))

    async def pushes_on(
        self, connection: asyncpg.Connection[Any], slices: Sequence[Slice], scheduled: Sequence[ScheduledSlice]
    ) -> list[PushResult]:
        """Push sealed slices and schedule others, inside a transaction that holds their partitions."""
        pushed = await in_lock_order(slices, _partition, partial(self.push_on, connection.fetch))
        if scheduled:
            pushed += await add_scheduled.add_on(connection, scheduled, self._database.time())
        return pushed

    async def lock(
        self,
        connection: asyncpg.Connection[Any],
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        locked: Sequence[PartitionId] = (),
    ) -> None:
        """Take all locks of a transaction in the global order, before its parts take theirs."""
        items: list[Partitioned] = [*acks, *slices]
        ids = sorted({partition.id for partition in (*(item.partition for item in items), *locked)})
        if not ids:
            return
        limited = {part.queue_id for part in slices if part.options.max_size > 0}
        limited.update(await connection.fetchval(SQL["limited_queues"], ids))
        if limited:
            await connection.fetch(SQL["lock_queues"], sorted(limited))
        await connection.fetch(LOCK_PARTITIONS, ids)


def _partition(part: Slice) -> tuple[int, int]:
    return part.partition.id, 0


def _lane(ack: LaneAck) -> tuple[int, int]:
    return ack.partition.id, ack.group_id


async def _by_ordering(
    acks: Sequence[LaneAck],
    ordered: Callable[[list[LaneAck]], Awaitable[list[AckResult]]],
    unordered: Callable[[list[LaneAck]], Awaitable[list[AckResult]]],
) -> list[AckResult]:
    """Return the results of acks of ordered and unordered lanes, in the order of the acks."""
    lanes = [one for one in acks if not one.unordered]
    each = [one for one in acks if one.unordered]
    acked = iter(await ordered(lanes) if lanes else [])
    acked_each = iter(await unordered(each) if each else [])
    return [next(acked_each if one.unordered else acked) for one in acks]


async def in_lock_order(
    items: Sequence[T], key: Callable[[T], tuple[int, int]], run: Callable[[list[T]], Awaitable[list[Result]]]
) -> list[Result]:
    """Run the items sorted by `key`, the order of all locks, and return the results in the original order."""
    if not items:
        return []
    order = sorted(range(len(items)), key=lambda index: key(items[index]))
    results = dict(zip(order, await run([items[index] for index in order]), strict=True))
    return [results[index] for index in range(len(items))]
