"""Traces: notes of consumers on their work, by message and by name."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes, respond
from fairlane.http.server import Response
from fairlane.model.principal import Principal
from fairlane.queen.trace_notes import TraceNotes
from fairlane.wire import traces as wire

routes = Routes("traces")


@routes.post("/api/v1/traces", needs="pop", each=True, audited=False, answer=wire.TraceAdded, statuses=(201,))
async def add(broker: Broker, caller: Principal, body: wire.TraceBody) -> Response:
    """Add a note about the work on a message."""
    await scopes.check_partitions(broker, caller, "pop", [body.partition_id])
    return respond(wire.TraceAdded(trace_id=await broker.resource(TraceNotes).add(body)), 201)


@routes.get("/api/v1/traces/names", needs="browse", each=True, live=True)
async def list_names(broker: Broker, caller: Principal, query: wire.TraceNameQuery) -> wire.TraceNameList:
    """List the names of trace notes, latest used first."""
    return await broker.resource(TraceNotes).names(query, caller)


@routes.get("/api/v1/traces/by-name/{traceName}", needs="browse", each=True, live=True)
async def by_name(
    broker: Broker, caller: Principal, traceName: str, query: wire.NamedTraceQuery
) -> wire.NamedTraceList:
    """List the notes of one name over all queues that the caller may browse, oldest first."""
    return await broker.resource(TraceNotes).named(traceName, query, caller)


@routes.get("/api/v1/traces/{partitionId}/{transactionId}", needs="browse", each=True, live=True)
async def of_message(broker: Broker, caller: Principal, partitionId: str, transactionId: str) -> wire.TraceList:
    """List the notes of a message, oldest first."""
    await scopes.check_partitions(broker, caller, "browse", [partitionId])
    return wire.TraceList(traces=await broker.resource(TraceNotes).of_message(partitionId, transactionId))
