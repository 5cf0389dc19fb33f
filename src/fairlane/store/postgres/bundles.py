"""Scheduled messages as the arrays that functions take, and their rows as results."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from fairlane.model.segment import encode, ids_of
from fairlane.store.bundles import Bundle, Opened, bundles_of, ends_of, progress_of
from fairlane.store.firing import Firing
from fairlane.store.values import Duplicate, Duplicates, Gone, Kept, Scheduled


def arguments(shard: int, parts: Sequence[Scheduled], now: int | None) -> tuple[tuple[object, ...], list[list[int]]]:
    """Of `fairlane.schedule`; and for each part which of its messages stands where: those of a bundle go together."""
    cut = [list(bundles_of(part)) for part in parts]
    orders = [[index for bundle in bundles for index in bundle.items] for bundles in cut]
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
        shard,
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


def _columns(parts: Sequence[Scheduled], cut: Sequence[Sequence[Bundle]]) -> tuple[object, ...]:
    due: list[int] = []
    ends: list[int] = []
    ids: list[UUID] = []
    numbers: list[int] = []
    relative: list[bool] = []
    firsts: list[int] = []
    counts: list[int] = []
    bodies: list[bytes] = []
    for number, (part, bundles) in enumerate(zip(parts, cut, strict=True), 1):
        for bundle in bundles:
            fragments = [part.slice.fragments[index] for index in bundle.items]
            # That of its first message: a call that comes after its own repeat finds the bundle there.
            ids.append(UUID(fragments[0][7:43].decode()))
            numbers.append(number)
            relative.append(bundle.relative)
            firsts.append(len(due) + 1)
            counts.append(len(fragments))
            bodies.append(b"".join(fragments))
            due += bundle.due
            ends += ends_of(fragments)
    return _array(due), _array(ends), ids, numbers, relative, firsts, counts, bodies


def _array(numbers: list[int]) -> str:
    """A PostgreSQL array literal; JSON writes the numbers several times as fast as `str` does."""
    return f"{{{encode(numbers)[1:-1].decode()}}}"


def results(
    rows: Sequence[asyncpg.Record], parts: Sequence[Scheduled], orders: Sequence[Sequence[int]]
) -> list[Kept | Duplicates | Gone]:
    found: list[Kept | Duplicates | Gone] = [Gone()] * len(parts)
    known: dict[int, dict[int, Duplicate]] = {}
    for kind, number, item, at, position, due, head, message_id, transaction_id in rows:
        part = parts[number - 1]
        if kind == b"k":
            delays = zip(part.due_at, part.delay_ms, strict=True)
            found[number - 1] = Kept([at + delay * 1000 if time is None else time for time, delay in delays])
        elif kind == b"d":
            index = orders[number - 1][item - 1]
            if head is not None:
                message_id, transaction_id = ids_of(head)
            one = Duplicate(index, position, message_id, transaction_id, due)
            # Rather the one with the same text.
            if transaction_id == part.slice.transaction_ids[index] or index not in known.setdefault(number, {}):
                known.setdefault(number, {})[index] = one
    for number, duplicates in known.items():
        found[number - 1] = Duplicates([duplicates[index] for index in sorted(duplicates)])
    return found


def progress(opened: Sequence[Opened[UUID]], firing: Firing) -> tuple[object, ...]:
    """What `fairlane.proceed` takes."""
    steps = progress_of(opened, firing.done, firing.later)
    left = [step for step in steps if not step.over]
    keys = [(step.bundle.partition_id, key, step.bundle.id) for step in steps for key in step.keys]
    holes = [(step.bundle.id, index + 1) for step in left for index in step.holes]
    return (
        [step.bundle.id for step in left],
        [step.bundle.taken + step.gone for step in left],
        [step.next_at for step in left],
        [step.bundle.id for step in steps if step.over],
        *([key[column] for key in keys] for column in range(3)),
        *([hole[column] for hole in holes] for column in range(2)),
    )
