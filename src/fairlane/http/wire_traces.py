"""Shapes of traces. Their answers are snake_case, as their readers expect."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fairlane.http.wire_queues import Wire
from fairlane.model.moment import timestamp
from fairlane.model.trace import Trace, TraceName
from fairlane.wire.base import NULL, Limit, Offset, Pagination


class TraceBody(Wire, rename="camel", kw_only=True):
    transaction_id: str
    partition_id: str
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    consumer_group: str | None = None
    event_type: str | None = None
    trace_names: str | list[str] | None = None


class TraceAdded(Wire, rename="camel", kw_only=True):
    success: bool
    trace_id: str


class TraceEntry(msgspec.Struct, kw_only=True):
    id: str
    event_type: str
    data: msgspec.Raw
    consumer_group: str
    worker_id: str | None = None
    created_at: str
    trace_names: list[str]


class TraceList(msgspec.Struct, kw_only=True):
    traces: list[TraceEntry]


class NamedTraceEntry(TraceEntry, kw_only=True):
    transaction_id: str
    partition_id: str
    queue_name: str | None
    partition_name: str | None
    message_payload: msgspec.Raw
    """null once the message is gone."""


class NamedTraceList(msgspec.Struct, kw_only=True):
    traces: list[NamedTraceEntry]
    total: int
    pagination: Pagination


class TraceNameEntry(msgspec.Struct, kw_only=True):
    trace_name: str
    trace_count: int
    message_count: int
    last_seen: str


class TraceNameList(msgspec.Struct, kw_only=True):
    trace_names: list[TraceNameEntry]
    total: int
    pagination: Pagination


class NamedTraceQuery(msgspec.Struct, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    """A page ends earlier when its payloads become too large for one answer."""
    offset: Offset = 0


class TraceNameQuery(msgspec.Struct, kw_only=True):
    limit: Limit = 50
    offset: Offset = 0


def trace_out(trace: Trace) -> TraceEntry:
    return TraceEntry(**_fields(trace))


def named_trace_out(trace: Trace, names: tuple[str | None, str | None], payload: msgspec.Raw | None) -> NamedTraceEntry:
    return NamedTraceEntry(
        transaction_id=trace.transaction_id,
        partition_id=str(trace.partition),
        queue_name=names[0],
        partition_name=names[1],
        message_payload=NULL if payload is None else payload,
        **_fields(trace),
    )


def name_out(name: TraceName) -> TraceNameEntry:
    return TraceNameEntry(
        trace_name=name.name,
        trace_count=name.traces,
        message_count=name.messages,
        last_seen=timestamp(name.last_at),
    )


def _fields(trace: Trace) -> dict[str, Any]:
    return {
        "id": trace.id,
        "event_type": trace.event_type,
        "data": msgspec.Raw(trace.data),
        "consumer_group": trace.group,
        "created_at": timestamp(trace.created_at),
        "trace_names": trace.names,
    }
