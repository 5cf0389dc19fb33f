"""Slices as the arrays that `fairlane.push` takes, and its rows as results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import asyncpg

from fairlane.model.ids import PartitionId
from fairlane.model.segment import checksum, cuts, encode, ids_of
from fairlane.store.contract.values import Duplicate, Duplicates, Full, Gone, OperationsAhead, PushResult, Slice, Stored

_FAR = 2**62


def arguments(
    shard: int, slices: Sequence[Slice], limited: list[int], *, texts: bool, now: int | None
) -> tuple[object, ...]:
    """`slices` are of one shard and sorted by partition. `texts`: send the ids' texts, for the keys table."""
    upto: list[int] = []
    bytes_max: list[int] = []
    oldest: list[int] = []
    newest: list[int] = []
    given_oldest: list[int] = []
    keys: list[int] = []
    times: list[int] = []
    ends: list[int] = []
    cuts_of: list[int] = []
    firsts: list[int] = []
    counts: list[int] = []
    checksums: list[int] = []
    bodies: list[bytes] = []
    """Of each segment: number of its slice, index of its first message, how many, checksum, body."""
    for number, part in enumerate(slices, 1):
        lengths = list(map(len, part.fragments))
        bytes_max.append(max(lengths))
        oldest.append(min(part.id_times))
        newest.append(max(part.id_times))
        if True in part.given:
            given_oldest.append(min(at for at, maybe in zip(part.id_times, part.given, strict=True) if maybe))
        else:
            given_oldest.append(_FAR)
        for low, high in cuts(lengths):
            body = b"".join(part.fragments[low:high])
            ends += accumulate(lengths[low:high])
            cuts_of.append(number)
            firsts.append(len(keys) + low + 1)
            counts.append(high - low)
            checksums.append(checksum(body))
            bodies.append(body)
        keys += part.keys
        times += part.id_times
        upto.append(len(keys))
    ids, queues = [part.partition.id for part in slices], [part.queue_id for part in slices]
    windows = [part.options.dedup_seconds for part in slices]
    by_slice = (limited, ids, queues, upto, bytes_max, oldest, newest, given_oldest, windows)
    return (
        shard,
        *map(_array, (*by_slice, keys, times, ends, cuts_of, firsts, counts, checksums)),
        bodies,
        [fragment[7:43].decode() for part in slices for fragment in part.fragments] if texts else [],
        [text for part in slices for text in part.transaction_ids] if texts else [],
        [number for number, part in enumerate(slices, 1) if part.has_sibling_ids],
        now,
    )


def _array(numbers: list[int]) -> str:
    """A PostgreSQL array literal; JSON writes the numbers several times as fast as `str` does."""
    return f"{{{encode(numbers)[1:-1].decode()}}}"


def wants_texts(rows: Sequence[asyncpg.Record]) -> bool:
    return bool(rows) and rows[-1][0] == b"k"


def clock_of(rows: Sequence[asyncpg.Record]) -> int | None:
    """The database's time, or a little before it, if something was stored. A message may have a later one: none in its
    partition is earlier than the one before it."""
    for kind, _, ahead_ms, _, at, *_ in rows:
        if kind == b"s":
            return int(at) - (ahead_ms + 1) * 1000 if ahead_ms else int(at)
    return None


def results(rows: Sequence[asyncpg.Record], slices: Sequence[Slice]) -> list[PushResult]:
    """Return the result of each slice."""
    found: list[PushResult] = [Gone()] * len(slices)
    for kind, slice_number, item, pos, at, depth, capacity, head, message_id, transaction_id in rows:
        index = slice_number - 1
        if kind == b"s":
            found[index] = Stored(pos, at, depth, capacity)
        elif kind == b"f":
            found[index] = Full(depth, capacity)
        elif kind == b"o":
            found[index] = OperationsAhead()
        elif kind == b"d":
            known_id, known_as = ids_of(head) if head is not None else (message_id, transaction_id)
            # `depth` of a duplicate is the lane that holds it, if it is another.
            lane = None if depth is None else PartitionId(slices[index].partition.shard, depth)
            duplicate = Duplicate(item - 1, pos, known_id, known_as, partition=lane)
            result = found[index]
            if isinstance(result, Duplicates):
                result.found.append(duplicate)
            else:
                found[index] = Duplicates([duplicate])
    return found
