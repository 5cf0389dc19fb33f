"""Pauses of queues, groups, partitions and lanes on PostgreSQL. What is paused is decided by the pop that meets it."""

from __future__ import annotations

from typing import Any

import asyncpg

from fairlane.model.ids import PartitionId
from fairlane.model.queue import Paused
from fairlane.store.postgres.connection import Database
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "pauses.sql")


class Pauses:
    def __init__(self, database: Database, shards: list[int]) -> None:
        self._database = database
        self._shards = shards

    async def pause(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        now = self._database.time()
        if partition is not None and group_id is not None:
            done = await self._database.write(SQL["park_lane"], queue_id, *partition, group_id)
        elif partition is not None:
            done = await self._database.write(SQL["pause_partition"], queue_id, *partition, now)
        elif group_id is not None:
            done = await self._database.write(SQL["pause_group"], queue_id, group_id, now)
        else:
            done = await self._database.write(SQL["pause_queue"], queue_id, now)
        return bool(done)

    async def resume(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        if partition is not None and group_id is not None:
            now = self._database.time()
            [[resumed]] = await self._database.write(SQL["resume_lanes"], partition.shard, group_id, partition.id, now)
            return bool(resumed)
        if partition is not None:
            return await self._resume_partition(queue_id, partition)
        if group_id is not None:
            return bool(await self._database.write(SQL["resume_group"], queue_id, group_id))
        return bool(await self._database.write(SQL["resume_queue"], queue_id))

    async def _resume_partition(self, queue_id: int, partition: PartitionId) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            rows = await connection.fetch(SQL["lock_partition"], queue_id, *partition)
            for row in rows:
                await connection.fetch(SQL["lock_cursors"], *partition)
                if row["paused_at"] is not None:
                    await connection.execute(SQL["resume_partition"], *partition)
                await connection.execute(SQL["wake_partition"], *partition, self._database.time())
            return any(row["paused_at"] is not None for row in rows)

        return await self._database.transact(work)

    async def resume_lanes(self, group_id: int) -> int:
        resumed = 0
        for shard in self._shards:
            [[count]] = await self._database.write(SQL["resume_lanes"], shard, group_id, 0, self._database.time())
            resumed += count
        return resumed

    async def paused(self, queue_id: int) -> Paused:
        queue = await self._database.read(SQL["queue"], queue_id)
        groups = await self._database.read(SQL["groups"], queue_id)
        partitions: dict[str, int] = {}
        for shard in self._shards:
            partitions |= dict(await self._database.read(SQL["partitions"], shard, queue_id))
        return Paused(
            queue_at=queue[0]["paused_at"] if queue else None,
            groups=dict(groups),
            partitions=dict(sorted(partitions.items())),
        )
