"""Traces: notes of consumers on their work, by message and by name."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http import scopes
from fairlane.http.router import Routes, respond
from fairlane.http.server import Response
from fairlane.model.access import Caller
from fairlane.wire import traces as wire

routes = Routes("traces")


@routes.post("/api/v1/traces", needs="pop", each=True, audited=False, answer=wire.TraceAdded, statuses=(201,))
async def add(broker: Broker, caller: Caller, body: wire.TraceBody) -> Response:
    """Note something of the work on a message."""
    await scopes.check_partitions(broker, caller, "pop", [body.partition_id])
    return respond(wire.TraceAdded(trace_id=await broker.traces.add(body)), 201)


@routes.get("/api/v1/traces/names", needs="browse", each=True, live=True)
async def list_names(broker: Broker, caller: Caller, query: wire.TraceNameQuery) -> wire.TraceNameList:
    """The names that traces were given, latest seen first."""
    return await broker.traces.names(query, caller)


@routes.get("/api/v1/traces/by-name/{traceName}", needs="browse", each=True, live=True)
async def by_name(broker: Broker, caller: Caller, traceName: str, query: wire.NamedTraceQuery) -> wire.NamedTraceList:
    """Traces of one name over all queues that the caller may browse, oldest first."""
    return await broker.traces.named(traceName, query, caller)


@routes.get("/api/v1/traces/{partitionId}/{transactionId}", needs="browse", each=True, live=True)
async def of_message(broker: Broker, caller: Caller, partitionId: str, transactionId: str) -> wire.TraceList:
    """The traces of one message, oldest first."""
    await scopes.check_partitions(broker, caller, "browse", [partitionId])
    return wire.TraceList(traces=await broker.traces.of_message(partitionId, transactionId))
