"""Scheduled messages on PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from fairlane.errors import LaneLocked
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import (
    Added,
    Appended,
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
    oldest,
    progress_of,
    repeated_ids,
)
from fairlane.store.postgres import add_scheduled
from fairlane.store.postgres.add_scheduled import SQL
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import LOCK_PARTITIONS, Messages, in_lock_order

_decode_options = msgspec.json.Decoder(QueueOptions).decode


class ScheduledMessages(scheduled.ScheduledMessages):
    def __init__(self, runner: QueryRunner, database: Database, messages: Messages) -> None:
        super().__init__(runner)
        self._database = database
        self._messages = messages

    async def add(self, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone]:
        return await self._add_unrepeated(parts, self._add)

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
        arguments, orders = add_scheduled.arguments(parts, now)

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
        return add_scheduled.results(rows, parts, orders)

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
