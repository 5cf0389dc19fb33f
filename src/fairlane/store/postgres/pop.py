"""Claims as the arrays that `fairlane.pop` takes, and its rows as lanes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

from fairlane.errors import OutcomeUnknown, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.limits import COUNT_MAX
from fairlane.model.segment import Segment
from fairlane.store.contract.values import Claim, Lane, PopCall, PopResult
from fairlane.store.postgres.connection import MINUS_INFINITY, Database
from fairlane.store.postgres.sent import sent_numbers, sent_time
from fairlane.store.postgres.shards import shard_of

_ROUNDS_MAX = 8
_EXPIRE_LANES = 256
_FLOOR_MARGIN = 250_000
"""A push takes its time before it commits, so a lane may become visible a little below what was seen last."""
_FULL_SCAN_SHARE = 50
_FULL_SCAN_SECONDS_MAX = 10.0
_SAMPLE = 8
"""One scan in so many begins at the floor though it need not, to know what that would save."""
_SLOWEST_AGAIN = 0.005
"""A scan from the floor that found too little is made again from the start, if that costs no more than this."""
_NEW = 0.25
"""What the last scan counts for."""


class _Floor(msgspec.Struct):
    """Of one group."""

    at: int = MINUS_INFINITY
    full_at: float = 0.0
    full_took: float = 0.0
    took: float = 0.0
    """Of a scan of everything, and of one from the floor."""
    scans: int = 0

    @property
    def saves(self) -> float:
        """Seconds, by beginning here."""
        return max(0.0, self.full_took - self.took)


class Floors:
    """Floors: where the scan of a group's ready lanes begins.

    A claim and an ack each leave a dead entry at the old end of the index. PostgreSQL soon skips them, unless some
    transaction elsewhere stays open: then they pile up and every scan walks over them all. So scans begin at the
    smallest live entry seen, and a scan of everything is made as often as what it costs more allows: always, while that
    is nothing."""

    def __init__(self) -> None:
        self._floors: dict[int, _Floor] = {}

    def begin(self, key: int) -> int:
        floor = self._floors.get(key)
        if floor is None:
            return MINUS_INFINITY
        floor.scans += 1
        return floor.at if floor.scans % _SAMPLE == 0 or time.monotonic() < floor.full_at else MINUS_INFINITY

    def again(self, key: int, began: int) -> bool:
        """Whether a scan that began there and found too little is worth one of everything."""
        return began != MINUS_INFINITY and self._floors[key].saves < _SLOWEST_AGAIN

    def seen(self, key: int, began: int, at: int, took: float) -> None:
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


class Popper:
    def __init__(self, database: Database, shards: list[int], statement: str) -> None:
        self._database = database
        self._shards = shards
        self._statement = statement
        self._floors = Floors()
        self._deep: set[int] = set()
        """Groups whose lanes last filled each claim by one: then no more are locked and looked at to begin with."""

    async def __call__(self, call: PopCall) -> PopResult:
        result = PopResult([[] for _ in call.claims])
        try:
            await self._fill(call, result)
        except Unavailable as error:
            # What was claimed before is delivered, for nobody else will. If more may be claimed than is known, the
            # caller is told, and gives all of it back; but what is finished at delivery cannot be given back.
            unknown = isinstance(error, OutcomeUnknown) and not call.auto_ack
            if unknown or not any(result.lanes):
                raise
        return result

    async def _fill(self, call: PopCall, result: PopResult) -> None:
        left = {index: (claim.batch, claim.partitions) for index, claim in enumerate(call.claims)}
        # With auto-ack a lane is ready again at once, and would be taken from twice.
        deep = call.partition is None and not call.auto_ack and call.group_id in self._deep
        end = await self._pop_some(call, left, result, lanes_max=1 if deep else COUNT_MAX)
        # All statements go by the time of the first, or a late one would find the leases of an early one expired.
        if deep and left and all(result.lanes):
            end = await self._pop_some(call, left, result, now=_time_of(end))
        self._learn(call, result)
        for _ in range(_ROUNDS_MAX):
            if result.gone or not left:
                return
            if end["upto"] == 0:
                break
            end = await self._pop_some(call, left, result, now=_time_of(end))
        if end["at"] is not None:
            result.next_at = sent_time(end["at"])

    def _learn(self, call: PopCall, result: PopResult) -> None:
        """Whether the lanes of a group hold as much as is asked for at once."""
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
        """A claim of no messages: what it meets expires or is left."""
        claim = Claim(UUID(int=0), batch=0, partitions=_EXPIRE_LANES)
        call = PopCall(queue_id=queue_id, group_id=group_id, claims=[claim])
        expired: int = (await self._pop_some(call, {0: (0, _EXPIRE_LANES)}, PopResult([[]])))["attempts"]
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
    ) -> asyncpg.Record:
        """Fill the rest of the claims with up to `lanes_max` lanes each. Return the closing row of the answer.

        `whole` scans all lanes. `now` overrides the clock of the store if it is not None."""
        indexes = list(left)
        shard = shard_of(self._shards, call.queue_id)
        key = call.group_id
        floor = MINUS_INFINITY if whole else self._floors.begin(key)
        began = time.monotonic()
        rows = await self._database.write(
            self._statement,
            shard,
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
        end = rows.pop()
        if end["first"]:
            result.gone = True
            return end
        result.leases_lost += end["seg_first"]
        result.dead += end["checksum"]
        scans = call.partition is None and call.claims[0].batch > 0 and end["seen"] is not None
        if scans:
            self._floors.seen(key, floor, end["seen"], time.monotonic() - began)
        last: tuple[int, PartitionId] | None = None
        for claim, lane in _lanes(shard, rows):
            index = indexes[claim - 1]
            result.lanes[index].append(lane)
            batch, lanes = left[index]
            # An unordered lane gives what failed before and what is new; it counts once.
            left[index] = (batch - (lane.upto - lane.first), lanes - ((index, lane.partition) != last))
            last = index, lane.partition
        for index in indexes:
            if min(left[index]) <= 0 or (call.partition is not None and result.lanes[index]):
                del left[index]
        if left and scans and self._floors.again(key, floor):
            return await self._pop_some(call, left, result, lanes_max=lanes_max, whole=True, now=_time_of(end))
        return end


def _time_of(end: asyncpg.Record) -> int:
    """Return the time that the statement with this closing row went by."""
    return sent_time(end["lease_ends_at"])


def _lanes(shard: int, rows: Sequence[asyncpg.Record]) -> list[tuple[int, Lane]]:
    found: list[tuple[int, Lane]] = []
    last = (-1, -1)
    for claim, partition, name, first, upto, attempts, ends_at, seg_first, at, checksum, ends, body, _ in rows:
        segment = Segment(seg_first, sent_time(at), sent_numbers(ends), body, checksum)
        if (partition, first) == last:
            found[-1][1].segments.append(segment)
            continue
        last = (partition, first)
        lane = Lane(
            partition=PartitionId(shard, partition),
            name=name,
            first=first,
            upto=upto,
            attempts=attempts,
            lease_ends_at=sent_time(ends_at),
            segments=[segment],
        )
        found.append((claim, lane))
    return found
