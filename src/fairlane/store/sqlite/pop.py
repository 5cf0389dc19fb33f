"""Pop of ordered lanes: claims ready lanes."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import apsw

from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import PopCall, PopResult
from fairlane.store.sqlite import limited_pop, unordered_pop
from fairlane.store.sqlite.groups import SQL as GROUPS
from fairlane.store.sqlite.groups import seed_partition
from fairlane.store.sqlite.lanes import (
    LEASE_EXPIRED,
    LaneRow,
    advance,
    dead_letter,
    expire_lane,
    fail,
    load,
    max_age,
    next_skip,
    parse_options,
    save,
    step_over,
    visible_from,
)
from fairlane.store.sqlite.log import SQL, PoppedLog, Popping, Want
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.tail_cache import TailCache

LANES_EACH: Final = 4  # lanes to load per claim: it may take many, or be full after the first
LANES_AT_ONCE: Final = 64


def pop(db: apsw.Connection, now: int, call: PopCall, cache: TailCache) -> PopResult:
    found: list[Any] = db.execute(SQL["queue_of_pop"], (call.group_id, call.queue_id)).fetchall()
    queue = found[0] if found else None
    if queue is None or queue[2] is not None:
        return PopResult([[] for _ in call.claims], gone=queue is None)
    if call.partition is not None and queue[1]:
        seed_partition(db, call.queue_id, call.partition.id, now)
    options = parse_options(queue[0])
    log = PoppedLog(db, cache, call.queue_id, bool(queue[4]))
    if options.max_running or options.rate or options.max_running_per_key or options.rate_per_key:
        return limited_pop.pop(
            db, now, call, options, lambda one: _pop(db, now, one, options, log, conflating=bool(queue[3]))
        )
    return _pop(db, now, call, options, log, conflating=bool(queue[3]))


def _pop(
    db: apsw.Connection, now: int, call: PopCall, options: QueueOptions, log: PoppedLog, *, conflating: bool
) -> PopResult:
    seconds = options.lease_seconds if call.lease_seconds is None else call.lease_seconds
    ends_at = now + seconds * 1_000_000
    wants = [Want(claim, claim.batch, claim.partitions, call.bytes_max, ends_at) for claim in call.claims]
    if options.ordering == "unordered":
        return unordered_pop.pop(db, now, call, options, log, wants)
    popping = _Popping(db, now, call, options, log, conflating=conflating)
    popping.run(deque(wants))
    lanes = [want.lanes for want in wants]
    next_at = None if all(lanes) else popping.next_at()
    return PopResult(
        lanes, next_at=next_at, leases_lost=popping.leases_lost, expired=popping.expired, dead=popping.dead
    )


def expire(db: apsw.Connection, now: int, queue_id: int, group_id: int) -> int:
    """Expire messages in lanes that were not popped. Returns their number."""
    queue = first(db, SQL["queue_of_pop"], group_id, queue_id)
    options = parse_options(queue[0]) if queue else QueueOptions()
    age = max_age(options)
    if age is None or (queue and queue[2] is not None):
        return 0
    expired = 0
    for row in rows(db, SQL["ready_lanes"], group_id, now - age, LANES_AT_ONCE):
        lane = LaneRow(*row)
        if lane.lease is not None:
            lost(db, lane, now)
        gone, _ = expire_lane(db, lane, options, now)
        expired += gone
        lane.free(now)
        save(db, lane)
    return expired


def lost(db: apsw.Connection, lane: LaneRow, now: int) -> None:
    """Handle an expired lease: charge its first message, and deliver the lost batch one by one."""
    lane.probe_until = max(lane.probe_until, lane.lease_end or 0)
    lane.clear_lease()
    fail(db, lane, lane.committed, LEASE_EXPIRED, now)


class _Popping(Popping):
    conflating: bool = False
    more: bool = False

    def run(self, wants: deque[Want]) -> None:
        """Serve ready lanes in chunks, until all claims are full or no lane is left."""
        options = self.options
        by_time = options.ttl_seconds or options.max_wait_seconds or options.delay_seconds or options.window_seconds
        plain = not by_time and not self.conflating and not self.call.auto_ack
        served, some = True, LANES_EACH if [1 for want in wants if want.partitions > 1] else 1
        limit = some * len(wants) + 1
        while wants and served:
            served = False
            if self.call.partition is None:
                found: list[Any] = self.db.execute(SQL["ready_lanes"], (self.call.group_id, self.now, limit)).fetchall()
                ready = [LaneRow(*row) for row in found]
            else:
                lane = self._named()
                ready = [lane] if lane and lane.ready_at is not None and lane.ready_at <= self.now else []
            for lane in ready:
                want = wants[0]
                if lane.partition_id not in want.looked_at:
                    served = True
                    want.looked_at.add(lane.partition_id)
                    stopped = lane.parked or lane.paused_at is not None or lane.committed >= lane.head
                    if plain and lane.lease is None and not lane.failing and not stopped:
                        self._claim(lane, want, 0, lane.head)  # the common case: only the lease is new
                        lease = (lane.lease, lane.lease_start, lane.lease_end, self.now, want.ends_at)
                        self.db.execute(SQL["lease_lane"], (*lease, lane.partition_id, lane.group_id))
                    else:
                        self._serve(lane, want)
                    if want.messages <= 0 or want.bytes <= 0 or want.partitions <= 0:
                        wants.popleft()
                        if not wants:
                            return
            # A lane that was finished at delivery may be ready again at once, before one that was not checked yet.
            limit = len(wants) + LANES_AT_ONCE + len(wants[0].looked_at)

    def _named(self) -> LaneRow | None:
        partition = self.call.partition
        if partition is None:
            return None
        loaded = load(self.db, partition.id, self.call.group_id)
        return loaded[0] if loaded else None

    def _serve(self, lane: LaneRow, want: Want) -> None:
        """Serve a claim from a lane, after checking for obstacles."""
        dead = lane.dead
        if lane.lease is not None:
            if self.call.forgiving:
                lane.clear_lease()
            else:
                lost(self.db, lane, self.now)
                self.leases_lost += 1
        if self.conflating and not lane.parked and lane.paused_at is None:
            self._skip_to_newest(lane)
        expired, more = expire_lane(self.db, lane, self.options, self.now)
        attempts, stops = self._attempts(lane) if lane.failing and not more else (0, False)
        put_off_until, upto = visible_from(self.db, lane, self.options, self.now)
        if lane.parked or lane.paused_at is not None or stops:
            put_off_until = NEVER_AT
        self.dead += lane.dead - dead
        self.expired += expired
        if more or put_off_until is not None or lane.committed >= lane.head:
            self.more |= more
            lane.free(self.now if put_off_until is None else put_off_until)
        else:
            self._claim(lane, want, attempts, upto)
        save(self.db, lane)

    def _skip_to_newest(self, lane: LaneRow) -> None:
        """Move the cursor to the newest deliverable message."""
        _, visible = visible_from(self.db, lane, self.options, self.now)
        newest = visible - 1
        while newest > lane.committed and next_skip(self.db, lane, newest) == newest:
            newest -= 1
        advance(self.db, lane, newest, self.options)

    def _attempts(self, lane: LaneRow) -> tuple[int, bool]:
        """Return the failed attempts of the first message, and True if it stops the lane.

        Messages without attempts left are dead-lettered, unless they stop the lane. Removed messages are skipped.
        """
        while lane.committed < lane.head:
            if step_over(self.db, lane, self.options):
                continue
            failure = first(self.db, SQL["failure"], lane.partition_id, lane.group_id, lane.committed)
            if failure is None:
                return 0, False
            attempts, limit = int(failure[0]), failure[5]
            if attempts <= (self.options.retry_limit if limit is None else limit):
                return attempts, False
            if self.options.on_exhausted != "dead_letter":
                lane.parked |= self.options.on_exhausted == "park"
                return attempts, True
            dead_letter(self.db, lane, lane.committed, self.now, error=None)
            advance(self.db, lane, lane.committed + 1, self.options)
        return 0, False

    def _stop(self, lane: LaneRow) -> int:
        """Return the end of the batch: the first message that is not delivered, or has no attempts left.

        The latter is dead-lettered when the cursor reaches it.
        """
        key = (lane.partition_id, lane.group_id, lane.committed)
        found = value(self.db, SQL["next_used_up"], *key, self.options.retry_limit)
        skip = next_skip(self.db, lane, lane.committed)
        return min(lane.head if found is None else int(found), lane.head if skip is None else skip)

    def _claim(self, lane: LaneRow, want: Want, attempts: int, visible: int) -> None:
        first_pos = lane.committed
        most = 1 if self.conflating or first_pos < lane.probe_until else want.messages
        stop = min(visible, self._stop(lane) if lane.failing else lane.head, first_pos + most)
        upto = want.deliver(self.log, lane.partition_id, lane.name, (first_pos, stop), attempts)
        want.partitions -= 1
        lane.leased_at = self.now
        if self.call.auto_ack:
            advance(self.db, lane, upto, self.options)
            lane.make_ready(self.now)
        else:
            lane.lease = want.claim.token.bytes
            lane.lease_start, lane.lease_end = first_pos, upto
            lane.ready_at = want.ends_at

    def next_at(self) -> int | None:
        if self.more:
            return self.now
        if self.call.partition is None:
            at: int | None = value(self.db, GROUPS["next_ready_at"], self.call.group_id, NEVER_AT)
            return at
        lane = self._named()
        return lane.ready_at if lane and lane.ready_at != NEVER_AT else None
