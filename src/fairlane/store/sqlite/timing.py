"""Timing of a lane: messages that are too old for it, and messages that are not old enough yet."""

from __future__ import annotations

import apsw

from fairlane.model.queue import QueueOptions
from fairlane.store.sqlite.lanes import LaneRow, advance, dead_letter, next_skip
from fairlane.store.sqlite.log import SQL, first_at_or_after, segment_at
from fairlane.store.sqlite.rows import value

EXPIRED = "expired"
STEP = 1_000  # messages given up in one look at a lane: others wait for it some milliseconds


def life(options: QueueOptions) -> int | None:
    """The age at which the first messages of a queue may expire, in microseconds; None: they live for ever."""
    ages = [age for age in (options.ttl_seconds, options.max_wait_seconds) if age]
    return min(ages) * 1_000_000 if ages else None


def expire(db: apsw.Connection, lane: LaneRow, options: QueueOptions, now: int) -> tuple[int, bool]:
    """Give up what is too old at the cursor; how many, and whether there is more than one step takes."""
    if lane.committed >= lane.head or not life(options):
        return 0, False
    oldest = segment_at(db, lane.partition_id, lane.committed).created_at
    lived = _older(db, lane, options.ttl_seconds, oldest, now)
    waited = _older(db, lane, options.max_wait_seconds, oldest, now)
    if lane.failing and waited > lived:
        spared = value(db, SQL["next_failure"], lane.partition_id, lane.group_id, max(lane.committed, lived))
        waited = waited if spared is None else min(waited, spared)
    upto = max(lived, waited)
    stop = min(upto, lane.committed + STEP)
    gone = 0
    for position in range(lane.committed, stop):
        if next_skip(db, lane, position) != position:
            gone += 1
            if options.on_expiry == "drop":
                lane.expired += 1
            else:
                dead_letter(db, lane, position, now, error=EXPIRED, charge=None)
    advance(db, lane, stop, options)
    return gone, stop < upto


def _older(db: apsw.Connection, lane: LaneRow, seconds: int, oldest: int, now: int) -> int:
    """The position below which messages of the lane are at least that old; its cursor if none is."""
    bound = now - seconds * 1_000_000
    if not seconds or oldest > bound:
        return lane.committed
    return first_at_or_after(db, lane.partition_id, lane.committed, lane.head, bound + 1)


def put_off(db: apsw.Connection, lane: LaneRow, options: QueueOptions, now: int) -> tuple[int | None, int]:
    """When the lane may be read, None if that is now, and the position below which."""
    if not options.delay_seconds and not options.window_seconds:
        return None, lane.head
    last_at: int = value(db, SQL["last_at"], lane.partition_id)
    at = last_at + options.window_seconds * 1_000_000
    delay, upto = options.delay_seconds * 1_000_000, lane.head
    if last_at + delay > now:
        upto = first_at_or_after(db, lane.partition_id, lane.committed, lane.head, now - delay + 1)
        if upto <= lane.committed:
            at = max(at, segment_at(db, lane.partition_id, lane.committed).created_at + delay)
    return (at if at > now else None), upto
