"""Traces: notes of consumers on their work, by message and by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.errors import InvalidRequest, NotFound
from fairlane.http.decode import decode, read
from fairlane.http.router import Route
from fairlane.http.routes.browse import message_of
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_traces import (
    NamedTraceEntry,
    NamedTraceList,
    NamedTraceQuery,
    TraceAdded,
    TraceBody,
    TraceList,
    TraceNameList,
    TraceNameQuery,
    name_out,
    named_trace_out,
    trace_out,
)
from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.limits import POP_BYTES_MAX
from fairlane.model.message import check_depth
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.segment import messages
from fairlane.model.trace import Trace
from fairlane.wire.base import Pagination

if TYPE_CHECKING:
    from fairlane.http.app import App


async def add(app: App, request: Request) -> Response:
    trace = _trace(decode(request.body, TraceBody))
    store = app.broker.store
    if await store.messages.find(trace.partition, trace.transaction_id) is None or not await store.traces.add(trace):
        raise NotFound("Message not found")
    return json_response(TraceAdded(success=True, trace_id=trace.id), 201)


def _trace(body: TraceBody) -> Trace:
    data = bytes(body.data)
    if not data:
        raise InvalidRequest("data is required")
    check_depth(data)
    names = body.trace_names or []
    return Trace(
        id=uuid7(),
        partition=PartitionId.parse(body.partition_id),
        transaction_id=body.transaction_id,
        data=data,
        group=body.consumer_group or QUEUE_MODE,
        event_type=body.event_type or "info",
        names=[names] if isinstance(names, str) else names,
    ).check()


async def of_message(app: App, request: Request) -> Response:
    partition, transaction_id = message_of(request)
    traces = await app.broker.store.traces.of_message(partition, transaction_id)
    return json_response(TraceList(traces=[trace_out(trace) for trace in traces]))


async def by_name(app: App, request: Request) -> Response:
    query = read(request.query, NamedTraceQuery)
    name = check_name("traceName", request.params["traceName"])
    store = app.broker.store
    traces = await store.traces.named(app.tenant, name, limit=query.limit, offset=query.offset)
    queues = {queue.id: queue.name for queue in await store.queues.list(app.tenant)}
    shown: list[NamedTraceEntry] = []
    size = 0
    for trace in traces:
        payload = await _payload(app, trace)
        size += len(trace.data) + len(payload or b"")
        if shown and size > POP_BYTES_MAX:
            break
        shown.append(named_trace_out(trace, await _names(app, trace, queues), payload))
    answer = NamedTraceList(
        traces=shown,
        total=await store.traces.count_named(app.tenant, name),
        pagination=Pagination(limit=query.limit, offset=query.offset),
    )
    return json_response(answer)


async def _names(app: App, trace: Trace, queues: dict[int, str]) -> tuple[str | None, str | None]:
    partition = await app.broker.catalogue.partition(trace.partition)
    return (queues.get(partition.queue_id), partition.name) if partition else (None, None)


async def _payload(app: App, trace: Trace) -> msgspec.Raw | None:
    store = app.broker.store.messages
    position = await store.find(trace.partition, trace.transaction_id)
    if position is None:
        return None
    segments = await store.read(trace.partition, position, position + 1)
    found = next(messages(segments, position, position + 1), None)
    return found.data if found else None


async def list_names(app: App, request: Request) -> Response:
    query = read(request.query, TraceNameQuery)
    traces = app.broker.store.traces
    names = await traces.names(app.tenant, limit=query.limit, offset=query.offset)
    answer = TraceNameList(
        trace_names=[name_out(name) for name in names],
        total=await traces.count_names(app.tenant),
        pagination=Pagination(limit=query.limit, offset=query.offset),
    )
    return json_response(answer)


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/traces",
        endpoint=add,
        summary="Note something of the work on a message.",
        tag="traces",
        body=TraceBody,
        answer=TraceAdded,
        statuses=(201, 404),
    ),
    Route(
        method="GET",
        path="/api/v1/traces/names",
        endpoint=list_names,
        summary="The names that traces were given, latest seen first.",
        tag="traces",
        query=TraceNameQuery,
        answer=TraceNameList,
    ),
    Route(
        method="GET",
        path="/api/v1/traces/by-name/{traceName}",
        endpoint=by_name,
        summary="Traces of one name over all queues, oldest first.",
        tag="traces",
        query=NamedTraceQuery,
        answer=NamedTraceList,
    ),
    Route(
        method="GET",
        path="/api/v1/traces/{partitionId}/{transactionId}",
        endpoint=of_message,
        summary="The traces of one message, oldest first.",
        tag="traces",
        answer=TraceList,
    ),
]
