"""Scheduled messages on SQLite."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec

from fairlane.model.queue import QueueOptions
from fairlane.model.segment import ids_of
from fairlane.store import statements
from fairlane.store.contract.values import (
    NO_ID_TIME,
    NOT_DUE,
    Added,
    Appended,
    Duplicate,
    Duplicates,
    Gone,
    ScheduledSlice,
    Slice,
)
from fairlane.store.families import scheduled
from fairlane.store.families.query import QueryRunner
from fairlane.store.families.scheduled import (
    APPEND_BYTES_MAX,
    ROUNDS_MAX,
    Appending,
    OpenedSegment,
    SegmentProgress,
    ends_of,
    oldest,
    progress_of,
    repeated_ids,
    segments_of,
)
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.dedup import FRESH_US, Lookup, is_fresh
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.queues import ensure_partitions
from fairlane.store.sqlite.rows import first, rows, value

FULL_PAUSE_US = 1_000_000  # messages of a full queue are retried after this
SQL = statements.load("fairlane.store.sqlite", "scheduled.sql")
_numbers = msgspec.json.Decoder(list[int]).decode


class ScheduledMessages(scheduled.ScheduledMessages):
    def __init__(self, runner: QueryRunner, database: Database) -> None:
        super().__init__(runner)
        self._database = database

    async def add(self, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone]:
        sealed = await self._database.codec.seal_scheduled(parts)
        return await self._database.write(lambda db, now: add(db, now, sealed))

    async def append_due(self, *, limit: int = 1000) -> Appended:
        return await self._database.write(lambda db, now: _append_due(db, now, limit))


def change(
    db: apsw.Connection, partition_id: int, id: bytes, keys: Sequence[int], id_ms: int, *, move: bool, at: int
) -> int | None:
    """Reschedule a message for `at`, or cancel it. Returns `at`, or None if the message is not scheduled."""
    found = _entry_of(db, partition_id, keys, id_ms, msgspec.json.decode(id))
    if found is None:
        return None
    if move:
        _reinsert(db, found, at)
    else:
        _take_out(db, found)
    return at


def contains(db: apsw.Connection, partition_id: int, id: bytes, keys: Sequence[int], id_ms: int) -> bool:
    return _entry_of(db, partition_id, keys, id_ms, msgspec.json.decode(id)) is not None


def add(db: apsw.Connection, now: int, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone]:
    results: list[Added | Duplicates | Gone] = []
    added = []
    for part in parts:
        if part.repeated:
            newest = min(max(part.slice.id_times) * 1000, now + FRESH_US)
            db.execute(SQL["doubt"], (newest, part.partition.id))
        if refusal := _refusal(db, now, part.slice):
            results.append(refusal)
            continue
        added.append(part)
        times = zip(part.due_at, part.delay_ms, strict=True)
        results.append(Added([now + delay * 1000 if at is None else at for at, delay in times]))
    _insert(db, now, added)
    return results


def _refusal(db: apsw.Connection, now: int, slice: Slice) -> Duplicates | Gone | None:
    log = first(db, LOG["partition_log"], slice.partition.id)
    if log is None or log[0] != slice.queue_id or value(db, SQL["options"], slice.queue_id) is None:
        return Gone()
    _, head, _, newest_id_at, keyed_until, doubted_until = log
    # Ids that cannot be duplicates need no lookup, unless ids of their time are in doubt: see `push`.
    if True not in slice.given and min(slice.id_times) * 1000 > doubted_until:
        return None
    if repeated := repeated_ids(slice):
        return Duplicates(repeated)
    found: dict[int, Duplicate] = {}
    if slice.options.dedup_seconds:
        lookup = Lookup(db, slice, head=head, now=now)
        stored = lookup.run(newest_id_at=newest_id_at, keyed_until=keyed_until, doubted_until=doubted_until)
        found = {one.index: one for one in stored}
    seen: dict[int, int] = {}
    for index, given in enumerate(slice.given):
        if (given or slice.id_times[index] * 1000 <= doubted_until) and index not in found:
            if (twin := seen.setdefault(slice.keys[index], index)) != index:
                found[index] = Duplicate(index, NOT_DUE, *ids_of(slice.fragments[twin]))
            elif entry := next(_entries(db, slice.partition.id, [slice.keys[index]], slice.id_times[index]), None):
                found[index] = Duplicate(index, NOT_DUE, *ids_of(entry.fragment(db)), due_at=entry.due_at)
    return Duplicates([found[index] for index in sorted(found)]) if found else None


def _insert(db: apsw.Connection, now: int, parts: Sequence[ScheduledSlice]) -> None:
    id: int = value(db, SQL["last_segment"])
    found: list[tuple[Any, ...]] = []
    messages: list[tuple[Any, ...]] = []
    keys: list[tuple[int, int, int]] = []
    for part in parts:
        slice = part.slice
        for segment in segments_of(part):
            id += 1
            due = [now + at for at in segment.due] if segment.relative else segment.due
            fragments = [slice.fragments[index] for index in segment.items]
            stale = [slice.keys[index] for index in segment.items if not is_fresh(slice.id_times[index], now)]
            keys += [(slice.partition.id, key, id) for key in stale]
            where = (slice.partition.id, slice.queue_id, part.partition_name)
            found.append((id, *where, now, due[0], due[-1], len(due), bool(stale)))
            columns = (due, ends_of(fragments), [slice.keys[index] for index in segment.items])
            messages.append((id, *map(_text_of, columns), b"".join(fragments)))
    db.executemany(SQL["insert_segment"], found)
    db.executemany(SQL["insert_messages"], messages)
    db.executemany(SQL["insert_key"], keys)


def _append_due(db: apsw.Connection, now: int, limit: int) -> Appended:
    opened, cut, keyed = _due(db, now, limit)
    appending = Appending(oldest(opened, cut))
    for _ in range(ROUNDS_MAX):
        slices = appending.slices(_options(db, {some[0].queue_id for some in appending.left.values()}))
        if not slices:
            break
        for queue_id, name in appending.apply(slices, push(db, now, slices)):
            for id, *_ in ensure_partitions(db, now, [queue_id], [name], make=True):
                appending.move(name, queue_id, id)
    appending.postponed += [row for some in appending.left.values() for row in some]
    for progress in progress_of(opened, appending.done, appending.postponed):
        _proceed(db, progress, now + FULL_PAUSE_US, keyed=progress.segment.id in keyed)
    return Appended(dict(appending.appended), len(appending.done) + len(appending.postponed))


def _options(db: apsw.Connection, queue_ids: set[int]) -> dict[int, QueueOptions]:
    found = {id: value(db, SQL["options"], id) for id in queue_ids}
    return {id: parse_options(text) for id, text in found.items() if text is not None}


def _text_of(numbers: Sequence[int]) -> str:
    return msgspec.json.encode(numbers).decode()


class _ScheduledEntry(msgspec.Struct, frozen=True):
    """A scheduled message, at `index` of its segment."""

    index: int
    key: int
    due_at: int
    low: int
    high: int
    segment_id: int
    created_at: int
    taken: int
    n: int
    keyed: bool
    partition_id: int
    queue_id: int
    partition_name: str

    def fragment(self, db: apsw.Connection) -> bytes:
        found: bytes = value(db, SQL["body"], self.segment_id, self.low + 1, self.high - self.low)
        return found


def _entries(db: apsw.Connection, partition_id: int, keys: Sequence[int], id_ms: int) -> Iterator[_ScheduledEntry]:
    """Yield messages with one of these keys, for an id with this time."""
    found = rows(db, SQL["keyed_segment"], partition_id, keys[0], keys[-1])
    if id_ms != NO_ID_TIME:
        since = id_ms * 1000
        found += rows(db, SQL["segments_of_time"], partition_id, since, since + FRESH_US)
    for row in found:
        id, _, taken, n, *_ = row
        due, ends, those = map(_numbers, first(db, SQL["messages"], id))
        for index in range(taken, n):
            if those[index] in keys:
                low = ends[index - 1] if index else 0
                yield _ScheduledEntry(index, those[index], due[index], low, ends[index], *row)


def _entry_of(
    db: apsw.Connection, partition_id: int, keys: Sequence[int], id_ms: int, transaction_id: str
) -> _ScheduledEntry | None:
    for entry in _entries(db, partition_id, keys, id_ms):
        if ids_of(entry.fragment(db))[1] == transaction_id:
            return entry
    return None


def _take_out(db: apsw.Connection, entry: _ScheduledEntry) -> bytes:
    """Remove a message from its segment. Returns its stored form."""
    fragment = entry.fragment(db)
    _drop(db, entry.segment_id, entry.n, entry.taken, [entry.index])
    if entry.keyed:
        db.execute(SQL["delete_keys"], (entry.partition_id, entry.segment_id, _text_of([entry.key])))
    return fragment


def _reinsert(db: apsw.Connection, entry: _ScheduledEntry, at: int) -> None:
    """Reschedule a message, in a segment of its own. It is still found by its id."""
    fragment = _take_out(db, entry)
    id: int = value(db, SQL["last_segment"]) + 1
    where = (entry.partition_id, entry.queue_id, entry.partition_name, entry.created_at)
    db.execute(SQL["insert_segment"], (id, *where, at, at, 1, entry.keyed))
    columns = map(_text_of, ([at], [len(fragment)], [entry.key]))
    db.execute(SQL["insert_messages"], (id, *columns, fragment))
    if entry.keyed:
        db.execute(SQL["insert_key"], (entry.partition_id, entry.key, id))


def _drop(db: apsw.Connection, id: int, n: int, taken: int, indexes: Sequence[int]) -> None:
    if taken + len(indexes) == n:
        _delete(db, id)
        return
    due, ends, keys = map(_numbers, first(db, SQL["messages"], id))
    body: bytes = value(db, SQL["body"], id, 1, ends[-1])
    for index in sorted(indexes, reverse=True):
        low, high = ends[index - 1] if index else 0, ends[index]
        body = body[:low] + body[high:]
        ends = [*ends[:index], *(end - (high - low) for end in ends[index + 1 :])]
        del due[index], keys[index]
    db.execute(SQL["change_messages"], (id, _text_of(due), _text_of(ends), _text_of(keys), body))
    db.execute(SQL["change_segment"], (id, len(due), due[taken], due[-1]))


def _delete(db: apsw.Connection, id: int) -> None:
    db.execute(SQL["delete_segment"], (id,))
    db.execute(SQL["delete_messages"], (id,))


def _due(db: apsw.Connection, now: int, limit: int) -> tuple[list[OpenedSegment[int]], int | None, set[int]]:
    """Return segments with up to `limit` due messages, the time from which others may follow, and the keyed ones."""
    opened: list[OpenedSegment[int]] = []
    keyed: set[int] = set()
    size = count = 0
    for id, partition_id, queue_id, name, n, taken, has_keys, next_at in rows(db, SQL["due"], now, limit + 1):
        if count >= limit or size >= APPEND_BYTES_MAX:
            return opened, min(next_at, opened[-1].next_due or next_at), keyed
        times, ends, keys = map(_numbers, first(db, SQL["messages"], id))
        upto = min(bisect_right(times, now), taken + limit - count)
        low = ends[taken - 1] if taken else 0
        body = value(db, SQL["body"], id, low + 1, ends[upto - 1] - low)
        opened.append(
            OpenedSegment(
                *(id, partition_id, queue_id, name, n, taken, times[taken:upto]),
                next_due=times[upto] if upto < n else None,
                keys=keys[taken:upto],
                ends=[end - low for end in ends[taken:upto]],
                body=body,
            )
        )
        count += upto - taken
        size += len(body)
        if has_keys:
            keyed.add(id)
    return opened, opened[-1].next_due if opened and count >= limit else None, keyed


def _proceed(db: apsw.Connection, progress: SegmentProgress[int], pause_until: int, *, keyed: bool) -> None:
    """Record what was appended."""
    segment = progress.segment
    if keyed and progress.keys:
        db.execute(SQL["delete_keys"], (segment.partition_id, segment.id, _text_of(progress.keys)))
    if progress.is_finished:
        _delete(db, segment.id)
        return
    if progress.holes:
        _drop(db, segment.id, segment.n, segment.taken + progress.gone, progress.holes)
    next_at = pause_until if progress.next_at is None else progress.next_at
    db.execute(SQL["proceed"], (segment.id, segment.taken + progress.gone, next_at))
