"""JSON of Queen's endpoints. Throughput is that of this broker since it started."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fairlane.wire.base import Answer, Body, Limit, Offset
from fairlane.wire.queues import PageQuery, camel
from fairlane.wire.status import SpanQuery

Page = dict[str, Any]
"""An answer for the pages of the dashboard. No client decodes it, so it is declared where it is built."""


def page(**fields: Any) -> Page:
    """Build an answer from fields by their names on the wire."""
    return {camel(name): value for name, value in fields.items()}


class MaintenanceBody(Body):
    enabled: bool


class BufferStats(Answer):
    pending_count: int
    failed_count: int
    db_healthy: bool


class Maintenance(Answer):
    maintenance_mode: bool
    pop_maintenance_mode: bool
    buffered_messages: int
    buffer_healthy: bool
    buffer_stats: BufferStats
    message: str | None = None


class PopMaintenance(Answer):
    pop_maintenance_mode: bool
    message: str


class NotifyBody(Body):
    queue: str
    partition: str | None = None


class Notified(Answer):
    status: str = "ok"


class SharedState(Answer):
    """The report on state that brokers share outside their store. It is always empty."""

    enabled: bool = False
    store: str


class Refreshed(Answer):
    skipped: bool = True
    reason: str = "statistics are computed on request"


class AnalyticsQuery(SpanQuery):
    interval: Literal["minute", "hour", "day"] = "hour"


class ReplicaQuery(SpanQuery):
    hostname: str | None = None
    worker_id: str | None = None


class StatusQueuesQuery(SpanQuery):
    limit: Limit = 100
    offset: Offset = 0


class StatusMessagesQuery(Body):
    limit: Limit = 50
    offset: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0


class StatusQueueQuery(PageQuery):
    include_partitions: bool = True
