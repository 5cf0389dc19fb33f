"""Traces: what consumers noted of their work, by message and by name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.trace import Trace
from fairlane.store.families.port import Family, Row, Transaction, Value, as_json, struct
from fairlane.wire.traces import TraceNameEntry


class Traces(Family):
    async def add(self, trace: Trace) -> bool:
        """Keep a trace as of now; False if its partition is gone. Adding the same id again changes nothing."""
        shard, partition_id = trace.partition
        data = await self._port.codec.seal(trace.partition, trace.data, f"trace {trace.id}")
        values: dict[str, Value] = {**msgspec.structs.asdict(trace), "data": data, "names": as_json(trace.names)}
        values |= {"shard": shard, "partition_id": partition_id}

        async def work(transaction: Transaction) -> bool:
            tenants = await transaction.run("traces.tenant_of", **values)
            for (tenant_id,) in tenants:
                for (created_at,) in await transaction.run("traces.add", **values):
                    named = {**values, "tenant_id": tenant_id, "created_at": created_at}
                    await transaction.run("traces.add_names", **named)
            return bool(tenants)

        return await self._port.transact(work)

    async def of_message(self, partition: PartitionId, transaction_id: str, *, limit: int = 1000) -> list[Trace]:
        """Oldest first."""
        where = {"shard": partition.shard, "partition_id": partition.id, "limit": limit}
        found = await self._port.read("traces.of_message", transaction_id=transaction_id, **where)
        return [await self._trace(row) for row in found]

    async def named(
        self, tenant: str, name: str, *, of: Sequence[int] | None = None, limit: int = 100, offset: int = 0
    ) -> list[Trace]:
        """Oldest first, over all queues, or over those whose ids are given."""
        found = await self._port.read(
            "traces.named", tenant=tenant, name=name, queue_ids=of, limit=limit, offset=offset
        )
        return [await self._trace(row) for row in found]

    async def count_named(self, tenant: str, name: str, *, of: Sequence[int] | None = None) -> int:
        [[count]] = await self._port.read("traces.count_named", tenant=tenant, name=name, queue_ids=of)
        return int(count)

    async def names(
        self, tenant: str, *, of: Sequence[int] | None = None, limit: int = 50, offset: int = 0
    ) -> list[TraceNameEntry]:
        """Latest seen first, counted over all queues, or over those whose ids are given."""
        found = await self._port.read("traces.names", tenant=tenant, queue_ids=of, limit=limit, offset=offset)
        return [struct(TraceNameEntry, row) for row in found]

    async def count_names(self, tenant: str, *, of: Sequence[int] | None = None) -> int:
        [[count]] = await self._port.read("traces.count_names", tenant=tenant, queue_ids=of)
        return int(count)

    async def _trace(self, row: Row) -> Trace:
        trace = struct(Trace, row)
        data = await self._port.codec.open(trace.partition, trace.data, f"trace {trace.id}")
        return msgspec.structs.replace(trace, data=data)
