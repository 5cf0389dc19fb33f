"""Consumer groups on SQLite: where they begin, where they are sent, and what they have not finished.

A push makes the cursors that its partition still lacks before it appends. So a partition without one stands
where it stood when the group came, and `new` may be decided late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

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
GET = statements.load("fairlane.store.families", "groups.sqlite.sql")["get"]
WEIGH = statements.load("fairlane.store.families", "groups.sqlite.sql")["weigh"]


def subscribe(
    db: apsw.Connection, now: int, *, queue_id: int, name: str, look: bool, limit: int, **subscription: Any
) -> list[Any]:
    """The group, made if it is not there; nothing if the queue is not, or if no spec gives it the group of commands."""
    if not rows(db, SQL["queue"], queue_id):
        return []
    named = {"queue_id": queue_id, "name": name}
    found = db.execute(GET, named).fetchall()
    if not found:
        if name == COMMANDS and not rows(db, SQL["mapped"], queue_id):
            return []
        begun = [subscription[key] for key in ("mode", "from_at", "conflation")]
        group_id = value(db, SQL["make"], queue_id, name, *begun, look, now)
        seed(db, now, group_id=group_id, limit=limit)
    elif group_of(found[0]).subscription.look and not look:
        db.execute(SQL["consumed"], (found[0][0],))
    else:
        return found
    db.execute(WEIGH, {"queue_id": queue_id})
    recount_depth(db, queue_id)
    return db.execute(GET, named).fetchall()


def seed(db: apsw.Connection, now: int, *, group_id: int, limit: int, **_: Any) -> bool:
    """Make the next missing cursors of a group; whether more may be missing."""
    seeding = first(db, SQL["seeding"], group_id)
    if seeding is None:
        return False
    queue_id, mode, from_at, after = seeding
    partitions = rows(db, SQL["partitions_from"], queue_id, after, limit)
    _begin(db, (group_id, mode, from_at), partitions, now)
    more = len(partitions) == limit
    db.execute(SQL["set_seeding"], (partitions[-1][0] + 1 if more else 0, group_id))
    return more


def seed_partition(db: apsw.Connection, queue_id: int, partition_id: int, now: int) -> None:
    """Make the cursors that groups still being seeded lack in one partition."""
    partitions = rows(db, SQL["partition_of_queue"], queue_id, partition_id)
    for group in rows(db, SQL["being_seeded"], queue_id):
        _begin(db, group, partitions, now)


def _begin(
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


def seek(db: apsw.Connection, now: int, *, queue_id: int, group_id: int, partition_id: int, **target: Any) -> int:
    if partition_id:
        seed_partition(db, queue_id, partition_id, now)
        partitions = rows(db, SQL["partition_of_queue"], queue_id, partition_id)
    else:
        partitions = rows(db, SQL["partitions_from"], queue_id, 0, -1)
        for group in rows(db, SQL["being_seeded"], queue_id):
            if group[0] == group_id:
                _begin(db, group, partitions, now)
    moves = []
    for id, start, head, _ in partitions:
        to = _sought(db, id, start, head, **target)
        moves.append((to, now if to < head else None, id, group_id))
    for forget in ("forget_failures", "forget_claims", "forget_skips"):
        db.executemany(SQL[forget], [(id, group_id) for _, _, id, _ in moves])
    db.executemany(SQL["seek_cursor"], moves)
    return len(moves)


def preview_seek(
    db: apsw.Connection, now: int, *, queue_id: int, group_id: int, limit: int, **target: Any
) -> list[Any]:
    partitions = again = skipped = 0
    for id, start, head, committed in rows(db, SQL["lanes_of_queue"], group_id, queue_id, limit):
        ahead = _sought(db, id, start, head, **target) - committed
        partitions, again, skipped = partitions + 1, again + max(0, -ahead), skipped + max(0, ahead)
    return [(partitions, again, skipped)]


def _sought(
    db: apsw.Connection, id: int, start: int, head: int, *, to: str, at: int | None, position: int, **_: Any
) -> int:
    """Where in a partition a seek leads to."""
    if to == "time":
        assert at is not None
        return first_at_or_after(db, id, start, head, at)
    return max(start, min(head, {"beginning": start, "end": head, "position": position}[to]))


def resume_lanes(db: apsw.Connection, now: int, *, group_id: int, partition_id: int, **_: Any) -> int:
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


def unfinished(db: apsw.Connection, now: int, *, queue_id: int, **_: Any) -> int:
    found = first(db, SQL["options_and_depth"], queue_id)
    return _count(db, queue_id, parse_options(found[0])) if found else 0


def recount_depth(db: apsw.Connection, queue_id: int) -> None:
    """Count a limited queue anew: where cursors begin, jump or go, their growth cannot be added up."""
    row = first(db, SQL["options_and_depth"], queue_id)
    if row is not None and (options := parse_options(row[0])).max_size:
        db.execute(SQL["set_depth"], (_count(db, queue_id, options), queue_id))


def _count(db: apsw.Connection, queue_id: int, options: QueueOptions) -> int:
    """Messages that some group that counts has not finished, counted one by one."""
    depth: int = value(db, SQL["unfinished"], queue_id)
    if options.ordering != "unordered":
        return depth
    return depth + unordered.open_of(db, "queues", f"[{queue_id}]")[queue_id]
