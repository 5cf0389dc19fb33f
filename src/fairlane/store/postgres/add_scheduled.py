"""Scheduled slices as the arrays that `fairlane.add_scheduled` takes, and its rows as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from fairlane.model.segment import encode, ids_of
from fairlane.store.contract.values import Added, Duplicate, Duplicates, Gone, ScheduledSlice
from fairlane.store.families.scheduled import ScheduledSegment, ends_of, repeated_ids, segments_of
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "scheduled.sql")


async def add_on(
    connection: asyncpg.Connection[Any], parts: Sequence[ScheduledSlice], now: int | None
) -> list[Added | Duplicates | Gone]:
    """Add sealed parts inside a transaction that holds their partitions."""
    found = [repeated_ids(part.slice) for part in parts]
    alone = [part for part, repeated in zip(parts, found, strict=True) if not repeated]
    if doubted := [part for part in alone if part.repeated]:
        ids = [part.partition.id for part in doubted]
        await connection.execute(SQL["doubt"], ids, [max(part.slice.id_times) for part in doubted], now)
    added: list[Added | Duplicates | Gone] = []
    if alone:
        values, orders = arguments(alone, now)
        added = results(await connection.fetch(SQL["add"], *values), alone, orders)
    rest = iter(added)
    return [Duplicates(repeated) if repeated else next(rest) for repeated in found]


def arguments(parts: Sequence[ScheduledSlice], now: int | None) -> tuple[tuple[object, ...], list[list[int]]]:
    """Return the arguments of `fairlane.add_scheduled`, and the indexes of each part's messages, grouped by segment."""
    cut = [list(segments_of(part)) for part in parts]
    orders = [[index for segment in segments for index in segment.items] for segments in cut]
    upto: list[int] = []
    keys: list[int] = []
    times: list[int] = []
    given: list[bool] = []
    for part, order in zip(parts, orders, strict=True):
        keys += map(part.slice.keys.__getitem__, order)
        times += map(part.slice.id_times.__getitem__, order)
        given += map(part.slice.given.__getitem__, order)
        upto.append(len(keys))
    slices = [part.slice for part in parts]
    return (
        [part.partition.id for part in slices],
        [part.queue_id for part in slices],
        [part.partition_name for part in parts],
        upto,
        [part.options.dedup_seconds for part in slices],
        _array(keys),
        _array(times),
        given if True in given else [],
        *_columns(parts, cut),
        now,
    ), orders


def _columns(parts: Sequence[ScheduledSlice], cut: Sequence[Sequence[ScheduledSegment]]) -> tuple[object, ...]:
    due: list[int] = []
    ends: list[int] = []
    ids: list[UUID] = []
    numbers: list[int] = []
    relative: list[bool] = []
    firsts: list[int] = []
    counts: list[int] = []
    bodies: list[bytes] = []
    for number, (part, segments) in enumerate(zip(parts, cut, strict=True), 1):
        for segment in segments:
            fragments = [part.slice.fragments[index] for index in segment.items]
            # The time of its first message, so that a call that arrives after its own retry finds the segment.
            ids.append(UUID(fragments[0][7:43].decode()))
            numbers.append(number)
            relative.append(segment.relative)
            firsts.append(len(due) + 1)
            counts.append(len(fragments))
            bodies.append(b"".join(fragments))
            due += segment.due
            ends += ends_of(fragments)
    return _array(due), _array(ends), ids, numbers, relative, firsts, counts, bodies


def _array(numbers: list[int]) -> str:
    """Return a PostgreSQL array literal. JSON encodes numbers several times faster than `str`."""
    return f"{{{encode(numbers)[1:-1].decode()}}}"


def results(
    rows: Sequence[asyncpg.Record], parts: Sequence[ScheduledSlice], orders: Sequence[Sequence[int]]
) -> list[Added | Duplicates | Gone]:
    found: list[Added | Duplicates | Gone] = [Gone()] * len(parts)
    known: dict[int, dict[int, Duplicate]] = {}
    for state, number, item, at, position, due, head, message_id, transaction_id in rows:
        part = parts[number - 1]
        if state == "added":
            delays = zip(part.due_at, part.delay_ms, strict=True)
            found[number - 1] = Added([at + delay * 1000 if time is None else time for time, delay in delays])
        elif state == "duplicate":
            index = orders[number - 1][item - 1]
            if head is not None:
                message_id, transaction_id = ids_of(head)
            one = Duplicate(index, position, message_id, transaction_id, due)
            # Prefer the message with the same text.
            if transaction_id == part.slice.transaction_ids[index] or index not in known.setdefault(number, {}):
                known.setdefault(number, {})[index] = one
    for number, duplicates in known.items():
        found[number - 1] = Duplicates([duplicates[index] for index in sorted(duplicates)])
    return found
