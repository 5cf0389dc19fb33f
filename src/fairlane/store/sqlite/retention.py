"""Retention on SQLite: moves the start of partitions past messages that a rule covers."""

from __future__ import annotations

from typing import Final

import apsw
import msgspec

from fairlane.model.queue import QueueOptions
from fairlane.model.retention import (
    IDLE_SECONDS,
    LOOK_SECONDS_MAX,
    LOOK_SECONDS_MIN,
    LOOK_SHARE,
    Expired,
    Rule,
)
from fairlane.store import statements
from fairlane.store.sqlite.lanes import ADD_DEPTH, parse_options
from fairlane.store.sqlite.log import first_at_or_after, segment_time_at
from fairlane.store.sqlite.queues import drop_partition
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.unordered import open_of

SQL = statements.load("fairlane.store.sqlite", "retention.sql")
RECORD = statements.load("fairlane.store.families", "retention.sql", "sqlite")["record"]
_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_COVER: Final = 1_000
_LETTERS: Final = 500
_TRIMS: Final = 10
"""Turns of the writer that delete rows of the log in one step. Other writes happen in between."""


def expire(db: apsw.Connection, now: int, limit: int) -> tuple[list[Expired], int]:
    """Apply rules to due partitions. Returns the deletions and the number of due partitions."""
    due = rows(db, SQL["next_due"], now, limit)
    expired: list[Expired] = []
    for id, queue_id, name, start, head, used_at, text in due:
        options = parse_options(text) if text is not None else None
        any_seconds, done_seconds = _rules(options)
        if options is None or (start < head and not any_seconds and not done_seconds):
            db.execute(SQL["uncovered"], (id,))
            continue
        partition = _Partition(db, now, id, queue_id, name, start, head, options)
        if done_seconds:
            expired += partition.complete(done_seconds)
        if any_seconds:
            expired += partition.expire(any_seconds)
        next_at = partition.next_at(min(filter(None, (any_seconds, done_seconds)), default=0), used_at)
        if next_at is None:
            _record(db, now, name, gone := Expired(queue_id, "partitions", 1, 0))
            expired.append(gone)
        else:
            db.execute(SQL["looked_at"], (next_at, id))
    return expired, len(due)


def _rules(options: QueueOptions | None) -> tuple[int, int]:
    if options is None or not options.retention_enabled:
        return 0, 0
    return options.retention_seconds, options.completed_retention_seconds


class _Partition:
    """A partition that is checked."""

    def __init__(
        self,
        db: apsw.Connection,
        now: int,
        id: int,
        queue_id: int,
        name: str,
        start: int,
        head: int,
        options: QueueOptions,
    ) -> None:
        self._db = db
        self._now = now
        self._id = id
        self._queue_id = queue_id
        self._name = name
        self._start = start
        self._head = head
        self._options = options

    def complete(self, seconds: int) -> list[Expired]:
        """Delete messages that every group has finished. A group without a cursor here has finished nothing."""
        finished = value(self._db, SQL["finished_by_all"], self._id, self._queue_id)
        return [] if finished is None else self._forget("completed", min(finished, self._older_than(seconds)))

    def expire(self, seconds: int) -> list[Expired]:
        leased = value(self._db, SQL["least_leased"], self._id, self._now)
        upto = self._older_than(seconds)
        return self._forget("retention", upto if leased is None else min(upto, leased))

    def _older_than(self, seconds: int) -> int:
        at = self._now - seconds * _SECOND + 1
        return first_at_or_after(self._db, self._id, self._start, self._head, at)

    def _forget(self, rule: Rule, upto: int) -> list[Expired]:
        """Move the start, and cursors before it. Rows of the log are deleted later."""
        if upto <= self._start:
            return []
        db, id = self._db, self._id
        messages = upto - self._start - value(db, SQL["holes"], id, self._start, upto)
        open_before = self._open()
        db.execute(SQL["count_expired"], (id, upto))
        db.execute(SQL["delete_parts"], (id, upto, self._now))
        db.execute(SQL["forget_claims"], (id, upto))
        db.execute(SQL["cut_claims"], (id, upto))
        db.execute(SQL["forget_failures"], (id, upto))
        db.execute(SQL["forget_skips"], (id, upto))
        db.execute(SQL["move_cursors"], (id, upto, self._head, self._now))
        db.execute(SQL["move_start"], (upto, id))
        db.execute(SQL["to_trim"], (id,))
        unread = open_before - self._open()
        if self._options.max_size:
            db.execute(ADD_DEPTH, (-unread, self._queue_id))
        self._start = upto
        gone = Expired(self._queue_id, rule, messages, unread)
        _record(db, self._now, self._name, gone)
        return [gone]

    def _open(self) -> int:
        """Return the number of messages that some group has not finished."""
        ahead: int = value(self._db, SQL["open_messages"], self._id)
        return ahead + sum(open_of(self._db, "partitions", f"[{self._id}]").values())

    def next_at(self, seconds: int, used_at: int) -> int | None:
        """Return the time of the next check. None if the partition was deleted."""
        if self._start < self._head:
            first_at = segment_time_at(self._db, self._id, self._start)
            next_at = first_at + seconds * _SECOND
            if next_at > self._now:
                return next_at
            pause = (self._now - first_at) // LOOK_SHARE
            return self._now + min(max(pause, LOOK_SECONDS_MIN * _SECOND), LOOK_SECONDS_MAX * _SECOND)
        next_at = used_at + max(IDLE_SECONDS, self._options.dedup_seconds) * _SECOND
        if next_at > self._now:
            return next_at
        wanted = value(self._db, SQL["still_wanted"], self._id)
        if wanted or not drop_partition(self._db, self._id):
            return self._now + LOOK_SECONDS_MAX * _SECOND
        return None


def _record(db: apsw.Connection, now: int, partition: str, gone: Expired) -> None:
    db.execute(RECORD, {"now": now, "partition": partition, **msgspec.structs.asdict(gone)})
