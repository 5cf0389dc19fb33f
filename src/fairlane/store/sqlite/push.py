"""Push on SQLite: appends one segment per slice, or more if it is large."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct, pack
from typing import Any
from zlib import crc32

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.segment import cuts, encode, ids_of, may_be_traced, traces_of
from fairlane.store.contract.values import (
    Duplicate,
    Duplicates,
    Full,
    Gone,
    OperationsAhead,
    PushResult,
    Slice,
    Stored,
    merged,
    repeats,
)
from fairlane.store.sqlite.dedup import FRESH_US, Lookup, is_fresh
from fairlane.store.sqlite.groups import seed_partition
from fairlane.store.sqlite.lanes import ADD_DEPTH, parse_options
from fairlane.store.sqlite.log import SQL
from fairlane.store.sqlite.rows import rows as read_rows
from fairlane.store.sqlite.rows import write_rows

_pack_key = Struct(">q").pack


class _Queue(msgspec.Struct, array_like=True):
    """A queue that a call pushes to."""

    id: int
    options: str
    depth: int
    seeding: int
    max_size: int = 0
    expires_us: int = 0
    """Age at which a retention rule may delete the first message. 0 if none does."""
    coming: int = 0


class _LogEnd(msgspec.Struct, array_like=True):
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


class _Rows(msgspec.Struct):
    """Rows of one call, so that each statement runs once for all slices.

    One statement per slice would be most of the work, and would release the GIL at each step.
    """

    segments: list[tuple[Any, ...]] = []
    keys: list[tuple[Any, ...]] = []
    heads: list[tuple[Any, ...]] = []
    expiries: list[tuple[int, int]] = []
    traced: list[tuple[str, int, int]] = []


_decode_logs = msgspec.json.Decoder(list[_LogEnd]).decode
_decode_queues = msgspec.json.Decoder(list[_Queue]).decode


@lru_cache(maxsize=4096)
def _limits(options: str) -> tuple[int, int]:
    parsed = parse_options(options)
    return parsed.max_size, parsed.expires_after * 1_000_000


def push(db: apsw.Connection, now: int, slices: Sequence[Slice]) -> list[PushResult]:
    if len(slices) > 1 and (repeated := repeats(slices)):
        firsts = push(db, now, [slice for index, slice in enumerate(slices) if index not in repeated])
        return merged(repeated, firsts, push(db, now, [slices[index] for index in repeated]))
    ids = encode([slice.partition.id for slice in slices]).decode()
    queue_ids = encode(list({slice.queue_id for slice in slices})).decode()
    found: Any = db.execute(SQL["logs_and_queues"], (ids, queue_ids)).fetchall()
    [(found_logs, found_queues)] = found
    logs = {log.id: log for log in _decode_logs(found_logs)}
    queues = {queue.id: queue for queue in _decode_queues(found_queues)}
    for queue in queues.values():
        queue.max_size, queue.expires_us = _limits(queue.options)
    results: list[PushResult] = []
    rows = _Rows()
    limited: list[tuple[int, Slice, _Queue, _LogEnd]] = []
    for index, slice in enumerate(slices):
        log, known = logs.get(slice.partition.id), queues.get(slice.queue_id)
        if known is None or log is None or log.queue_id != slice.queue_id:
            results.append(Gone())
        elif known.max_size and not slice.options.max_size:
            results.append(Gone())  # the caller does not know yet that it may be refused
        elif log.open_operations:
            results.append(OperationsAhead())
        elif slice.options.dedup_seconds and (stored := _stored(db, now, slice, log)):
            results.append(Duplicates(stored))
        elif not known.max_size:
            results.append(_append(db, now, rows, slice, known, log))
        else:
            known.coming += len(slice.fragments)
            limited.append((index, slice, known, log))
            results.append(Full(known.depth, known.max_size))
    for index, slice, queue, log in limited:  # only now the totals of each queue are known
        if queue.depth + queue.coming <= queue.max_size:
            results[index] = _append(db, now, rows, slice, queue, log)
    if rows.heads:
        _write(db, now, rows)
        for queue in queues.values():
            if queue.max_size and queue.coming and queue.depth + queue.coming <= queue.max_size:
                db.execute(ADD_DEPTH, (queue.coming, queue.id))
    return results


def _stored(db: apsw.Connection, now: int, slice: Slice, log: _LogEnd) -> list[Duplicate]:
    """Return the messages of a slice that are stored, in its partition or in a lane of it by priority."""
    found: list[Duplicate] = []
    # Ids that are all newer than any stored one, the common case, need no lookup. Ids that cannot be duplicates do not
    # either, unless ids of their time were pushed in doubt: an abandoned call and its retry may arrive only now.
    if min(slice.id_times) * 1000 <= (log.newest_id_at if True in slice.given else log.doubted_until):
        found = Lookup(db, slice, head=log.head, now=now).run(
            newest_id_at=log.newest_id_at, keyed_until=log.keyed_until, doubted_until=log.doubted_until
        )
    if found or slice.options.ordering != "unordered" or not slice.has_sibling_ids:
        return found
    for id, head, newest, keyed, doubted in read_rows(db, SQL["lanes_by_priority"], log.id):
        lane = PartitionId.of(id)
        beside = Lookup(db, msgspec.structs.replace(slice, partition=lane), head=head, now=now).run(
            newest_id_at=newest, keyed_until=keyed, doubted_until=doubted
        )
        found += [msgspec.structs.replace(one, partition=lane) for one in beside]
    return found


def _append(db: apsw.Connection, now: int, rows: _Rows, slice: Slice, queue: _Queue, log: _LogEnd) -> Stored:
    """Add the slice's rows to the rows of the call."""
    fragments, keys, at = slice.fragments, slice.keys, max(log.last_at, now)
    depth = (queue.depth + queue.coming, queue.max_size) if queue.max_size else (None, None)
    if not fragments:
        return Stored(log.head, at, *depth)
    if queue.seeding:
        seed_partition(db, slice.queue_id, log.id, now)
    if len(fragments) == 1:  # the common case of producers that push single messages
        body = fragments[0]
        ends, packed = f"[{len(body)}]", _pack_key(keys[0])
        rows.segments.append((log.id, log.head, 1, at, crc32(body), ends, packed, body))
        newest = oldest = slice.id_times[0] * 1000
    else:
        lengths = list(map(len, fragments))
        for low, high in cuts(lengths):
            body = b"".join(fragments[low:high])
            ends = encode(list(accumulate(lengths[low:high]))).decode()
            packed = pack(f">{high - low}q", *keys[low:high])
            rows.segments.append((log.id, log.head + low, high - low, at, crc32(body), ends, packed, body))
        newest, oldest = max(slice.id_times) * 1000, min(slice.id_times) * 1000
    keyed_until, doubted_until = log.keyed_until, log.doubted_until
    if not (newest <= at and at - FRESH_US <= oldest and oldest >= 0):
        rows.keys += [  # ids that cannot be found by the time of their segment
            (log.id, keys[index], slice.transaction_ids[index], ids_of(fragments[index])[0], log.head + index, at)
            for index, id_time in enumerate(slice.id_times)
            if not is_fresh(id_time, at)
        ]
        if newest > at:
            keyed_until = max(keyed_until, newest)
    if slice.traced and may_be_traced(fragments):
        rows.traced += [(trace, log.id, log.head + index) for index, trace in traces_of(fragments)]
    if True in slice.given:
        doubted_until = max(doubted_until, min(newest, at + FRESH_US))
    head = (log.head + len(fragments), at, max(log.newest_id_at, newest), keyed_until, doubted_until, log.id)
    rows.heads.append(head)
    if queue.expires_us and log.start == log.head:
        rows.expiries.append((log.id, at + queue.expires_us))
    return Stored(log.head, at, *depth)


def _write(db: apsw.Connection, now: int, rows: _Rows) -> None:
    if len(rows.segments) == 1:
        db.execute(SQL["insert_segment"], rows.segments[0])
        db.execute(SQL["move_head"], rows.heads[0])
    else:
        write_rows(db, SQL["insert_segment"], rows.segments)
        write_rows(db, SQL["move_head"], rows.heads)
    if rows.keys:
        write_rows(db, SQL["insert_key"], rows.keys)
    db.execute(SQL["wake"], (now, encode([head[-1] for head in rows.heads]).decode()))
    if rows.expiries:
        db.executemany(SQL["expires_at"], rows.expiries)
    if rows.traced:
        db.executemany(SQL["add_traced"], rows.traced)
