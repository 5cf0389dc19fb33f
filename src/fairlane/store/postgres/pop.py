"""Claims as the arrays that `fairlane.pop` takes, and its rows as lanes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from fairlane.errors import OutcomeUnknown, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.limits import COUNT_MAX
from fairlane.model.segment import Segment
from fairlane.store.contract.values import ClaimedLane, PopCall, PopClaim, PopResult
from fairlane.store.postgres.binary import sent_numbers, sent_time
from fairlane.store.postgres.connection import MINUS_INFINITY, Database
from fairlane.store.postgres.pop_groups import GroupPopper
from fairlane.store.postgres.scan_floors import ScanFloors
from fairlane.store.tail_cache import TailCache

_ROUNDS_MAX = 8
_EXPIRE_LANES = 256


class _Summary(NamedTuple):
    """The end of a call: the time that it used as now, and when the next lane is due."""

    popped_at: int | None = None
    next_at: int | None = None
    not_ready: int = 0
    """Lanes that had nothing to read yet."""
    expired: int = 0


class AckStatement(msgspec.Struct):
    """A statement that applies acks and then pops."""

    text: str
    """The statement. It takes the arguments of `fairlane.pop` and then the acks, whose rows come first."""
    arguments: Sequence[object]
    groups_text: str | None
    """The statement for `fairlane.pop_groups`. None for acks of unordered lanes."""
    rows: Sequence[Sequence[Any]] | None = None
    """Rows of the acks, with the columns of their function. None before they are applied."""

    def split(self, rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
        """Keep the rows of the acks, and return the rest, which the pop returned."""
        count = next(index for index, row in enumerate(rows) if row["lane"] is None)
        columns = list(rows[0].keys()).index("lane")
        self.rows = [row[columns:] for row in rows[:count]]
        return rows[count:]


class PopRunner:
    def __init__(self, database: Database, statement: str, cache: TailCache, *, flushes: int = 1) -> None:
        self._database = database
        self._statement = statement
        self._floors = ScanFloors()
        self._groups = GroupPopper(lambda: self._database, self._floors, cache, flushes)
        self._deep: set[int] = set()
        """Groups whose lanes last filled each claim alone, so that only one lane per claim is locked at first."""

    async def __call__(self, call: PopCall, acks: AckStatement | None = None) -> PopResult:
        result = PopResult([[] for _ in call.claims])
        try:
            await self._fill(call, result, acks)
        except Unavailable as error:
            # Lanes that were claimed before are delivered, because no other pop will. If more may be claimed than is
            # known, the caller gets an error and releases everything. Messages finished at delivery cannot be released.
            unknown = isinstance(error, OutcomeUnknown) and not call.auto_ack
            applied = acks is not None and acks.rows is not None
            if unknown or not (applied or any(result.lanes)):
                raise
        return result

    async def _fill(self, call: PopCall, result: PopResult, acks: AckStatement | None) -> None:
        left = {index: (claim.batch, claim.partitions) for index, claim in enumerate(call.claims)}
        # With auto-ack a lane is ready again at once, and would be used twice.
        deep = call.partition is None and not call.auto_ack and call.group_id in self._deep
        one_lane = deep or not [1 for claim in call.claims if claim.partitions != 1]
        popped = await self._groups.pop(call, acks) if one_lane else None
        if popped is not None:
            for index, lane in enumerate(popped.lanes):
                result.lanes[index].append(lane)
                _take(left, index, lane, is_new=True)
            _drop_filled(left)
            summary = _Summary(popped.popped_at, popped.next_at)
        else:
            pending = None if acks is not None and acks.rows is not None else acks
            summary = await self._pop_some(call, left, result, lanes_max=1 if deep else COUNT_MAX, acks=pending)
        # All statements use the time of the first, or a late one would find the leases of an early one expired.
        if deep and left and all(result.lanes):
            summary = await self._pop_some(call, left, result, now=summary.popped_at)
        self._note_depth(call, result)
        for _ in range(_ROUNDS_MAX):
            if result.gone or not left:
                return
            if summary.not_ready == 0:
                break
            summary = await self._pop_some(call, left, result, now=summary.popped_at)
        result.next_at = summary.next_at

    def _note_depth(self, call: PopCall, result: PopResult) -> None:
        """Record if the lanes of a group hold at least a full batch each."""
        filled = [
            len(lanes) == 1 and lanes[0].upto - lanes[0].first == claim.batch
            for claim, lanes in zip(call.claims, result.lanes, strict=True)
            if lanes
        ]
        if filled and all(filled):
            if len(self._deep) > 10_000:
                self._deep.clear()
            self._deep.add(call.group_id)
        elif filled:
            self._deep.discard(call.group_id)

    async def expire(self, queue_id: int, group_id: int) -> int:
        """Claim no messages, which expires those that are due."""
        claim = PopClaim(UUID(int=0), batch=0, partitions=_EXPIRE_LANES)
        call = PopCall(queue_id=queue_id, group_id=group_id, claims=[claim])
        return (await self._pop_some(call, {0: (0, _EXPIRE_LANES)}, PopResult([[]]))).expired

    async def _pop_some(
        self,
        call: PopCall,
        left: dict[int, tuple[int, int]],
        result: PopResult,
        *,
        lanes_max: int = COUNT_MAX,
        whole: bool = False,
        now: int | None = None,
        acks: AckStatement | None = None,
    ) -> _Summary:
        """Fill the rest of the claims with up to `lanes_max` lanes each.

        `whole` scans all lanes. `now` overrides the clock of the store if it is not None. `acks` are applied before.
        """
        indexes = list(left)
        key = call.group_id
        floor = MINUS_INFINITY if whole else self._floors.start_of_scan(key)
        began = time.monotonic()
        arguments: tuple[object, ...] = (
            call.queue_id,
            call.group_id,
            [call.claims[index].token for index in indexes],
            [left[index][0] for index in indexes],
            [min(left[index][1], lanes_max) for index in indexes],
            call.auto_ack,
            call.lease_seconds or 0,
            call.partition.id if call.partition else 0,
            floor,
            call.bytes_max,
            call.forgiving,
            any(claim.wants_due for claim in call.claims),
            self._database.time() if now is None else now,
        )
        if acks is None:
            rows = await self._database.write(self._statement, *arguments)
        else:
            rows = acks.split(await self._database.write(acks.text, *arguments, *acks.arguments))
        summary = rows.pop()
        if summary["gone"]:
            result.gone = True
            return _Summary()
        result.leases_lost += summary["leases_lost"]
        result.dead += summary["dead_lettered"]
        result.expired += summary["expired"]
        scans = call.partition is None and call.claims[0].batch > 0 and summary["scan_from"] is not None
        if scans:
            self._floors.record_scan(key, floor, summary["scan_from"], time.monotonic() - began)
        last: tuple[int, PartitionId] | None = None
        for claim, lane in _lanes(rows):
            index = indexes[claim - 1]
            result.lanes[index].append(lane)
            # An unordered lane returns retries and new messages separately. It counts once.
            _take(left, index, lane, is_new=(index, lane.partition) != last)
            last = index, lane.partition
        _drop_filled(left)
        if call.partition is not None:
            for index in [index for index in left if result.lanes[index]]:
                del left[index]
        popped_at, next_at = _time(summary["popped_at"]), _time(summary["next_at"])
        if left and scans and self._floors.should_rescan(key, floor):
            return await self._pop_some(call, left, result, lanes_max=lanes_max, whole=True, now=popped_at)
        return _Summary(popped_at, next_at, summary["not_ready"], summary["expired"])


def _time(sent: bytes | None) -> int | None:
    return None if sent is None else sent_time(sent)


def _take(left: dict[int, tuple[int, int]], index: int, lane: ClaimedLane, *, is_new: bool) -> None:
    """Subtract a lane from what its claim may still get."""
    batch, lanes = left[index]
    left[index] = batch - (lane.upto - lane.first), lanes - is_new


def _drop_filled(left: dict[int, tuple[int, int]]) -> None:
    """Remove the claims that are full."""
    for index in [index for index, wanted in left.items() if min(wanted) <= 0]:
        del left[index]


def _lanes(rows: Sequence[asyncpg.Record]) -> list[tuple[int, ClaimedLane]]:
    found: list[tuple[int, ClaimedLane]] = []
    last = (-1, -1)
    for (
        claim,
        partition,
        name,
        first,
        upto,
        attempts,
        ends_at,
        segment_first,
        created_at,
        checksum,
        ends,
        body,
        *_,
    ) in rows:
        segment = Segment(segment_first, sent_time(created_at), sent_numbers(ends), body, checksum)
        if (partition, first) == last:
            found[-1][1].segments.append(segment)
            continue
        last = (partition, first)
        lane = ClaimedLane(
            partition=PartitionId.of(partition),
            name=name,
            first=first,
            upto=upto,
            attempts=attempts,
            lease_ends_at=sent_time(ends_at),
            segments=[segment],
        )
        found.append((claim, lane))
    return found
