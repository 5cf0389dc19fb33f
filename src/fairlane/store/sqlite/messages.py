"""The log on SQLite, and its leases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import apsw
import msgspec

from fairlane.model.ids import PartitionId, id_key, uuid7_ms
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import RenewOutcome
from fairlane.model.segment import Segment, ids_of
from fairlane.store.contract.ack_rules import in_force, only_repeats
from fairlane.store.contract.values import (
    AckResult,
    Added,
    LaneAck,
    Leased,
    PopCall,
    PopResult,
    PushResult,
    Renewal,
    ScheduledSlice,
    Slice,
    Stored,
)
from fairlane.store.sqlite import cancellations, deleted_ids, log, unordered
from fairlane.store.sqlite.ack import ack_all
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.dedup import FRESH_US, SLACK_US
from fairlane.store.sqlite.log import SQL
from fairlane.store.sqlite.pop import expire, pop
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.scheduled import add
from fairlane.store.tail_cache import TailCache


class Messages:
    def __init__(self, database: Database, tail_cache: TailCache) -> None:
        self._database = database
        self._tail_cache = tail_cache
        """Used on the thread of the writer."""

    def push(self, slices: Sequence[Slice]) -> Awaitable[list[PushResult]]:
        if self._database.codec.always or [part for part in slices if part.options.encryption_enabled]:
            return self._push_sealed(slices)
        return self._database.write(lambda db, now: push(db, now, slices))

    async def _push_sealed(self, slices: Sequence[Slice]) -> list[PushResult]:
        sealed = await self._database.codec.seal_slices(slices)
        return await self._database.write(lambda db, now: push(db, now, sealed))

    async def pop(self, call: PopCall) -> PopResult:
        result = await self._database.write(lambda db, now: pop(db, now, call, self._tail_cache))
        return await self._database.codec.open_lanes(result)

    async def expire(self, queue_id: int, group_id: int) -> int:
        return await self._database.write(lambda db, now: expire(db, now, queue_id, group_id))

    async def expiring(self) -> list[tuple[int, int]]:
        return await self._database.read(lambda db, now: rows(db, SQL["expiring"]))

    def ack(self, acks: Sequence[LaneAck]) -> Awaitable[list[AckResult]]:
        if [ack for ack in acks if ack.results]:
            return self._ack_sealed(acks)
        return self._database.write(lambda db, now: ack_all(db, now, acks))

    async def _ack_sealed(self, acks: Sequence[LaneAck]) -> list[AckResult]:
        sealed = await self._database.codec.seal_acks(acks)
        return await self._database.write(lambda db, now: ack_all(db, now, sealed))

    async def ack_and_pop(self, acks: Sequence[LaneAck], call: PopCall) -> tuple[list[AckResult], PopResult]:
        if [ack for ack in acks if ack.results]:
            acks = await self._database.codec.seal_acks(acks)
        cache = self._tail_cache
        acked, popped = await self._database.write(lambda db, now: (ack_all(db, now, acks), pop(db, now, call, cache)))
        return acked, await self._database.codec.open_lanes(popped)

    async def renew(self, renewals: Sequence[Renewal]) -> list[RenewOutcome]:
        return await self._database.write(lambda db, now: [_renew(db, now, each) for each in renewals])

    async def release(self, lease: LeaseId, *, partition: PartitionId | None = None) -> int:
        def work(db: apsw.Connection, now: int) -> int:
            only = None if partition is None else partition.id
            released = unordered.release(db, now, *lease, only)
            return released or len(rows(db, SQL["release"], now, lease.group_id, lease.token.bytes, only))

        return await self._database.write(work)

    async def leased(self, lease: LeaseId) -> list[Leased]:
        def work(db: apsw.Connection, now: int) -> list[Leased]:
            found = rows(db, SQL["leased"], lease.group_id, now, lease.token.bytes)
            return [Leased(PartitionId.of(id), *rest) for id, *rest in found] or unordered.leased(db, now, *lease)

        return await self._database.read(work)

    async def read(self, partition: PartitionId, first: int, upto: int) -> list[Segment]:
        def work(db: apsw.Connection, now: int) -> list[Segment]:
            bounds = log.bounds(db, partition.id)
            if bounds is None or max(first, bounds[0]) >= min(upto, bounds[1]):
                return []
            return list(log.segments(db, partition.id, max(first, bounds[0]), min(upto, bounds[1])))

        return await self._database.codec.open_segments(partition, await self._database.read(work), first, upto)

    async def find(self, partition: PartitionId, transaction_id: str, *, deleted: bool = False) -> int | None:
        return await self._database.read(lambda db, now: find(db, partition.id, transaction_id, deleted=deleted))

    async def transact(
        self, acks: Sequence[LaneAck], slices: Sequence[Slice], scheduled: Sequence[ScheduledSlice] = ()
    ) -> tuple[list[AckResult], list[PushResult]]:
        acks, slices = await self._database.codec.seal_all(acks, slices)
        later = await self._database.codec.seal_scheduled(scheduled) if scheduled else ()
        return await self._database.write(lambda db, now: transact(db, now, acks, slices, later))


def transact(
    db: apsw.Connection,
    now: int,
    acks: Sequence[LaneAck],
    slices: Sequence[Slice],
    scheduled: Sequence[ScheduledSlice] = (),
    *,
    begin: Callable[[], None] = lambda: None,
    also: Callable[[Sequence[PushResult]], None] = lambda pushed: None,
) -> tuple[list[AckResult], list[PushResult]]:
    """Apply acks, slices and scheduled ones in one transaction, with `begin` before and `also` after them."""
    db.execute("savepoint transact")
    begin()
    acked = ack_all(db, now, acks)
    pushed = [*push(db, now, slices), *(add(db, now, scheduled) if scheduled else ())]
    applied = all(map(in_force, acks, acked)) and all(isinstance(each, Stored | Added) for each in pushed)
    again = only_repeats(acks, acked)
    if not applied or (again and pushed):
        db.execute("rollback to transact")
    elif not again:
        also(pushed)
    db.execute("release transact")
    return acked, pushed


def _renew(db: apsw.Connection, now: int, renewal: Renewal) -> RenewOutcome:
    lease, until = renewal.lease, now + renewal.seconds * 1_000_000
    ends = rows(db, SQL["renew"], until, lease.group_id, now, lease.token.bytes)
    outcome = RenewOutcome(len(ends), min([at for (at,) in ends])) if ends else unordered.renew(db, now, renewal)
    cancelled = cancellations.of_lease(db, *lease)
    return msgspec.structs.replace(outcome, cancelled=cancelled) if cancelled else outcome


def find(db: apsw.Connection, partition_id: int, transaction_id: str, *, deleted: bool = False) -> int | None:
    bounds = log.bounds(db, partition_id)
    if bounds is None:
        return None
    _, head = bounds
    keys = (id_key(transaction_id), id_key(transaction_id, salt=1))
    keyed = rows(db, SQL["key_positions"], partition_id, *keys)
    found = [position for text, position in keyed if text == transaction_id]
    if (ms := uuid7_ms(transaction_id)) is not None:
        since, until = ms * 1000 - SLACK_US, ms * 1000 + FRESH_US + SLACK_US
        for _, position in log.positions_of(db, partition_id, head, set(keys), since=since, until=until):
            segment = log.segment_at(db, partition_id, position)
            if ids_of(log.fragment_at(segment, position))[1] == transaction_id:
                found.append(position)
        gone = deleted_ids.lookup(db, partition_id, set(keys), since=since, until=until) if deleted else ()
        found += [position for _, position, _, text in gone if text == transaction_id]
    counts = deleted_ids.SQL["is_known"] if deleted else SQL["is_there"]
    return max([position for position in found if value(db, counts, partition_id, position)], default=None)
