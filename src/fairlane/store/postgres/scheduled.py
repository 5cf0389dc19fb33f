"""Scheduled messages on PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from fairlane.errors import LaneLocked
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import encode, ids_of
from fairlane.store.contract.values import (
    Added,
    Appended,
    Duplicate,
    Duplicates,
    Gone,
    PartitionLocked,
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
    ScheduledSegment,
    ends_of,
    oldest,
    progress_of,
    repeated_ids,
    segments_of,
)
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import LOCK_PARTITIONS, Messages, in_lock_order
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "scheduled.sql")
_decode_options = msgspec.json.Decoder(QueueOptions).decode


class ScheduledMessages(scheduled.ScheduledMessages):
    def __init__(self, runner: QueryRunner, database: Database, messages: Messages) -> None:
        super().__init__(runner)
        self._database = database
        self._messages = messages

    async def add(self, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone]:
        return await self._add_unrepeated(parts, self._add)

    async def add_on(
        self, connection: asyncpg.Connection[Any], parts: Sequence[ScheduledSlice]
    ) -> list[Added | Duplicates | Gone]:
        """Add scheduled messages inside a transaction that holds their partitions."""

        async def add(some: list[ScheduledSlice]) -> list[Added | Duplicates | Gone]:
            arguments, orders = _arguments(some, self._database.time())
            return _results(await connection.fetch(SQL["add"], *arguments), some, orders)

        return await self._add_unrepeated(parts, add)

    async def _add_unrepeated(
        self,
        parts: Sequence[ScheduledSlice],
        add: Callable[[list[ScheduledSlice]], Awaitable[list[Added | Duplicates | Gone]]],
    ) -> list[Added | Duplicates | Gone]:
        """Add the parts that do not repeat an id in themselves."""
        parts = await self._database.codec.seal_scheduled(parts)
        found = [repeated_ids(part.slice) for part in parts]
        alone = [part for part, repeated in zip(parts, found, strict=True) if not repeated]
        added = iter(await in_lock_order(alone, _partition, add))
        return [Duplicates(repeated) if repeated else next(added) for repeated in found]

    async def _add(self, parts: list[ScheduledSlice]) -> list[Added | Duplicates | Gone]:
        now = self._database.time()
        arguments, orders = _arguments(parts, now)

        async def add_after_recheck(connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
            ids = [part.partition.id for part in parts]
            await connection.execute(LOCK_PARTITIONS, ids)
            await connection.execute(SQL["doubt"], ids, [max(part.slice.id_times) for part in parts], now)
            rows: list[asyncpg.Record] = await connection.fetch(SQL["add"], *arguments)
            return rows

        if any(part.repeated for part in parts):
            rows = await self._database.transact(add_after_recheck)
        else:
            rows = await self._database.write(SQL["add"], *arguments)
        return _results(rows, parts, orders)

    async def append_due(self, *, limit: int = 1000) -> Appended:
        appending = await self._append_due(limit)
        return Appended(dict(appending.appended), len(appending.done) + len(appending.postponed))

    async def _append_due(self, limit: int) -> Appending:
        """Append due messages and delete their rows in one transaction. Messages for a locked partition wait."""
        locked = await self._messages.locked.partitions()
        tried: list[Slice] = []

        async def work(connection: asyncpg.Connection[Any]) -> Appending:
            now = self._database.time()
            rows = await connection.fetch(SQL["due"], limit, APPEND_BYTES_MAX, now)
            opened: list[OpenedSegment[UUID]] = [OpenedSegment(*row) for row in rows if row[0] is not None]
            appending = Appending(oldest(opened, rows[-1]["next_due"] if len(rows) > len(opened) else None))
            for _ in range(ROUNDS_MAX):
                queue_ids = sorted({some[0].queue_id for some in appending.left.values()})
                found = await connection.fetch(SQL["options"], queue_ids) if queue_ids else []
                slices = appending.slices({id: _decode_options(text) for id, text in found})
                if not slices:
                    break
                tried[:] = [part for part in slices if part.partition not in locked]
                pushed = iter(await self._messages.push_on(connection.fetch, tried) if tried else [])
                results = [PartitionLocked() if part.partition in locked else next(pushed) for part in slices]
                for queue_id, name in appending.apply(slices, results):
                    for id, _ in await connection.fetch(SQL["ensure_partition"], queue_id, name, now):
                        appending.move(name, queue_id, id)
            appending.postponed += [row for some in appending.left.values() for row in some]
            if opened:
                await connection.execute(SQL["proceed"], *_progress(opened, appending), now)
            return appending

        while True:
            try:
                return await self._database.transact(work)
            except LaneLocked:
                found = await self._messages.locked.find(tried)
                if not found - locked:
                    raise
                locked |= found


def _partition(part: ScheduledSlice) -> tuple[int, int]:
    return part.partition.id, 0


def _arguments(parts: Sequence[ScheduledSlice], now: int | None) -> tuple[tuple[object, ...], list[list[int]]]:
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


def _results(
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


def _progress(opened: Sequence[OpenedSegment[UUID]], appending: Appending) -> tuple[object, ...]:
    """Return the arguments of `fairlane.proceed_scheduled`."""
    steps = progress_of(opened, appending.done, appending.postponed)
    left = [step for step in steps if not step.is_finished]
    keys = [(step.segment.partition_id, key, step.segment.id) for step in steps for key in step.keys]
    holes = [(step.segment.id, index + 1) for step in left for index in step.holes]
    return (
        [step.segment.id for step in left],
        [step.segment.taken + step.gone for step in left],
        [step.next_at for step in left],
        [step.segment.id for step in steps if step.is_finished],
        *([key[column] for key in keys] for column in range(3)),
        *([hole[column] for hole in holes] for column in range(2)),
    )
