"""Traces: notes of consumers on their work, by message and by name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.queen.model.trace import Trace
from fairlane.store.families.query import DatabaseTransaction, Family, Row, Value, as_json, struct
from fairlane.wire.traces import TraceNameEntry


class StoredTraces(Family):
    async def add(self, trace: Trace) -> bool:
        """Store a trace. Returns False if its partition is gone. Adding the same id again is a no-op."""
        data = await self._runner.codec.seal(trace.partition, trace.data, f"trace {trace.id}")
        values: dict[str, Value] = {**msgspec.structs.asdict(trace), "data": data, "names": as_json(trace.names)}
        values |= {"partition_id": trace.partition.id}

        async def work(transaction: DatabaseTransaction) -> bool:
            tenants = await transaction.run("traces.tenant_of", **values)
            for (tenant_id,) in tenants:
                for (created_at,) in await transaction.run("traces.add", **values):
                    named = {**values, "tenant_id": tenant_id, "created_at": created_at}
                    await transaction.run("traces.add_names", **named)
            return bool(tenants)

        return await self._runner.transact(work)

    async def of_message(self, partition: PartitionId, transaction_id: str, *, limit: int = 1000) -> list[Trace]:
        """Return the traces of a message, oldest first."""
        where = {"partition_id": partition.id, "limit": limit}
        found = await self._runner.read("traces.of_message", transaction_id=transaction_id, **where)
        return [await self._trace(row) for row in found]

    async def named(
        self, tenant: str, name: str, *, of: Sequence[int] | None = None, limit: int = 100, offset: int = 0
    ) -> list[Trace]:
        """Return the traces of a name, oldest first, in all queues or in those with the ids `of`."""
        found = await self._runner.read(
            "traces.named", tenant=tenant, name=name, queue_ids=of, limit=limit, offset=offset
        )
        return [await self._trace(row) for row in found]

    async def count_named(self, tenant: str, name: str, *, of: Sequence[int] | None = None) -> int:
        [[count]] = await self._runner.read("traces.count_named", tenant=tenant, name=name, queue_ids=of)
        return int(count)

    async def names(
        self, tenant: str, *, of: Sequence[int] | None = None, limit: int = 50, offset: int = 0
    ) -> list[TraceNameEntry]:
        """Return names, latest used first, with counts over all queues or over those with the ids `of`."""
        found = await self._runner.read("traces.names", tenant=tenant, queue_ids=of, limit=limit, offset=offset)
        return [struct(TraceNameEntry, row) for row in found]

    async def count_names(self, tenant: str, *, of: Sequence[int] | None = None) -> int:
        [[count]] = await self._runner.read("traces.count_names", tenant=tenant, queue_ids=of)
        return int(count)

    async def _trace(self, row: Row) -> Trace:
        trace = struct(Trace, row)
        data = await self._runner.codec.open(trace.partition, trace.data, f"trace {trace.id}")
        return msgspec.structs.replace(trace, data=data)
