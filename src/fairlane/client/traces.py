"""Trace notes that consumers attach to messages, by message and by name."""

from __future__ import annotations

from msgspec import to_builtins

from fairlane.client.resource import ClientResource
from fairlane.model.names import check_name
from fairlane.wire.traces import NamedTraceList, NamedTraceQuery, TraceEntry, TraceList, TraceNameList, TraceNameQuery


class Traces(ClientResource):
    async def of_message(self, partition_id: str, transaction_id: str) -> list[TraceEntry]:
        """Return the notes of a message, oldest first."""
        path = check_name("partition_id", partition_id), check_name("transaction_id", transaction_id)
        return (await self._call(TraceList, "GET", "traces", *path)).traces

    async def named(self, name: str, query: NamedTraceQuery) -> NamedTraceList:
        """Return the notes with a name in all queues, oldest first."""
        path = "by-name", check_name("traceName", name)
        return await self._call(NamedTraceList, "GET", "traces", *path, query=to_builtins(query))

    async def names(self, query: TraceNameQuery) -> TraceNameList:
        """Return the names of trace notes, most recently used first."""
        return await self._call(TraceNameList, "GET", "traces", "names", query=to_builtins(query))
