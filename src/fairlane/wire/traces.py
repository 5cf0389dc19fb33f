"""Traces on the wire. Answers are snake_case, for published clients."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit, Offset, Pagination


class TraceBody(Body):
    transaction_id: str
    partition_id: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    consumer_group: str | None = None
    event_type: str | None = None
    trace_names: str | list[str] | None = None


class TraceAdded(Answer):
    success: bool = True
    trace_id: str


class TraceEntry(Answer, rename=None):
    id: str
    event_type: str
    data: msgspec.Raw
    group: str = msgspec.field(name="consumer_group")
    worker_id: str | None = None
    created_at: Moment
    names: list[str] = msgspec.field(name="trace_names")


class TraceList(Answer, rename=None):
    traces: list[TraceEntry]


class NamedTraceEntry(TraceEntry, rename=None):
    transaction_id: str
    partition_id: str
    queue_name: str | None
    partition_name: str | None
    message_payload: msgspec.Raw
    """Payload of the message. Null if it was deleted."""


class NamedTraceList(Answer, rename=None):
    traces: list[NamedTraceEntry]
    total: int
    pagination: Pagination


class TraceNameEntry(Answer, rename=None):
    trace_name: str
    trace_count: int
    message_count: int
    last_seen: Moment


class TraceNameList(Answer, rename=None):
    trace_names: list[TraceNameEntry]
    total: int
    pagination: Pagination


class NamedTraceQuery(Body):
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    """Size of the page. A page ends earlier if its payloads become too large for one answer."""
    offset: Offset = 0


class TraceNameQuery(Body):
    limit: Limit = 50
    offset: Offset = 0
