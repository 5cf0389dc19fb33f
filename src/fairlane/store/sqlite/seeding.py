"""Seeding of a group: where it begins in each partition. A new group's cursors are made in bounded steps.

A push makes the cursors that its partition still lacks before it appends. So a partition without one stands
where it stood when the group came, and `new` may be decided late.
"""

from __future__ import annotations

from typing import Final

import apsw

from fairlane.model.group import Group, Subscription
from fairlane.model.queue import QueueOptions
from fairlane.store import statements
from fairlane.store.sqlite import unordered
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.log import first_at_or_after
from fairlane.store.sqlite.rows import first, rows, value

SEED_STEP: Final = 10_000  # cursors made at once: tens of milliseconds of the writer's time
SQL = statements.load("fairlane.store.sqlite", "groups.sql")
QUEUES = statements.load("fairlane.store.sqlite", "queues.sql")


def group_of(row: tuple[int, int, str, str, int | None, int, int, int, int]) -> Group:
    id, queue_id, name, mode, from_at, conflation, look, created_at, seeding = row
    return Group(
        id=id,
        queue_id=queue_id,
        name=name,
        subscription=Subscription(mode, from_at, bool(conflation), bool(look)),  # type: ignore[arg-type]  # only a Mode was stored
        created_at=created_at,
        seeding=seeding > 0,
    )


def seed_step(db: apsw.Connection, group_id: int, now: int) -> bool:
    """Make the next cursors of a group; whether some may still be missing."""
    row = first(db, SQL["by_id"], group_id)
    if row is None or row[-1] == 0:
        return False
    group, since = group_of(row), row[-1]
    partitions = rows(db, SQL["partitions_from"], group.queue_id, since, SEED_STEP)
    _begin(db, group, partitions, now)
    more = len(partitions) == SEED_STEP
    db.execute(SQL["set_seeding"], (partitions[-1][0] + 1 if more else 0, group_id))
    return more


def seed_partition(db: apsw.Connection, queue_id: int, partition_id: int, now: int) -> None:
    """Make the cursors that groups still being seeded lack in one partition."""
    partitions = rows(db, SQL["partition_of_queue"], queue_id, partition_id)
    for row in rows(db, SQL["seeding"], queue_id):
        _begin(db, group_of(row), partitions, now)


def _begin(db: apsw.Connection, group: Group, partitions: list[tuple[int, int, int, int]], now: int) -> None:
    cursors = []
    for id, start, head, last_at in partitions:
        committed = _beginning(db, group.subscription, (id, start, head, last_at))
        cursors.append((id, group.id, committed, now if committed < head else None))
    db.executemany(SQL["insert_cursor"], cursors)


def _beginning(db: apsw.Connection, subscription: Subscription, partition: tuple[int, int, int, int]) -> int:
    id, start, head, last_at = partition
    if subscription.mode == "all":
        return start
    if subscription.from_at is None or last_at < subscription.from_at:
        return head
    return first_at_or_after(db, id, start, head, subscription.from_at)


def recount_depth(db: apsw.Connection, queue_id: int) -> None:
    """Count a limited queue anew: where cursors begin, jump or go, their growth cannot be added up."""
    row = first(db, QUEUES["options_and_depth"], queue_id)
    if row is not None and parse_options(row[0]).max_size:
        db.execute(QUEUES["set_depth"], (count_depth(db, queue_id, parse_options(row[0])), queue_id))


def weigh(db: apsw.Connection, queue_id: int) -> None:
    """Which groups count, and with it the depth."""
    db.execute(SQL["weigh"], (queue_id,))
    recount_depth(db, queue_id)


def count_depth(db: apsw.Connection, queue_id: int, options: QueueOptions) -> int:
    """Messages that some group that counts has not finished, counted one by one."""
    depth: int = value(db, QUEUES["unfinished"], queue_id)
    return depth + (
        unordered.open_of(db, "queues", f"[{queue_id}]")[queue_id] if options.ordering == "unordered" else 0
    )
