"""Scheduled messages on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from fairlane.errors import LaneLocked
from fairlane.model.ids import PartitionId, id_facts, id_key, uuid7
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import encode, ids_of
from fairlane.store.bundles import FIRE_BYTES_MAX, Opened, oldest, twins
from fairlane.store.firing import ROUNDS_MAX, Firing
from fairlane.store.postgres import bundles
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import LOCK_PARTITIONS, Messages, by_shard
from fairlane.store.statements import load
from fairlane.store.values import NO_ID_TIME, Duplicates, Fired, Gone, Kept, Locked, Scheduled, Slice, Waiting

SQL = load("fairlane.store.postgres", "scheduled.sql")
_decode_options = msgspec.json.Decoder(QueueOptions).decode


class ScheduledMessages:
    def __init__(self, database: Database, shards: List[int], messages: Messages) -> None:
        self._database = database
        self._shards = shards
        self._messages = messages

    async def add(self, parts: Sequence[Scheduled]) -> List[Kept | Duplicates | Gone]:
        found = [twins(part.slice) for part in parts]
        alone = [part for part, repeated in zip(parts, found, strict=True) if not repeated]
        added = iter(await by_shard(alone, lambda part: (part.partition.id, 0), self._add))
        return [Duplicates(repeated) if repeated else next(added) for repeated in found]

    async def _add(self, shard: int, parts: List[Scheduled]) -> List[Kept | Duplicates | Gone]:
        now = self._database.time()
        arguments, orders = bundles.arguments(shard, parts, now)

        async def doubting(connection: asyncpg.Connection[Any]) -> List[asyncpg.Record]:
            ids = [part.partition.id for part in parts]
            await connection.execute(LOCK_PARTITIONS, shard, ids)
            await connection.execute(SQL["doubt"], shard, ids, [max(part.slice.id_times) for part in parts], now)
            rows: List[asyncpg.Record] = await connection.fetch(SQL["add"], *arguments)
            return rows

        if any(part.repeated for part in parts):
            rows = await self._database.transact(doubting)
        else:
            rows = await self._database.write(SQL["add"], *arguments)
        return bundles.results(rows, parts, orders)

    async def fire(self, *, limit: int = 1000) -> Fired:
        queues: dict[int, int] = defaultdict(int)
        count = 0
        for shard in self._shards:
            firing = await self._fire(shard, limit - count)
            count += len(firing.done) + len(firing.later)
            for queue_id, fired in firing.fired.items():
                queues[queue_id] += fired
            if count >= limit:
                break
        return Fired(dict(queues), count)

    async def _fire(self, shard: int, limit: int) -> Firing:
        """What is due in one shard is appended and forgotten in one transaction, so that it comes once. What is for a
        locked partition waits."""
        locked = await self._messages.locked.partitions()
        tried: List[Slice] = []

        async def work(connection: asyncpg.Connection[Any]) -> Firing:
            now = self._database.time()
            rows = await connection.fetch(SQL["due"], shard, limit, FIRE_BYTES_MAX, now)
            opened: List[Opened[UUID]] = [Opened(*row) for row in rows if row[0] is not None]
            firing = Firing(shard, oldest(opened, rows[-1]["next_due"] if len(rows) > len(opened) else None))
            for _ in range(ROUNDS_MAX):
                queue_ids = sorted({some[0].queue_id for some in firing.left.values()})
                found = await connection.fetch(SQL["options"], queue_ids) if queue_ids else []
                slices = firing.slices({id: _decode_options(text) for id, text in found})
                if not slices:
                    break
                tried[:] = [part for part in slices if part.partition not in locked]
                pushed = iter(await self._messages.push_shard(connection.fetch, shard, tried) if tried else [])
                results = [Locked() if part.partition in locked else next(pushed) for part in slices]
                for queue_id, name in firing.apply(slices, results):
                    for id, _ in await connection.fetch(SQL["born"], shard, queue_id, name, now):
                        firing.move(name, queue_id, id)
            firing.later += [row for some in firing.left.values() for row in some]
            if opened:
                await connection.execute(SQL["proceed"], shard, *bundles.progress(opened, firing), now)
            return firing

        while True:
            try:
                return await self._database.transact(work)
            except LaneLocked:
                found = await self._messages.locked.find(tried)
                if not found - locked:
                    raise
                locked |= found

    async def cancel(self, partition: PartitionId, transaction_id: str) -> bool:
        return await self._unschedule(partition, transaction_id, False, None, 0) is not None

    async def reschedule(
        self, partition: PartitionId, transaction_id: str, *, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        return await self._unschedule(partition, transaction_id, True, due_at, delay_ms)

    async def _unschedule(
        self, partition: PartitionId, transaction_id: str, move: bool, due_at: int | None, delay_ms: int
    ) -> int | None:
        key, id_ms = id_facts(transaction_id)
        keys = [key, id_key(transaction_id, salt=1)]
        id_ms = NO_ID_TIME if id_ms is None else id_ms
        rows = await self._database.write(
            SQL["unschedule"],
            *(*partition, keys, id_ms, encode(transaction_id), move, due_at, delay_ms, UUID(uuid7())),
            self._database.time(),
        )
        found: int | None = rows[0][0]
        return found

    async def list(self, queue_id: int, *, after: tuple[int, str] | None = None, limit: int = 100) -> List[Waiting]:
        found = []
        for shard in self._shards:
            for id, name, head, at in await self._database.read(
                SQL["list"], shard, queue_id, *(after or (-1, "")), limit
            ):
                message_id, transaction_id = ids_of(head)
                found.append(Waiting(PartitionId(shard, id), name, transaction_id, message_id, at))
        return sorted(found, key=lambda one: (one.due_at, one.message_id))[:limit]

    async def next_in(self) -> int | None:
        times = []
        for shard in self._shards:
            [[next_at, now]] = await self._database.read(SQL["next_in"], shard, self._database.time())
            times += [] if next_at is None else [next_at - now]
        return min(times, default=None)
