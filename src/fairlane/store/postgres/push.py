"""Slices as the arrays that `fairlane.push` takes, and its rows as results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import asyncpg

from fairlane.model.ids import PartitionId
from fairlane.model.segment import Verified, checksum, cuts, encode, ids_of
from fairlane.store.contract.values import Duplicate, Duplicates, Full, Gone, OperationsAhead, PushResult, Slice, Stored

_FAR = 2**62


class Built(NamedTuple):
    """A segment of a call, before its position is known: messages of slice number `slice`, from `low` on."""

    slice: int
    low: int
    ends: list[int]
    body: bytes
    checksum: int

    def segment(self, stored: Stored) -> Verified:
        return Verified(stored.first + self.low, stored.created_at, self.ends, self.body, self.checksum)


def arguments(
    slices: Sequence[Slice], limited: list[int], *, texts: bool, now: int | None, built: list[Built]
) -> tuple[object, ...]:
    """Return the arguments of `fairlane.push` for slices sorted by partition. `texts` adds the texts of ids.

    Fills `built` with the segments.
    """
    built.clear()
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
    """Columns of the segments: number of the slice, index of the first message, count, checksum, body."""
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
            ends_here = list(accumulate(lengths[low:high]))
            ends += ends_here
            cuts_of.append(number)
            firsts.append(len(keys) + low + 1)
            counts.append(high - low)
            checksums.append(checksum(body))
            bodies.append(body)
            built.append(Built(number - 1, low, ends_here, body, checksums[-1]))
        keys += part.keys
        times += part.id_times
        upto.append(len(keys))
    ids, queues = [part.partition.id for part in slices], [part.queue_id for part in slices]
    windows = [part.options.dedup_seconds for part in slices]
    by_slice = (limited, ids, queues, upto, bytes_max, oldest, newest, given_oldest, windows)
    return (
        *map(_array, (*by_slice, keys, times, ends, cuts_of, firsts, counts, checksums)),
        bodies,
        [fragment[7:43].decode() for part in slices for fragment in part.fragments] if texts else [],
        [text for part in slices for text in part.transaction_ids] if texts else [],
        [number for number, part in enumerate(slices, 1) if part.has_sibling_ids],
        now,
    )


def _array(numbers: list[int]) -> str:
    """Return a PostgreSQL array literal. JSON encodes numbers several times faster than `str`."""
    return f"{{{encode(numbers)[1:-1].decode()}}}"


def needs_texts(rows: Sequence[asyncpg.Record]) -> bool:
    """Return True if the call must be repeated with the texts of the ids."""
    return bool(rows) and rows[-1]["state"] == "texts_needed"


def clock_of(rows: Sequence[asyncpg.Record]) -> int | None:
    """Return the time of the database, or slightly earlier, if something was stored.

    A message may have a later time, because times never decrease within a partition.
    """
    for state, _, _, _, created_at, ahead_ms, *_ in rows:
        if state == "stored":
            return int(created_at) - (ahead_ms + 1) * 1000 if ahead_ms else int(created_at)
    return None


def results(rows: Sequence[asyncpg.Record], slices: Sequence[Slice]) -> list[PushResult]:
    """Return the result of each slice."""
    found: list[PushResult] = [Gone()] * len(slices)
    for state, number, item, position, created_at, _, depth, capacity, lane, head, message_id, transaction_id in rows:
        index = number - 1
        if state == "stored":
            found[index] = Stored(position, created_at, depth, capacity)
        elif state == "full":
            found[index] = Full(depth, capacity)
        elif state == "operations_ahead":
            found[index] = OperationsAhead()
        elif state == "duplicate":
            known_id, known_as = ids_of(head) if head is not None else (message_id, transaction_id)
            partition = None if lane is None else PartitionId.of(lane)
            duplicate = Duplicate(item - 1, position, known_id, known_as, partition=partition)
            result = found[index]
            if isinstance(result, Duplicates):
                result.found.append(duplicate)
            else:
                found[index] = Duplicates([duplicate])
    return found
