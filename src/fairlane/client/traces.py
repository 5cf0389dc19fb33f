"""Traces: notes of consumers on their work, by message and by name."""

from __future__ import annotations

from fairlane.client.part import Part
from fairlane.model.names import check_name
from fairlane.wire.traces import NamedTraceList, NamedTraceQuery, TraceEntry, TraceList, TraceNameList, TraceNameQuery


class Traces(Part):
    async def of_message(self, partition_id: str, transaction_id: str) -> list[TraceEntry]:
        """Oldest first."""
        path = check_name("partition_id", partition_id), check_name("transaction_id", transaction_id)
        return (await self._ask(TraceList, "GET", "traces", *path)).traces

    async def named(self, name: str, query: NamedTraceQuery) -> NamedTraceList:
        """Over all queues, oldest first."""
        asked = {"limit": query.limit, "offset": query.offset}
        return await self._ask(NamedTraceList, "GET", "traces", "by-name", check_name("traceName", name), query=asked)

    async def names(self, query: TraceNameQuery) -> TraceNameList:
        """The names that traces were given, latest seen first."""
        asked = {"limit": query.limit, "offset": query.offset}
        return await self._ask(TraceNameList, "GET", "traces", "names", query=asked)
