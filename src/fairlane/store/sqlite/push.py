"""Push: appends to the log, one segment for each slice, or more when it is large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import apsw
import msgspec

from fairlane.model.limits import SEGMENT_BYTES_MAX
from fairlane.model.segment import checksum, encode, ids_of, may_be_traced, traces_of
from fairlane.store.contract.values import Duplicates, Full, Gone, OperationsAhead, PushResult, Slice, Stored
from fairlane.store.sqlite.dedup import FRESH_US, Lookup, is_fresh
from fairlane.store.sqlite.lanes import ADD_DEPTH, parse_options
from fairlane.store.sqlite.log import SQL, pack_keys
from fairlane.store.sqlite.rows import first, value, write_rows
from fairlane.store.sqlite.seeding import seed_partition


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


class _Log(msgspec.Struct, array_like=True):
    """The end of a partition's log."""

    id: int
    queue_id: int
    head: int
    last_at: int
    newest_id_at: int
    keyed_until: int
    open_operations: int
    start: int
    doubted_until: int


_decode_logs = msgspec.json.Decoder(list[_Log]).decode


class _Turn:
    """The rows of one call, so that each statement runs once for all slices: a statement for each would be most of
    the work, and hand the interpreter to and fro between its steps."""

    def __init__(self, db: apsw.Connection, now: int) -> None:
        self._db = db
        self.now = now
        self.queues: dict[int, _Queue | None] = {}
        self.segments: list[tuple[Any, ...]] = []
        self.keys: list[tuple[Any, ...]] = []
        self.heads: list[tuple[int, int, int, int, int, int]] = []
        self.expiries: list[tuple[int, int]] = []
        self.traced: list[tuple[str, int, int]] = []

    def logs(self, slices: Sequence[Slice]) -> dict[int, _Log]:
        ids = [slice.partition.id for slice in slices if slice.partition.shard == 0]
        return {log.id: log for log in _decode_logs(value(self._db, SQL["partition_logs"], encode(ids).decode()))}

    def queue(self, queue_id: int) -> _Queue | None:
        if queue_id not in self.queues:
            self.queues[queue_id] = _queue(self._db, queue_id)
        return self.queues[queue_id]

    def write(self) -> None:
        db = self._db
        write_rows(db, SQL["insert_segment"], self.segments)
        if self.keys:
            write_rows(db, SQL["insert_key"], self.keys)
        write_rows(db, SQL["move_head"], self.heads)
        db.execute(SQL["wake"], (self.now, encode([head[-1] for head in self.heads]).decode()))
        if self.expiries:
            db.executemany(SQL["expires_at"], self.expiries)
        if self.traced:
            db.executemany(SQL["add_traced"], self.traced)
        for queue_id, queue in self.queues.items():
            if queue is not None and queue.max_size and queue.coming and not queue.full:
                db.execute(ADD_DEPTH, (queue.coming, queue_id))


def push(db: apsw.Connection, now: int, slices: Sequence[Slice]) -> list[PushResult]:
    turn = _Turn(db, now)
    logs = turn.logs(slices)
    checked = [_check(db, now, slice, turn.queue(slice.queue_id), logs.get(slice.partition.id)) for slice in slices]
    results: list[PushResult] = []
    for item in checked:
        if not isinstance(item, tuple):
            results.append(item)
        elif item[1].full:
            results.append(Full(item[1].depth, item[1].max_size))
        else:
            results.append(_append(db, turn, *item))
    turn.write()
    return results


def _queue(db: apsw.Connection, queue_id: int) -> _Queue | None:
    row = first(db, SQL["queue_of_push"], queue_id)
    if row is None:
        return None
    options = parse_options(row[0])
    return _Queue(options.max_size, row[1], bool(row[2]), options.expires_after * 1_000_000)


def _check(
    db: apsw.Connection, now: int, slice: Slice, queue: _Queue | None, log: _Log | None
) -> tuple[Slice, _Queue, _Log] | PushResult:
    """What is needed to append the slice, or why it is not; capacity is judged when all slices are known."""
    if queue is None or log is None or log.queue_id != slice.queue_id or slice.partition.shard != 0:
        return Gone()
    if queue.max_size and not slice.options.max_size:
        return Gone()  # the caller does not know yet that it may be refused
    if log.open_operations:
        return OperationsAhead()
    # Ids that are all newer than any stored one, the common case, need no look. Nor do those that cannot be duplicates,
    # unless ids of their time were pushed in doubt: a call that was given up on and repeated may come only now.
    known = log.newest_id_at if True in slice.given else log.doubted_until
    if slice.options.dedup_seconds and min(slice.id_times) * 1000 <= known:
        lookup = Lookup(db, slice, head=log.head, now=now)
        if found := lookup.run(
            newest_id_at=log.newest_id_at, keyed_until=log.keyed_until, doubted_until=log.doubted_until
        ):
            return Duplicates(found)
    queue.coming += len(slice.fragments)
    return slice, queue, log


def _append(db: apsw.Connection, turn: _Turn, slice: Slice, queue: _Queue, log: _Log) -> Stored:
    """Add the slice's rows to the turn's."""
    at = max(log.last_at, turn.now)
    depth = (queue.depth + queue.coming, queue.max_size) if queue.max_size else (None, None)
    if not slice.fragments:
        return Stored(log.head, at, *depth)
    if queue.seeding:
        seed_partition(db, slice.queue_id, log.id, turn.now)
    turn.segments += _segments(slice, log.head, at)
    newest, oldest = max(slice.id_times) * 1000, min(slice.id_times) * 1000
    keyed_until = log.keyed_until
    if not (newest <= at and at - FRESH_US <= oldest and oldest >= 0):
        turn.keys += _keys(slice, log.head, at)
        if newest > at:
            keyed_until = max(keyed_until, newest)
    if slice.traced and may_be_traced(slice.fragments):
        turn.traced += [(trace, log.id, log.head + index) for index, trace in traces_of(slice.fragments)]
    head = log.head + len(slice.fragments)
    doubted_until = max(log.doubted_until, min(newest, at + FRESH_US)) if True in slice.given else log.doubted_until
    turn.heads.append((head, at, max(log.newest_id_at, newest), keyed_until, doubted_until, log.id))
    if queue.expires_after and log.start == log.head:
        turn.expiries.append((log.id, at + queue.expires_after))
    return Stored(log.head, at, *depth)


def _segments(slice: Slice, first_pos: int, at: int) -> list[tuple[Any, ...]]:
    rows = []
    for low, high in _cuts(slice.fragments):
        fragments = slice.fragments[low:high]
        body = b"".join(fragments)
        ends = encode(list(accumulate(map(len, fragments)))).decode()
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
