"""Browsing on PostgreSQL: messages one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from fairlane.errors import NotFound
from fairlane.model.ids import PartitionId, id_key, uuid7_ms
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.segment import HEAD_BYTES, head_of, ids_of
from fairlane.store.contract.browse import DeadLettered
from fairlane.store.contract.values import ActivePartition, Found, MessageHead, Upto
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.groups import SQL as GROUPS
from fairlane.store.postgres.messages import Messages
from fairlane.store.postgres.queues import recount
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "browse.sql")
_TRIM_SEGMENTS = 1000
"""Deleted in one statement: it holds no lock that a push or a pop waits for, but its dead rows come in one go."""
_TRIM_PARTITIONS = 500
_FAR = 2**62
_YEAR_9999 = 253_402_300_799_000_000
_DEAD_LETTERED: dict[bytes, DeadLettered] = {b"d": "dead", b"f": "finished", b"g": "gone"}


class Browse:
    def __init__(self, database: Database, shards: list[int], messages: Messages) -> None:
        self._database = database
        self._shards = shards
        self._messages = messages

    async def active(
        self,
        queue_ids: Sequence[int],
        *,
        name: str | None = None,
        since: int = 0,
        before: tuple[int, PartitionId] | None = None,
        limit: int = 100,
    ) -> list[ActivePartition]:
        last_at, (shard, id) = before or (None, (None, None))
        rows = await self._database.read(
            SQL["active"], self._shards, list(queue_ids), since, name, last_at, shard, id, limit
        )
        return [ActivePartition(PartitionId(row[0], row[1]), *row[2:]) for row in rows]

    async def back(self, where: Sequence[Upto], *, since: int = 0, limit: int = 100) -> list[MessageHead]:
        by_shard: dict[int, list[int]] = defaultdict(list)
        for index, upto in enumerate(where):
            by_shard[upto.partition.shard].append(index)
        found: list[list[MessageHead]] = [[] for _ in where]
        for shard, indexes in by_shard.items():
            some = [where[index] for index in indexes]
            rows = await self._database.read(
                SQL["back"],
                shard,
                [upto.partition.id for upto in some],
                [min(upto.until, _YEAR_9999) for upto in some],
                [min(upto.position, _FAR) for upto in some],
                since,
                limit,
                HEAD_BYTES,
            )
            for item, position, at, head in rows:
                index = indexes[item - 1]
                found[index].append(MessageHead(where[index].partition, position, at, *head_of(head)))
        return [head for heads in found for head in heads]

    async def delete(self, partition: PartitionId, position: int) -> bool:
        fragments: list[bytes] = []
        for segment in await self._messages.read(partition, position, position + 1):
            fragments += segment.fragments(position, position + 1)
        if not fragments:
            return False
        _, transaction_id = ids_of(fragments[0])
        [[deleted]] = await self._database.write(
            SQL["delete"], *partition, position, transaction_id, self._database.time()
        )
        return bool(deleted)

    async def dead_letter(self, partition: PartitionId, group_id: int, position: int, error: str) -> DeadLettered:
        [[outcome]] = await self._database.write(
            SQL["dead_letter"], *partition, group_id, position, error[:ERROR_CHARS_MAX], self._database.time()
        )
        return _DEAD_LETTERED[outcome]

    async def clear(self, queue_id: int, *, partition: PartitionId | None = None) -> int:
        shards = self._shards if partition is None else [partition.shard]
        only = partition.id if partition else 0

        async def work(connection: asyncpg.Connection[Any]) -> int:
            for shard in shards:
                await connection.fetch(SQL["lock_scheduled"], shard, queue_id, only)
            limit = await connection.fetchval(GROUPS["lock_queue"], queue_id)
            if limit is None:
                raise NotFound(f"queue {queue_id} is not there (any more)")
            cleared = 0
            for shard in shards:
                cleared += await connection.fetchval(SQL["clear"], shard, queue_id, only)
            if limit:
                await recount(connection, self._shards, queue_id)
            return cleared

        cleared = await self._database.transact(work)
        await self.trim()
        return cleared

    async def traced(self, queue_ids: Sequence[int], trace_id: str, *, limit: int = 10_000) -> list[Found]:
        found: list[Found] = []
        for shard in self._shards:
            rows = await self._database.read(SQL["traced"], shard, UUID(trace_id), queue_ids, limit - len(found))
            found += [Found(PartitionId(shard, id), *rest) for id, *rest in rows]
        return found

    async def with_id(self, queue_ids: Sequence[int], transaction_id: str) -> list[Found]:
        keys = [id_key(transaction_id), id_key(transaction_id, salt=1)]
        made_at = uuid7_ms(transaction_id)
        found: list[Found] = []
        for shard in self._shards:
            rows = await self._database.read(SQL["with_key"], shard, queue_ids, keys, transaction_id)
            if made_at is not None and made_at < 2**43:
                times = (made_at * 1000 - 1_000_000, made_at * 1000 + 61_000_000)
                rows += await self._database.read(SQL["with_time"], shard, queue_ids, keys, *times)
            found += [Found(PartitionId(shard, id), *rest) for id, *rest in rows]
        return found

    async def trim(self) -> None:
        """Remove what lies below the start of cleared partitions, also of those that a broker which died cleared."""
        for shard in self._shards:
            while await self._trim(shard):
                pass

    async def trim_some(self, steps: int) -> bool:
        """Forget ids whose window has passed, and do up to so many steps of it in each shard; whether some are left."""
        left = False
        for shard in self._shards:
            now = self._database.time()
            [[forgotten]] = await self._database.write(SQL["forget_ids"], shard, _TRIM_SEGMENTS, now)
            left = left or forgotten == _TRIM_SEGMENTS
            for _ in range(steps):
                if not await self._trim(shard):
                    break
            else:
                left = True
        return left

    async def _trim(self, shard: int) -> bool:
        """Remove some rows below the start of some partitions; False when there are none."""
        rows = await self._database.read(SQL["trims"], shard, _TRIM_PARTITIONS)
        if not rows:
            return False
        ids = [row["partition_id"] for row in rows]

        async def step(connection: asyncpg.Connection[Any]) -> None:
            now = self._database.time()
            if await connection.fetchval(SQL["trim_log"], shard, ids, _TRIM_SEGMENTS, now) < _TRIM_SEGMENTS:
                for what in ("beside", "traced", "traces", "trace_names"):
                    await connection.execute(SQL[f"trim_{what}"], shard, ids)
                # Under the partitions' locks: whoever moves a start meanwhile asks for the rows below it to go.
                await connection.execute(SQL["hold"], shard, ids)
                await connection.execute(SQL["trimmed"], shard, ids)

        await self._database.transact(step)
        return True
