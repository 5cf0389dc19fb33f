"""Streams on PostgreSQL: queries over queues, and their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from fairlane.errors import NotFound, TransactionRefused
from fairlane.model.ids import PartitionId
from fairlane.model.stream import NOT_IDLE, NOT_THERE, Registered, StateChange, StateFilter, StateRow, StreamQuery
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "streams.sql")


class Streams:
    def __init__(self, database: Database, shards: list[int], messages: Messages) -> None:
        self._database = database
        self._shards = shards
        self._messages = messages

    async def register(self, tenant: str, query: StreamQuery, *, reset: bool) -> Registered:
        queues = (query.source_queue, query.sink_queue, query.config_hash, self._database.time())

        async def work(connection: asyncpg.Connection[Any]) -> Registered:
            if await connection.fetchval(SQL["insert"], query.id, tenant, query.name, *queues) is not None:
                return Registered(query, fresh=True)
            row = await connection.fetchrow(SQL["lock"], tenant, query.name)
            if row is None:
                raise NotFound(f"there is no tenant {tenant!r}")
            known = StreamQuery(**row)
            other = known.config_hash != query.config_hash
            if other and not reset:
                return Registered(known)
            if other:
                for shard in self._shards:
                    await connection.execute(SQL["drop_state"], shard, known.id)
            await connection.execute(SQL["renew"], known.id, *queues)
            return Registered(msgspec.structs.replace(query, id=known.id), reset=other)

        return await self._database.transact(work)

    async def get(self, tenant: str, id: UUID) -> StreamQuery | None:
        rows = await self._database.read(SQL["get"], tenant, id)
        return StreamQuery(**rows[0]) if rows else None

    async def state(
        self, query_id: UUID, partition: PartitionId, where: StateFilter, *, limit: int = 1000
    ) -> list[StateRow]:
        if where.idle_group and await self._database.read(
            SQL["leased"], *partition, where.idle_group, self._database.time()
        ):
            return []
        found = (where.keys, where.prefix, where.ripe_until, where.after, limit)
        rows = await self._database.read(SQL["state"], *partition, query_id, *found)
        return await self._database.codec.open_states(query_id, partition, [StateRow(*row) for row in rows])

    async def cycle(
        self, change: StateChange, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        async def begin(connection: asyncpg.Connection[Any]) -> None:
            if not await connection.fetch(SQL["share"], change.query_id):
                raise NotFound("the stream's query is not there (any more)")

        async def apply(connection: asyncpg.Connection[Any]) -> None:
            if not await connection.fetch(SQL["partition_there"], *change.partition):
                raise NotFound("the stream's partition is not there (any more)")
            await self._apply(connection, change)

        async def check(connection: asyncpg.Connection[Any]) -> None:
            if change.idle_group:
                await self._check_idle(connection, change)

        change = await self._database.codec.seal_change(change)
        return await self._messages.transact(
            acks, slices, begin=begin, check=check, also=apply, locked=[change.partition]
        )

    async def _check_idle(self, connection: asyncpg.Connection[Any], change: StateChange) -> None:
        lane = (*change.partition, change.idle_group)
        await connection.execute(SQL["lock_lane"], *lane)
        if await connection.fetch(SQL["leased"], *lane, self._database.time()):
            raise TransactionRefused(NOT_IDLE, index=0)
        there = await connection.fetchval(SQL["keys_there"], *change.partition, change.query_id, change.deleted)
        if there < len(change.deleted):
            raise TransactionRefused(NOT_THERE, index=0)

    async def _apply(self, connection: asyncpg.Connection[Any], change: StateChange) -> None:
        last = {op.key: op for op in change.ops}
        where = (*change.partition, change.query_id)
        if change.deleted:
            await connection.execute(SQL["delete_state"], *where, change.deleted)
        changed = [op for op in last.values() if op.value is not None]
        if changed:
            columns = ([op.key for op in changed], [op.window_end for op in changed], [op.value for op in changed])
            await connection.execute(SQL["put_state"], *where, *columns, self._database.time())
