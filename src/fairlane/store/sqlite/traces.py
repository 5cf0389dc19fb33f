"""Notes of consumers on their work."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.trace import Trace, TraceName
from fairlane.store import statements
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import rows, value

SQL = statements.load("fairlane.store.sqlite", "traces.sql")


class Traces:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, trace: Trace) -> bool:
        if trace.partition.shard != 0:
            return False
        return await self._database.write(lambda db, now: _add(db, now, trace))

    async def of_message(self, partition: PartitionId, transaction_id: str, *, limit: int = 1000) -> list[Trace]:
        if partition.shard != 0:
            return []
        return await self._read("of_message", partition.id, transaction_id, limit)

    async def named(self, tenant: str, name: str, *, limit: int = 100, offset: int = 0) -> list[Trace]:
        return await self._read("named", tenant, name, limit, offset)

    async def count_named(self, tenant: str, name: str) -> int:
        return int(await self._database.read(lambda db, now: value(db, SQL["count_named"], tenant, name)))

    async def names(self, tenant: str, *, limit: int = 50, offset: int = 0) -> list[TraceName]:
        def work(db: apsw.Connection, now: int) -> list[TraceName]:
            found = rows(db, SQL["names"], tenant, limit, offset)
            return [TraceName(name=row[0], traces=row[1], messages=row[2], last_at=row[3]) for row in found]

        return await self._database.read(work)

    async def count_names(self, tenant: str) -> int:
        return int(await self._database.read(lambda db, now: value(db, SQL["count_names"], tenant)))

    async def _read(self, statement: str, *values: Any) -> list[Trace]:
        return await self._database.read(lambda db, now: [_trace(*row) for row in rows(db, SQL[statement], *values)])


def _add(db: apsw.Connection, now: int, trace: Trace) -> bool:
    tenant_id = value(db, SQL["tenant_of"], trace.partition.id)
    if tenant_id is None:
        return False
    where = (trace.partition.id, trace.transaction_id)
    names = msgspec.json.encode(trace.names).decode()
    db.execute(SQL["add"], (*where, trace.id, now, trace.group, trace.event_type, trace.data, names))
    if db.changes():
        db.executemany(SQL["add_name"], [(tenant_id, name, now, trace.id, *where) for name in trace.names])
    return True


def _trace(id: str, partition_id: int, transaction_id: str, data: bytes, *rest: Any) -> Trace:
    group, event_type, names, created_at = rest
    return Trace(
        id=id,
        partition=PartitionId(0, partition_id),
        transaction_id=transaction_id,
        data=data,
        group=group,
        event_type=event_type,
        names=msgspec.json.decode(names, type=list[str]),
        created_at=created_at,
    )


def forget_traces(db: apsw.Connection, partition_id: int, transaction_id: str) -> None:
    for statement in ("forget_traces", "forget_trace_names"):
        db.execute(SQL[statement], (partition_id, transaction_id))
