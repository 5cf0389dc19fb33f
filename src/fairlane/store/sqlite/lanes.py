"""Lanes: one partition as one group reads it. A lane is loaded, changed in memory, and saved once."""

from __future__ import annotations

import random
from functools import lru_cache

import apsw
import msgspec

from fairlane.model.limits import ERROR_CHARS_MAX, SECONDS_MAX
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import checksum
from fairlane.store.sqlite.log import SQL, first_at_or_after, fragment_at, own_retry_limit, segment_at
from fairlane.store.sqlite.rows import first, value

LEASE_EXPIRED = "Partition lease expired"
EXPIRED = "expired"
EXPIRE_STEP = 1_000  # messages expired in one step; others wait some milliseconds for it
ADD_DEPTH = "update queues set depth = depth + ? where id = ?"


@lru_cache(maxsize=4096)
def parse_options(text: str) -> QueueOptions:
    return msgspec.json.decode(text, type=QueueOptions)


class LaneRow(msgspec.Struct):
    """A row of `cursors`, with the head of the partition and its queue."""

    partition_id: int
    group_id: int
    committed: int
    ready_at: int | None
    lease: bytes | None
    lease_start: int | None
    lease_end: int | None
    leased_at: int | None
    last_lease: bytes | None
    probe_until: int
    failing: int
    dead: int
    expired: int
    parked: int
    paused_at: int | None
    head: int
    queue_id: int
    name: str
    priority_lead: int
    open_acks: int = 0
    """True if acks of the lane are operations."""

    def clear_lease(self) -> None:
        """Clear the lease. Keeps `lease_end`, which bounds the delivered messages, and `leased_at`, the last pop."""
        self.lease = self.lease_start = None

    def make_ready(self, now: int) -> None:
        """Make the lane claimable now, before lanes of lower priority, if it has messages to read."""
        self.free(now - self.priority_lead)

    def free(self, at: int) -> None:
        """Make the lane claimable from `at` on, if it has messages to read."""
        self.clear_lease()
        self.ready_at = at if self.committed < self.head else None


def load(db: apsw.Connection, partition_id: int, group_id: int) -> tuple[LaneRow, QueueOptions] | None:
    row = first(db, SQL["lane"], partition_id, group_id)
    return (LaneRow(*row[:-1]), parse_options(row[-1])) if row else None


def save(db: apsw.Connection, lane: LaneRow) -> None:
    db.execute(
        SQL["save_lane"],
        (
            lane.committed,
            lane.ready_at,
            lane.lease,
            lane.lease_start,
            lane.lease_end,
            lane.leased_at,
            lane.last_lease,
            lane.probe_until,
            lane.failing,
            lane.dead,
            lane.expired,
            lane.parked,
            lane.partition_id,
            lane.group_id,
        ),
    )


def advance(db: apsw.Connection, lane: LaneRow, upto: int, options: QueueOptions) -> None:
    """Mark all positions below `upto` as finished, and update the depth and the failures."""
    if upto <= lane.committed:
        return
    if options.max_size and value(db, SQL["counts"], lane.group_id):
        others = value(db, SQL["others_committed"], lane.partition_id, lane.group_id)
        done = upto if others is None else min(upto, others)
        if done > lane.committed:
            holes = value(db, SQL["holes"], lane.partition_id, lane.committed, done) if lane.failing else 0
            db.execute(ADD_DEPTH, (lane.committed - done + holes, lane.queue_id))
    lane.committed = upto
    if lane.failing:
        key = (lane.partition_id, lane.group_id, upto)
        db.execute(SQL["drop_failures"], key)
        db.execute(SQL["drop_skips"], key)
        lane.failing = value(db, SQL["any_obstacle"], *key)


def next_skip(db: apsw.Connection, lane: LaneRow, position: int) -> int | None:
    """Return the first position from `position` on that this lane skips, or None."""
    found: int | None = (
        value(db, SQL["next_skip"], lane.partition_id, position, lane.group_id) if lane.failing else None
    )
    return found


def step_over(db: apsw.Connection, lane: LaneRow, options: QueueOptions) -> bool:
    """Move the cursor past messages that are not delivered. Returns True if it moved."""
    before = lane.committed
    advance(db, lane, past_skips(db, lane), options)
    return lane.committed > before


def past_skips(db: apsw.Connection, lane: LaneRow) -> int:
    """Return the first deliverable position from the cursor on."""
    upto = lane.committed
    if lane.failing:
        for (position,) in db.execute(SQL["skips_from"], (lane.partition_id, upto, lane.group_id)):
            if position > upto:
                break
            upto = position + 1
    return upto


def fail(
    db: apsw.Connection, lane: LaneRow, position: int, error: str, now: int, traceback: str | None = None
) -> tuple[int, int | None]:
    """Charge one failed attempt. Returns the failed attempts of the message, and its own retry limit or None."""
    lane.failing = 1
    key, own = (lane.partition_id, lane.group_id, position), own_retry_limit(db, lane.partition_id, position)
    found: tuple[int, int | None] = first(db, SQL["fail"], *key, error[:ERROR_CHARS_MAX], traceback, now, own)
    return found


def dead_letter(
    db: apsw.Connection,
    lane: LaneRow,
    position: int,
    now: int,
    *,
    error: str | None,
    charge: int | None = 0,
    traceback: str | None = None,
) -> None:
    """Dead-letter a message. The caller moves the cursor past it.

    `charge` counts this delivery as failed, too. None means that it may never have been delivered. Without an error,
    the letter gets the error and the traceback of the last failure. Corrupt bytes are kept, and the error says so,
    because a lane must not stop forever before them.
    """
    segment = segment_at(db, lane.partition_id, position)
    failure = first(db, SQL["failure"], lane.partition_id, lane.group_id, position)
    attempts, last, first_failed_at, failed_at, history, _, frames = failure or (0, "", now, now, "[]", None, None)
    if attempts and error is not None and failed_at < now:
        history = value(db, SQL["with_earlier"], history, failed_at, last, frames)
    if error is None:
        error, traceback = last, frames
    if checksum(segment.body) != segment.checksum:
        error = f"{error[: ERROR_CHARS_MAX // 2]} (its segment does not match its checksum)"
    attempts = attempts if charge is None else max(1, attempts + charge)
    db.execute(
        SQL["insert_dead_letter"],
        (
            lane.partition_id,
            lane.group_id,
            position,
            lane.queue_id,
            segment.created_at,
            attempts,
            first_failed_at,
            now,
            error[:ERROR_CHARS_MAX],
            fragment_at(segment, position),
            history,
            traceback,
        ),
    )
    lane.dead += 1


def backoff_ms(options: QueueOptions, attempts: int) -> int:
    """Return the delay of a lane after this many failed attempts. 0 if there are none."""
    if not attempts or not options.retry_delay_ms:
        return 0
    most = options.retry_delay_max_ms or SECONDS_MAX * 1000
    # Beyond 2^40 any delay exceeds the maximum.
    delay = min(options.retry_delay_ms << min(attempts - 1, 40), most)
    return int(delay * random.uniform(0.5, 1)) if options.retry_jitter else delay  # noqa: S311  # spreads load


def max_age(options: QueueOptions) -> int | None:
    """Return the age in microseconds at which messages may expire, or None if they never do."""
    ages = [age for age in (options.ttl_seconds, options.max_wait_seconds) if age]
    return min(ages) * 1_000_000 if ages else None


def expire_lane(db: apsw.Connection, lane: LaneRow, options: QueueOptions, now: int) -> tuple[int, bool]:
    """Expire messages at the cursor. Returns their number, and True if there are more than one step takes."""
    if lane.committed >= lane.head or not max_age(options):
        return 0, False
    oldest = segment_at(db, lane.partition_id, lane.committed).created_at
    lived = _older(db, lane, options.ttl_seconds, oldest, now)
    waited = _older(db, lane, options.max_wait_seconds, oldest, now)
    if lane.failing and waited > lived:
        spared = value(db, SQL["next_failure"], lane.partition_id, lane.group_id, max(lane.committed, lived))
        waited = waited if spared is None else min(waited, spared)
    upto = max(lived, waited)
    stop = min(upto, lane.committed + EXPIRE_STEP)
    gone = 0
    if options.on_expiry == "drop" and stop > lane.committed:
        key = (lane.partition_id, lane.committed, stop, lane.group_id, now)
        db.execute(SQL["expire_parts"], key)
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
    """Return the position below which messages are at least this old. The cursor if there are none."""
    bound = now - seconds * 1_000_000
    if not seconds or oldest > bound:
        return lane.committed
    return first_at_or_after(db, lane.partition_id, lane.committed, lane.head, bound + 1)


def visible_from(db: apsw.Connection, lane: LaneRow, options: QueueOptions, now: int) -> tuple[int | None, int]:
    """Return when the lane may be read (None for now) and the position below which."""
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
