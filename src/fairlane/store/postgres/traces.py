"""Notes of consumers on their work, on PostgreSQL."""

from __future__ import annotations

from typing import Any

import asyncpg

from fairlane.model.ids import PartitionId
from fairlane.model.trace import Trace, TraceName
from fairlane.store.postgres.connection import Database
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "traces.sql")


class Traces:
    def __init__(self, database: Database, shards: list[int]) -> None:
        self._database = database
        self._shards = shards

    async def add(self, trace: Trace) -> bool:
        shard, id = trace.partition
        row = (trace.transaction_id, trace.id, self._database.time(), trace.group, trace.event_type, trace.data)

        async def work(connection: asyncpg.Connection[Any]) -> bool:
            tenant_id = await connection.fetchval(SQL["tenant_of"], shard, id)
            if tenant_id is None:
                return False
            created_at = await connection.fetchval(SQL["add"], shard, id, *row, trace.names)
            if created_at is not None and trace.names:
                names = (trace.names, created_at, trace.id, id, trace.transaction_id)
                await connection.execute(SQL["add_names"], shard, tenant_id, *names)
            return True

        return await self._database.transact(work)

    async def of_message(self, partition: PartitionId, transaction_id: str, *, limit: int = 1000) -> list[Trace]:
        return list(map(_trace, await self._database.read(SQL["of_message"], *partition, transaction_id, limit)))

    async def named(self, tenant: str, name: str, *, limit: int = 100, offset: int = 0) -> list[Trace]:
        return list(map(_trace, await self._database.read(SQL["named"], self._shards, tenant, name, limit, offset)))

    async def count_named(self, tenant: str, name: str) -> int:
        return int((await self._database.read(SQL["count_named"], self._shards, tenant, name))[0][0])

    async def names(self, tenant: str, *, limit: int = 50, offset: int = 0) -> list[TraceName]:
        rows = await self._database.read(SQL["names"], self._shards, tenant, limit, offset)
        return [TraceName(**row) for row in rows]

    async def count_names(self, tenant: str) -> int:
        return int((await self._database.read(SQL["count_names"], self._shards, tenant))[0][0])


def _trace(row: asyncpg.Record) -> Trace:
    fields = dict(row)
    partition = PartitionId(fields.pop("shard"), fields.pop("partition_id"))
    return Trace(partition=partition, group=fields.pop("group_name"), **fields)
