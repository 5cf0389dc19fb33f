"""Browsing on SQLite: reading backwards, removing messages, and trimming rows below the start of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.queue import QueueOptions
from fairlane.store import statements
from fairlane.store.contract.values import LaneAck, ToDeadLetter
from fairlane.store.families.browse import DeadLettered
from fairlane.store.sqlite import deleted_ids, lanes, log, unordered
from fairlane.store.sqlite.ack import ack_one
from fairlane.store.sqlite.groups import recount_depth, seed_partition
from fairlane.store.sqlite.lanes import ADD_DEPTH, LaneRow, parse_options
from fairlane.store.sqlite.messages import find
from fairlane.store.sqlite.rows import first, rows, value

SQL = statements.load("fairlane.store.sqlite", "browse.sql")
Rows = list[tuple[Any, ...]]


def newest(db: apsw.Connection, where: Sequence[tuple[int, int, int]], *, since: int, limit: int, bytes: int) -> Rows:
    """Return the heads of the newest messages of each partition, below its time and position."""
    found: Rows = []
    for item, (partition_id, until, below) in enumerate(where, 1):
        for row in _newest(db, partition_id, until, below, since=since, limit=limit):
            found.append((item, *row[:2], row[2][:bytes]))
    return found


def _newest(db: apsw.Connection, partition_id: int, until: int, upto: int, *, since: int, limit: int) -> Rows:
    bounds = log.bounds(db, partition_id)
    if bounds is None:
        return []
    start, head = bounds
    below = min(upto, log.first_at_or_after(db, partition_id, start, head, until))
    found: Rows = []
    for row in db.execute(SQL["segments_backward"], (partition_id, below)):
        segment = log.segment_of(row)
        last = min(below, segment.first + len(segment.ends))
        if segment.created_at < since or last <= start or len(found) >= limit:
            break
        low = max(start, segment.first)
        holes = {position for (position,) in rows(db, SQL["holes_at"], partition_id, low, last)}
        there = [position for position in range(last - 1, low - 1, -1) if position not in holes]
        for position in there[: limit - len(found)]:
            found.append((position, segment.created_at, log.fragment_at(segment, position)))
    return found


def with_id(
    db: apsw.Connection,
    queue_ids: Sequence[int],
    partition_ids: Sequence[int] | None,
    transaction_id: str,
    since: int | None,
) -> Rows:
    found = []
    queues = msgspec.json.encode(queue_ids).decode()
    among = None if partition_ids is None else msgspec.json.encode(partition_ids).decode()
    for id, queue_id, name in rows(db, SQL["partitions_since"], queues, since or 0, among):
        if (position := find(db, id, transaction_id)) is not None:
            found.append((id, position, queue_id, name))
    return found


def delete(db: apsw.Connection, now: int, partition_id: int, position: int, transaction_id: str) -> bool:
    queue = first(db, SQL["queue_of"], partition_id)
    if queue is None or not value(db, log.SQL["is_there"], partition_id, position):
        return False
    queue_id, options = queue[0], parse_options(queue[1])
    if options.ordering == "unordered":
        unordered.withdraw(db, partition_id, position)
    elif options.max_size and position >= value(db, SQL["first_open"], partition_id):
        db.execute(ADD_DEPTH, (-1, queue_id))
    for statement in (
        "delete_skips_at",
        "delete_letters_at",
        "delete_failures_at",
        "delete_results_at",
        "delete_cancellations_at",
    ):
        db.execute(SQL[statement], (partition_id, position))
    db.execute(SQL["insert_skip"], (partition_id, position, 0, now))
    db.execute(SQL["mark"], (partition_id, position))
    for (group_id,) in rows(db, SQL["groups_of"], partition_id):
        loaded = lanes.load(db, partition_id, group_id)
        if loaded is not None:
            _advance_free_lane(db, now, *loaded)
    if options.ordering == "unordered":
        unordered.advance_cursors(db, partition_id)
        recount_depth(db, queue_id)
    for statement in ("delete_traces_of", "delete_trace_names_of"):
        db.execute(SQL[statement], (partition_id, transaction_id))
    return True


def _advance_free_lane(db: apsw.Connection, now: int, lane: LaneRow, options: QueueOptions) -> None:
    """Advance a lane without a lease at once: the message it waited for is gone."""
    if lane.lease is None and lanes.step_over(db, lane, options):
        lane.free(now)
    lanes.save(db, lane)


def dead_letter(
    db: apsw.Connection, now: int, partition_id: int, group_id: int, position: int, error: str
) -> DeadLettered:
    queue = first(db, SQL["queue_of"], partition_id)
    if queue is None or not value(db, log.SQL["is_there"], partition_id, position):
        return "gone"
    seed_partition(db, queue[0], partition_id, now)
    loaded = lanes.load(db, partition_id, group_id)
    if loaded is None:
        return "gone"
    lane, options = loaded
    if options.ordering == "unordered":
        dead = ToDeadLetter(position, error)
        ack = LaneAck(
            partition=PartitionId.of(partition_id), group_id=group_id, token=None, unordered=True, dead_letters=[dead]
        )
        result = ack_one(db, now, ack)
        if not result.lost:
            return "dead" if result.died else "finished"
    if position < lane.committed or lanes.next_skip(db, lane, position) == position:
        return "finished"
    lanes.dead_letter(db, lane, position, now, error=error)
    db.execute(SQL["forget_failure"], (partition_id, group_id, position))
    db.execute(SQL["insert_skip"], (partition_id, position, group_id, now))
    lane.failing = 1
    _advance_free_lane(db, now, lane, options)
    if options.ordering == "unordered":
        recount_depth(db, lane.queue_id)
    return "dead"


def forget_ids(db: apsw.Connection, now: int, limit: int) -> int:
    return deleted_ids.forget(db, now, limit)


def trim(db: apsw.Connection, now: int, limit: int) -> bool:
    """Delete some rows. Returns False when there are none left anywhere."""
    budget = limit
    while row := first(db, SQL["trims"]):
        partition_id, start, cleared = row
        budget -= deleted_ids.trim(db, now, partition_id, start, cleared, budget)
        if budget > 0:
            budget -= deleted_ids.trim_beside(db, partition_id, budget)
        for what in ("traced", "traces", "trace_names"):
            if budget <= 0:
                return True
            db.execute(SQL[f"trim_{what}"], (partition_id, start, budget))
            budget -= db.changes()
        if budget <= 0:
            return True
        db.execute(SQL["trimmed"], (partition_id,))
        budget -= 1
    return False
