"""Streams: queries over queues, and their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw
import msgspec

from fairlane.errors import NotFound, TransactionRefused
from fairlane.model.ids import PartitionId
from fairlane.model.stream import NOT_IDLE, NOT_THERE, Registered, StateChange, StateFilter, StateRow, StreamQuery
from fairlane.store import statements
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.messages import transact
from fairlane.store.sqlite.rows import first, value

SQL = statements.load("fairlane.store.sqlite", "streams.sql")


class Streams:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, tenant: str, query: StreamQuery, *, reset: bool) -> Registered:
        return await self._database.write(lambda db, now: _register(db, now, tenant, query, reset))

    async def get(self, tenant: str, id: UUID) -> StreamQuery | None:
        def work(db: apsw.Connection, now: int) -> StreamQuery | None:
            row = first(db, SQL["get"], tenant, id.bytes)
            return _query(*row) if row else None

        return await self._database.read(work)

    async def state(
        self, query_id: UUID, partition: PartitionId, where: StateFilter, *, limit: int = 1000
    ) -> list[StateRow]:
        values = {
            "partition_id": partition.id,
            "query_id": query_id.bytes,
            "keys": None if where.keys is None else msgspec.json.encode(where.keys).decode(),
            "prefix": where.prefix,
            "ripe_until": where.ripe_until,
            "after": where.after,
            "limit": limit,
        }

        def work(db: apsw.Connection, now: int) -> list[StateRow]:
            if where.idle_group and value(db, SQL["leased"], partition.id, where.idle_group, now):
                return []
            found: list[Any] = db.execute(SQL["state"], values).fetchall()
            return [StateRow(*row) for row in found]

        found = await self._database.read(work) if partition.shard == 0 else []
        return await self._database.codec.open_states(query_id, partition, found)

    async def cycle(
        self, change: StateChange, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        def work(db: apsw.Connection, now: int) -> tuple[list[AckResult], list[PushResult]] | None:
            if change.partition.shard or not value(db, SQL["exists"], change.query_id.bytes, change.partition.id):
                return None
            if change.idle_group:
                _check_idle(db, now, change)
            return transact(db, now, acks, slices, also=lambda: _apply(db, now, change))

        change = await self._database.codec.seal_change(change)
        acks, slices = await self._database.codec.seal_all(acks, slices)
        answer = await self._database.write(work)
        if answer is None:
            raise NotFound("the stream's query or its partition is not there (any more)")
        return answer


def _register(db: apsw.Connection, now: int, tenant: str, query: StreamQuery, reset: bool) -> Registered:
    row = first(db, SQL["by_name"], tenant, query.name)
    queues = (query.source_queue, query.sink_queue)
    if row is None:
        tenant_id = value(db, "select id from tenants where name = ?", tenant)
        db.execute(SQL["insert"], (query.id.bytes, tenant_id, query.name, *queues, query.config_hash, now))
        return Registered(query, fresh=True)
    known = _query(*row)
    other = known.config_hash != query.config_hash
    if other and not reset:
        return Registered(known)
    if other:
        db.execute(SQL["drop_state"], (known.id.bytes,))
    db.execute(SQL["renew"], (*queues, query.config_hash, now, known.id.bytes))
    return Registered(msgspec.structs.replace(query, id=known.id), reset=other)


def _check_idle(db: apsw.Connection, now: int, change: StateChange) -> None:
    where = (change.partition.id, change.query_id.bytes)
    if value(db, SQL["leased"], change.partition.id, change.idle_group, now):
        raise TransactionRefused(NOT_IDLE, index=0)
    if not all(value(db, SQL["keys_there"], *where, key) for key in change.deleted):
        raise TransactionRefused(NOT_THERE, index=0)


def _apply(db: apsw.Connection, now: int, change: StateChange) -> None:
    where = (change.partition.id, change.query_id.bytes)
    for op in change.ops:
        if op.value is None:
            db.execute(SQL["delete_state"], (*where, op.key))
        else:
            db.execute(SQL["put_state"], (*where, op.key, op.window_end, now, op.value))


def _query(id: bytes, name: str, source_queue: str, sink_queue: str | None, config_hash: str) -> StreamQuery:
    return StreamQuery(
        id=UUID(bytes=id), name=name, source_queue=source_queue, sink_queue=sink_queue, config_hash=config_hash
    )
