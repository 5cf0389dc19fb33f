"""Appending to the log: one segment for each slice, or more when it is large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import apsw
import msgspec

from fairlane.model.limits import SEGMENT_BYTES_MAX
from fairlane.model.segment import checksum, ids_of
from fairlane.store.sqlite.dedup import FRESH_US, Lookup, is_fresh
from fairlane.store.sqlite.lanes import ADD_DEPTH, parse_options
from fairlane.store.sqlite.log import SQL, pack_keys
from fairlane.store.sqlite.rows import first
from fairlane.store.sqlite.seeding import seed_partition
from fairlane.store.values import Behind, Duplicates, Full, Gone, PushResult, Slice, Stored


class _Queue(msgspec.Struct):
    """A queue that a call pushes to."""

    max_size: int
    depth: int
    seeding: bool
    expires_after: int
    """Microseconds after which a first message may go by a retention rule; 0 if none does."""
    coming: int = 0

    @property
    def full(self) -> bool:
        return self.max_size > 0 and self.depth + self.coming > self.max_size


class _Log(msgspec.Struct):
    """Where a partition's log ends."""

    queue_id: int
    head: int
    last_at: int
    newest_id_at: int
    keyed_until: int
    open_operations: int
    start: int


def push(db: apsw.Connection, now: int, slices: Sequence[Slice]) -> list[PushResult]:
    queues: dict[int, _Queue | None] = {}
    checked: list[tuple[Slice, _Queue, _Log] | PushResult] = []
    for slice in slices:
        if slice.queue_id not in queues:
            queues[slice.queue_id] = _queue(db, slice.queue_id)
        checked.append(_check(db, now, slice, queues[slice.queue_id]))
    results: list[PushResult] = []
    for item in checked:
        if not isinstance(item, tuple):
            results.append(item)
        elif item[1].full:
            results.append(Full(item[1].depth, item[1].max_size))
        else:
            results.append(_append(db, now, *item))
    for queue_id, queue in queues.items():
        if queue is not None and queue.max_size and queue.coming and not queue.full:
            db.execute(ADD_DEPTH, (queue.coming, queue_id))
    return results


def _queue(db: apsw.Connection, queue_id: int) -> _Queue | None:
    row = first(db, SQL["queue_of_push"], queue_id)
    if row is None:
        return None
    options = parse_options(row[0])
    return _Queue(options.max_size, row[1], bool(row[2]), options.expires_after * 1_000_000)


def _check(
    db: apsw.Connection, now: int, slice: Slice, queue: _Queue | None
) -> tuple[Slice, _Queue, _Log] | PushResult:
    """What is needed to append the slice, or why it is not; capacity is judged when all slices are known."""
    row = first(db, SQL["partition_log"], slice.partition.id) if slice.partition.shard == 0 else None
    if queue is None or row is None or row[0] != slice.queue_id:
        return Gone()
    if queue.max_size and not slice.options.max_size:
        return Gone()  # the caller does not know yet that it may be refused
    log = _Log(*row)
    if log.open_operations:
        return Behind()
    # Ids that are all newer than any stored one, the common case, need no look.
    if slice.options.dedup_seconds and True in slice.given and min(slice.id_times) * 1000 <= log.newest_id_at:
        lookup = Lookup(db, slice, head=log.head, now=now)
        if found := lookup.run(newest_id_at=log.newest_id_at, keyed_until=log.keyed_until):
            return Duplicates(found)
    queue.coming += len(slice.fragments)
    return slice, queue, log


def _append(db: apsw.Connection, now: int, slice: Slice, queue: _Queue, log: _Log) -> Stored:
    partition_id, at = slice.partition.id, max(log.last_at, now)
    depth = (queue.depth + queue.coming, queue.max_size) if queue.max_size else (None, None)
    if not slice.fragments:
        return Stored(log.head, at, *depth)
    if queue.seeding:
        seed_partition(db, slice.queue_id, partition_id, now)
    db.executemany(SQL["insert_segment"], _segments(slice, log.head, at))
    newest, oldest = max(slice.id_times) * 1000, min(slice.id_times) * 1000
    keyed_until = log.keyed_until
    if not (newest <= at and at - FRESH_US <= oldest and oldest >= 0):
        db.executemany(SQL["insert_key"], _keys(slice, log.head, at))
        if newest > at:
            keyed_until = max(keyed_until, newest)
    head = log.head + len(slice.fragments)
    db.execute(SQL["move_head"], (head, at, max(log.newest_id_at, newest), keyed_until, partition_id))
    db.execute(SQL["wake"], (now, partition_id))
    if queue.expires_after and log.start == log.head:
        db.execute(SQL["expires_at"], (partition_id, at + queue.expires_after))
    return Stored(log.head, at, *depth)


def _segments(slice: Slice, first_pos: int, at: int) -> list[tuple[Any, ...]]:
    rows = []
    for low, high in _cuts(slice.fragments):
        fragments = slice.fragments[low:high]
        body = b"".join(fragments)
        ends = msgspec.json.encode(list(accumulate(map(len, fragments)))).decode()
        keys = pack_keys(slice.keys[low:high])
        position = first_pos + low
        rows.append((slice.partition.id, position, high - low, at, checksum(body), ends, keys, body))
    return rows


def _cuts(fragments: list[bytes]) -> Iterator[tuple[int, int]]:
    """Where to cut, so that no segment of several messages is larger than it may be."""
    if sum(map(len, fragments)) <= SEGMENT_BYTES_MAX:
        yield 0, len(fragments)
        return
    low = size = 0
    for index, fragment in enumerate(fragments):
        if size and size + len(fragment) > SEGMENT_BYTES_MAX:
            yield low, index
            low, size = index, 0
        size += len(fragment)
    yield low, len(fragments)


def _keys(slice: Slice, first_pos: int, at: int) -> Iterator[tuple[Any, ...]]:
    """The rows of the ids that their segment's time would not lead to."""
    for index, id_time in enumerate(slice.id_times):
        if not is_fresh(id_time, at):
            message_id, _ = ids_of(slice.fragments[index])
            transaction_id = slice.transaction_ids[index]
            yield slice.partition.id, slice.keys[index], transaction_id, message_id, first_pos + index, at
