"""Queues on SQLite: creates partitions, and removes deleted ones in bounded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw

from fairlane.store import statements
from fairlane.store.sqlite.groups import SQL as GROUPS
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.rows import first, rows, value

SQL = statements.load("fairlane.store.sqlite", "queues.sql")
PURGE_ROWS: Final = 2_000  # rows deleted in one step; others wait some milliseconds for it
_KEYS: Final = {
    "segments": "rowid",
    "message_keys": "partition_id, key",
    "deleted_ids": "rowid",
    "cursors": "partition_id, group_id",
    "claims": "partition_id, group_id, first_pos",
    "failures": "rowid",
    "skips": "partition_id, position, group_id",
    "dead_letters": "rowid",
    "results": "rowid",
    "cancellations": "partition_id, group_id, position",
    "cancelled_ids": "partition_id, transaction_id",
    "unique_keys": "queue_id, key",
    "progress": "partition_id, group_id, position",
    "traced": "trace_id, partition_id, position",
    "traces": "rowid",
    "trace_names": "tenant_id, name, created_at, trace_id",
    "stream_state": "rowid",
    "trims": "partition_id",
    "expiries": "partition_id",
    "scheduled_keys": "partition_id, key",
    "scheduled_segments": "id",
}
"""Tables with rows of a partition, each with the columns that identify a row."""
_PURGES: Final = [
    SQL["purge_scheduled_messages"],
    *(SQL["purge_rows"].replace("<table>", table).replace("<key>", key) for table, key in _KEYS.items()),
]


def ensure_partitions(
    db: apsw.Connection, now: int, queue_ids: Sequence[int], names: Sequence[str], *, make: bool
) -> list[tuple[Any, ...]]:
    """Return the named partitions, creating or omitting missing ones. Omits partitions of deleted queues."""
    found: list[tuple[Any, ...]] = []
    queues: dict[int, tuple[bool, list[int]]] = {}
    for queue_id, name in zip(queue_ids, names, strict=True):
        if queue_id not in queues:
            row = first(db, GROUPS["options_and_depth"], queue_id)
            if row is None:
                continue
            groups = [id for (id,) in rows(db, SQL["groups"], queue_id)]
            queues[queue_id] = parse_options(row[0]).ordering == "unordered", groups
        unordered, groups = queues[queue_id]
        id = value(db, SQL["partition_id"], queue_id, name)
        if id is None and make:
            id = value(db, SQL["insert_partition"], queue_id, name, now)
            db.executemany(GROUPS["insert_cursor"], [(id, group_id, 0, None) for group_id in groups])
        if id is not None:
            found.append((id, queue_id, name, unordered))
    return found


def purge(db: apsw.Connection, queue_id: int) -> bool:
    """Delete some rows of a deleted queue. Returns False when there are none left."""
    budget = PURGE_ROWS
    while budget > 0:
        partition_id = value(db, SQL["partitions_to_purge"], queue_id)
        if partition_id is None:
            return False
        budget = _drop(db, partition_id, budget)
    return True


def drop_partition(db: apsw.Connection, partition_id: int) -> bool:
    """Remove a partition with its data. Returns False if it is too large for one step."""
    return _drop(db, partition_id, PURGE_ROWS) > 0


def _drop(db: apsw.Connection, partition_id: int, budget: int) -> int:
    """Delete up to `budget` rows of a partition, the partition row last. Returns the unused budget."""
    for statement in _PURGES:
        db.execute(statement, (partition_id, budget))
        budget -= db.changes()
        if budget <= 0:
            return 0
    db.execute(SQL["purge_partitions"], (partition_id,))
    return budget - 1
