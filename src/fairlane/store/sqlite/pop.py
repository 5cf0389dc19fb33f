"""Pop of ordered lanes: claims those that are ready."""

from __future__ import annotations

from collections import deque
from typing import Final

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import Claim, Lane, PopCall, PopResult
from fairlane.store.sqlite import log, timing, unordered_pop
from fairlane.store.sqlite.lanes import (
    LEASE_EXPIRED,
    LaneRow,
    advance,
    dead_letter,
    fail,
    load,
    next_skip,
    parse_options,
    save,
    step_over,
)
from fairlane.store.sqlite.log import SQL
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.sqlite.seeding import SQL as GROUPS
from fairlane.store.sqlite.seeding import seed_partition

LANES_AT_ONCE: Final = 64  # a claim may take many lanes, or fill up on its first: look at a few before more


class _Want(msgspec.Struct):
    """The rest that a claim may still get."""

    claim: Claim
    messages: int
    lanes: list[Lane]
    looked_at: set[int]
    bytes: int

    @property
    def open(self) -> bool:
        return self.messages > 0 and self.bytes > 0 and len(self.lanes) < self.claim.partitions


def pop(db: apsw.Connection, now: int, call: PopCall) -> PopResult:
    wants = [_Want(claim, claim.batch, [], set(), call.bytes_max) for claim in call.claims]
    queue = first(db, SQL["queue_of_pop"], call.group_id, call.queue_id)
    if queue is None:
        return PopResult([want.lanes for want in wants], gone=True)
    if queue[2] is not None:
        return PopResult([want.lanes for want in wants])
    if call.partition is not None and queue[1]:
        seed_partition(db, call.queue_id, call.partition.id, now)
    options = parse_options(queue[0])
    if options.ordering == "unordered":
        return unordered_pop.pop(db, now, call, options)
    popping = _Popping(db, now, call, options, conflating=bool(queue[3]))
    popping.run(deque(want for want in wants if want.open))
    lanes = [want.lanes for want in wants]
    next_at = None if all(lanes) else popping.next_at()
    return PopResult(lanes, next_at=next_at, leases_lost=popping.leases_lost, dead=popping.dead)


def expire(db: apsw.Connection, now: int, queue_id: int, group_id: int) -> int:
    """Give up what is too old in lanes that nobody asked for; how many messages."""
    queue = first(db, SQL["queue_of_pop"], group_id, queue_id)
    options = parse_options(queue[0]) if queue else QueueOptions()
    age = timing.life(options)
    if age is None or (queue and queue[2] is not None):
        return 0
    expired = 0
    for row in rows(db, SQL["ready_lanes"], group_id, now - age, LANES_AT_ONCE):
        lane = LaneRow(*row)
        if lane.lease is not None:
            lost(db, lane, now)
        gone, _ = timing.expire(db, lane, options, now)
        expired += gone
        lane.free(now)
        save(db, lane)
    return expired


def lost(db: apsw.Connection, lane: LaneRow, now: int) -> None:
    """The last lease ran out: its first message is charged, the lost batch is delivered one by one."""
    lane.probe_until = max(lane.probe_until, lane.lease_end or 0)
    lane.clear_lease()
    fail(db, lane, lane.committed, LEASE_EXPIRED, now)


class _Popping:
    def __init__(
        self, db: apsw.Connection, now: int, call: PopCall, options: QueueOptions, *, conflating: bool
    ) -> None:
        self._db = db
        self._now = now
        self._call = call
        self._options = options
        self._conflating = conflating
        seconds = options.lease_seconds if call.lease_seconds is None else call.lease_seconds
        self._ends_at = now + seconds * 1_000_000
        self._expiring = timing.life(options) is not None
        self._more = False
        self.leases_lost = self.dead = 0

    def run(self, wants: deque[_Want]) -> None:
        """Serve ready lanes, some at a time, until no claim wants more or none is left."""
        served = True
        while wants and served:
            served = False
            # A lane finished at delivery may be ready again at once, in front of one not looked at yet.
            limit = max(LANES_AT_ONCE, len(wants)) + len(wants[0].looked_at)
            for lane in self._ready(limit):
                if not wants:
                    return
                if lane.partition_id not in wants[0].looked_at:
                    served = True
                    wants[0].looked_at.add(lane.partition_id)
                    self._serve(lane, wants[0])
                    if not wants[0].open:
                        wants.popleft()

    def _ready(self, limit: int) -> list[LaneRow]:
        if self._call.partition is None:
            found = rows(self._db, SQL["ready_lanes"], self._call.group_id, self._now, limit)
            return [LaneRow(*row) for row in found]
        loaded = self._named()
        ready = loaded is not None and loaded.ready_at is not None and loaded.ready_at <= self._now
        return [loaded] if loaded is not None and ready else []

    def _named(self) -> LaneRow | None:
        partition = self._call.partition
        if partition is None or partition.shard != 0:
            return None
        loaded = load(self._db, partition.id, self._call.group_id)
        return loaded[0] if loaded else None

    def _serve(self, lane: LaneRow, want: _Want) -> None:
        dead = lane.dead
        if lane.lease is not None:
            if self._call.forgiving:
                lane.clear_lease()
            else:
                lost(self._db, lane, self._now)
                self.leases_lost += 1
        if self._conflating and not lane.parked and lane.paused_at is None:
            self._pass_over(lane)
        more = False
        if self._expiring:
            _, more = timing.expire(self._db, lane, self._options, self._now)
        attempts = self._attempts(lane) if lane.failing and not more else 0
        put_off_until, upto = timing.put_off(self._db, lane, self._options, self._now)
        if lane.parked or lane.paused_at is not None or attempts > self._options.retry_limit:
            put_off_until = NEVER_AT
        if more or put_off_until is not None or lane.committed >= lane.head:
            self._more |= more
            lane.free(self._now if put_off_until is None else put_off_until)
        else:
            self._claim(lane, want, attempts, upto)
        self.dead += lane.dead - dead
        save(self._db, lane)

    def _pass_over(self, lane: LaneRow) -> None:
        """Move the cursor to the newest message that can be delivered."""
        _, visible = timing.put_off(self._db, lane, self._options, self._now)
        newest = visible - 1
        while newest > lane.committed and next_skip(self._db, lane, newest) == newest:
            newest -= 1
        advance(self._db, lane, newest, self._options)

    def _attempts(self, lane: LaneRow) -> int:
        """Failed attempts of the first message; those that used theirs up are dead-lettered on the way unless they
        stop the lane, those taken out of the log are stepped over."""
        while lane.committed < lane.head:
            if step_over(self._db, lane, self._options):
                continue
            failure = first(self._db, SQL["failure"], lane.partition_id, lane.group_id, lane.committed)
            if failure is None:
                return 0
            attempts = failure[0]
            if attempts <= self._options.retry_limit:
                return int(attempts)
            if self._options.on_exhausted != "dead_letter":
                lane.parked |= self._options.on_exhausted == "park"
                return int(attempts)
            dead_letter(self._db, lane, lane.committed, self._now, error=None)
            advance(self._db, lane, lane.committed + 1, self._options)
        return 0

    def _stop(self, lane: LaneRow) -> int:
        """A batch ends before a message whose attempts are used up: it falls when the cursor is there. And before
        one that is not delivered."""
        key = (lane.partition_id, lane.group_id, lane.committed)
        found = value(self._db, SQL["next_used_up"], *key, self._options.retry_limit)
        skip = next_skip(self._db, lane, lane.committed)
        return min(lane.head if found is None else int(found), lane.head if skip is None else skip)

    def _claim(self, lane: LaneRow, want: _Want, attempts: int, visible: int) -> None:
        first_pos = lane.committed
        most = 1 if self._conflating or first_pos < lane.probe_until else want.messages
        stop = min(visible, self._stop(lane) if lane.failing else lane.head)
        segments, upto, size = log.read_batch(
            self._db, lane.partition_id, first_pos, min(stop, first_pos + most), want.bytes
        )
        want.messages -= upto - first_pos
        want.bytes -= size
        if self._call.auto_ack:
            advance(self._db, lane, upto, self._options)
            lane.offer(self._now)
        else:
            lane.lease = want.claim.token.bytes
            lane.lease_start, lane.lease_end = first_pos, upto
            lane.leased_at, lane.ready_at = self._now, self._ends_at
        want.lanes.append(
            Lane(
                partition=PartitionId(0, lane.partition_id),
                name=lane.name,
                first=first_pos,
                upto=upto,
                attempts=attempts,
                lease_ends_at=self._ends_at,
                segments=segments,
            )
        )

    def next_at(self) -> int | None:
        if self._more:
            return self._now
        if self._call.partition is None:
            at: int | None = value(self._db, GROUPS["next_ready_at"], self._call.group_id, NEVER_AT)
            return at
        lane = self._named()
        return lane.ready_at if lane and lane.ready_at != NEVER_AT else None
