"""Claims as the arrays that `fairlane.pop` takes, and its rows as lanes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
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

_ROUNDS_MAX = 8
_EXPIRE_LANES = 256
_FLOOR_MARGIN = 250_000
"""Margin below the floor, because a push commits some time after it takes its time."""
_FULL_SCAN_SHARE = 50
_FULL_SCAN_SECONDS_MAX = 10.0
_SAMPLE = 8
"""Interval of scans that begin at the floor without need, to measure the savings."""
_SLOWEST_AGAIN = 0.005
"""Largest cost of repeating a scan from the floor that found too little."""
_NEW = 0.25
"""Weight of the latest scan in the average."""
_POP_COLUMNS = 20


class _Floor(msgspec.Struct):
    """The floor of one group."""

    at: int = MINUS_INFINITY
    full_at: float = 0.0
    full_took: float = 0.0
    took: float = 0.0
    """Average seconds of a full scan, and of one from the floor."""
    scans: int = 0

    @property
    def saves(self) -> float:
        """Return the seconds that the floor saves."""
        return max(0.0, self.full_took - self.took)


class Floors:
    """Floors: the positions in the index where the scans of ready lanes begin, by group.

    A claim and an ack each leave a dead entry at the old end of the index. PostgreSQL soon skips them, unless a
    transaction stays open elsewhere: then they accumulate, and every scan reads them all. So scans begin at the
    smallest live entry seen. Full scans are made as often as their extra cost allows.
    """

    def __init__(self) -> None:
        self._floors: dict[int, _Floor] = {}

    def start_of_scan(self, key: int) -> int:
        floor = self._floors.get(key)
        if floor is None:
            return MINUS_INFINITY
        floor.scans += 1
        return floor.at if floor.scans % _SAMPLE == 0 or time.monotonic() < floor.full_at else MINUS_INFINITY

    def should_rescan(self, key: int, began: int) -> bool:
        """Return True if a scan from `began` that found too little should be repeated from the beginning."""
        return began != MINUS_INFINITY and self._floors[key].saves < _SLOWEST_AGAIN

    def record_scan(self, key: int, began: int, at: int, took: float) -> None:
        if len(self._floors) > 10_000:
            self._floors.clear()
        floor = self._floors.setdefault(key, _Floor())
        if began == MINUS_INFINITY:
            floor.full_took += (took - floor.full_took) * _NEW
            rest = min(_FULL_SCAN_SECONDS_MAX, floor.saves * _FULL_SCAN_SHARE) if floor.took else 0.0
            floor.full_at = time.monotonic() + rest
        else:
            floor.took += (took - floor.took) * (_NEW if floor.took else 1.0)
        floor.at = at - _FLOOR_MARGIN


class AckStatement(msgspec.Struct):
    """A statement that applies acks and then pops."""

    text: str
    """The statement. It takes the arguments of a pop and then the acks, whose rows come first."""
    arguments: Sequence[object]
    rows: Sequence[Sequence[Any]] | None = None
    """Rows of the acks, with the columns of their function. None before they are applied."""

    def split(self, rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
        """Keep the rows of the acks, and return the rest, which the pop returned."""
        count = next(index for index, row in enumerate(rows) if row["lane"] is None)
        self.rows = [row[_POP_COLUMNS:] for row in rows[:count]]
        return rows[count:]


class PopRunner:
    def __init__(self, database: Database, statement: str) -> None:
        self._database = database
        self._statement = statement
        self._floors = Floors()
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
        summary = await self._pop_some(call, left, result, lanes_max=1 if deep else COUNT_MAX, acks=acks)
        # All statements use the time of the first, or a late one would find the leases of an early one expired.
        if deep and left and all(result.lanes):
            summary = await self._pop_some(call, left, result, now=_time_of(summary))
        self._note_depth(call, result)
        for _ in range(_ROUNDS_MAX):
            if result.gone or not left:
                return
            if summary["not_ready"] == 0:
                break
            summary = await self._pop_some(call, left, result, now=_time_of(summary))
        if summary["next_at"] is not None:
            result.next_at = sent_time(summary["next_at"])

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
        expired: int = (await self._pop_some(call, {0: (0, _EXPIRE_LANES)}, PopResult([[]])))["expired"]
        return expired

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
    ) -> asyncpg.Record:
        """Fill the rest of the claims with up to `lanes_max` lanes each. Returns the summary row.

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
            return summary
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
            batch, lanes = left[index]
            # An unordered lane returns retries and new messages separately. It counts once.
            left[index] = (batch - (lane.upto - lane.first), lanes - ((index, lane.partition) != last))
            last = index, lane.partition
        for index in indexes:
            if min(left[index]) <= 0 or (call.partition is not None and result.lanes[index]):
                del left[index]
        if left and scans and self._floors.should_rescan(key, floor):
            return await self._pop_some(call, left, result, lanes_max=lanes_max, whole=True, now=_time_of(summary))
        return summary


def _time_of(summary: asyncpg.Record) -> int:
    """Return the time that the statement with this summary used as now."""
    return sent_time(summary["popped_at"])


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
