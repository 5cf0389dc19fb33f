"""Consumer groups on SQLite: start positions, seeks and depths.

A push creates missing cursors of its partition before it appends. So a partition without a cursor has not changed since
the group was created, and `new` can be decided late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from fairlane.model.group import Seek, Subscription
from fairlane.model.limits import NEVER_AT
from fairlane.model.names import COMMANDS
from fairlane.model.queue import QueueOptions
from fairlane.store import statements
from fairlane.store.families.groups import group_of
from fairlane.store.sqlite import unordered
from fairlane.store.sqlite.lanes import load, parse_options, save
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.log import first_at_or_after
from fairlane.store.sqlite.rows import first, rows, value

SQL = statements.load("fairlane.store.sqlite", "groups.sql")
_FAMILY = statements.load("fairlane.store.families", "groups.sql", "sqlite")
GET, CHOOSE_COUNTING = _FAMILY["get"], _FAMILY["choose_counting"]


def subscribe(
    db: apsw.Connection, now: int, queue_id: int, name: str, subscription: Subscription, limit: int
) -> list[Any]:
    """Return the group, created if it is missing. Empty if the queue is gone, or no spec gives it commands."""
    if not rows(db, SQL["queue"], queue_id):
        return []
    named = {"queue_id": queue_id, "name": name}
    found = db.execute(GET, named).fetchall()
    if not found:
        if name == COMMANDS and not rows(db, SQL["mapped"], queue_id):
            return []
        begun = (subscription.mode, subscription.start, subscription.conflation, subscription.look)
        group_id = value(db, SQL["make"], queue_id, name, *begun, now)
        seed(db, now, group_id, limit)
    elif group_of(found[0]).subscription.look and not subscription.look:
        db.execute(SQL["consumed"], (found[0][0],))
    else:
        return found
    db.execute(CHOOSE_COUNTING, {"queue_id": queue_id})
    recount_depth(db, queue_id)
    return db.execute(GET, named).fetchall()


def seed(db: apsw.Connection, now: int, group_id: int, limit: int) -> bool:
    """Create the next missing cursors of a group. Returns True if more may be missing."""
    seeding = first(db, SQL["seeding"], group_id)
    if seeding is None:
        return False
    queue_id, mode, from_at, after = seeding
    partitions = rows(db, SQL["partitions_from"], queue_id, after, limit)
    _insert_cursors(db, (group_id, mode, from_at), partitions, now)
    more = len(partitions) == limit
    db.execute(SQL["set_seeding"], (partitions[-1][0] if more else None, group_id))
    return more


def seed_partition(db: apsw.Connection, queue_id: int, partition_id: int, now: int) -> None:
    """Create cursors in one partition for groups that are still being seeded."""
    partitions = rows(db, SQL["partition_of_queue"], queue_id, partition_id)
    for group in rows(db, SQL["being_seeded"], queue_id):
        _insert_cursors(db, group, partitions, now)


def _insert_cursors(
    db: apsw.Connection, group: tuple[int, str, int | None], partitions: Sequence[tuple[int, int, int, int]], now: int
) -> None:
    group_id, mode, from_at = group
    cursors = []
    for id, start, head, last_at in partitions:
        if mode == "all":
            committed = start
        elif from_at is None or last_at < from_at:
            committed = head
        else:
            committed = first_at_or_after(db, id, start, head, from_at)
        cursors.append((id, group_id, committed, now if committed < head else None))
    db.executemany(SQL["insert_cursor"], cursors)
    _skip_cancelled(db, now, [(id, group_id) for id, *_ in partitions])


def seek(db: apsw.Connection, now: int, queue_id: int, group_id: int, partition_id: int, seek: Seek) -> int:
    if partition_id:
        seed_partition(db, queue_id, partition_id, now)
        partitions = rows(db, SQL["partition_of_queue"], queue_id, partition_id)
    else:
        partitions = rows(db, SQL["partitions_from"], queue_id, 0, -1)
        for group in rows(db, SQL["being_seeded"], queue_id):
            if group[0] == group_id:
                _insert_cursors(db, group, partitions, now)
    moves = []
    for id, start, head, _ in partitions:
        to = _seek_target(db, id, start, head, seek)
        moves.append((to, now if to < head else None, id, group_id))
    for forget in ("forget_failures", "forget_claims", "forget_skips"):
        db.executemany(SQL[forget], [(id, group_id) for _, _, id, _ in moves])
    db.executemany(SQL["seek_cursor"], moves)
    _skip_cancelled(db, now, [(id, group_id) for _, _, id, _ in moves])
    return len(moves)


def _skip_cancelled(db: apsw.Connection, now: int, lanes: Sequence[tuple[int, int]]) -> None:
    """Leave cancelled messages out of lanes whose cursors were created or moved: (partition, group) of each."""
    for lane in lanes if value(db, SQL["any_cancelled"]) else ():
        db.execute(SQL["copy_cancellations"], lane)
        db.execute(SQL["skip_cancelled"], (*lane, now))
        db.execute(SQL["mark_skipping"], lane)


def preview_seek(db: apsw.Connection, queue_id: int, group_id: int, seek: Seek, limit: int) -> list[Any]:
    partitions = again = skipped = 0
    for id, start, head, committed in rows(db, SQL["lanes_of_queue"], group_id, queue_id, limit):
        ahead = _seek_target(db, id, start, head, seek) - committed
        partitions, again, skipped = partitions + 1, again + max(0, -ahead), skipped + max(0, ahead)
    return [(partitions, again, skipped)]


def _seek_target(db: apsw.Connection, id: int, start: int, head: int, seek: Seek) -> int:
    """Return the position in a partition that a seek leads to."""
    if seek.to == "time":
        return first_at_or_after(db, id, start, head, seek.target)
    return max(start, min(head, {"beginning": start, "end": head, "position": seek.target}[seek.to]))


def resume_lanes(db: apsw.Connection, now: int, group_id: int, partition_id: int) -> int:
    stopped = rows(db, SQL["stopped_lanes"], group_id, partition_id, NEVER_AT)
    for (id,) in stopped:
        loaded = load(db, id, group_id)
        assert loaded is not None, "a lane that was just read is there"
        lane = loaded[0]
        lane.parked = 0
        db.execute(SQL["forget_failure"], (id, group_id, lane.committed))
        lane.failing = value(db, LOG["any_obstacle"], id, group_id, lane.committed)
        if lane.ready_at == NEVER_AT:
            lane.free(now)
        save(db, lane)
    return len(stopped)


def unfinished(db: apsw.Connection, queue_id: int) -> int:
    found = first(db, SQL["options_and_depth"], queue_id)
    return _count(db, queue_id, parse_options(found[0])) if found else 0


def recount_depth(db: apsw.Connection, queue_id: int) -> None:
    """Recount the depth of a limited queue. Needed when cursors are created, moved or deleted."""
    row = first(db, SQL["options_and_depth"], queue_id)
    if row is not None and (options := parse_options(row[0])).max_size:
        db.execute(SQL["set_depth"], (_count(db, queue_id, options), queue_id))


def _count(db: apsw.Connection, queue_id: int, options: QueueOptions) -> int:
    """Count the messages that some counting group has not finished."""
    depth: int = value(db, SQL["unfinished"], queue_id)
    if options.ordering != "unordered":
        return depth
    return depth + unordered.open_of(db, "queues", f"[{queue_id}]")[queue_id]
