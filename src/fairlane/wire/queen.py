"""Foreign things on the wire: what exists for the sake of Queen's published clients and dashboard alone. What is said
of throughput is this broker's, since it started."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from fairlane.wire.base import Answer, Body, Limit, Offset
from fairlane.wire.queues import PageQuery, camel
from fairlane.wire.status import SpanQuery

FOREIGN_OPTIONS: Final = frozenset({"maxQueueSize", "description"})
"""Options that published clients send and no queue here has."""
Page = dict[str, Any]
"""An answer for the dashboard's pages: no client reads it by a class, so that it is declared where it is made."""


def page(**fields: Any) -> Page:
    """Fields by their names on the wire."""
    return {camel(name): value for name, value in fields.items()}


class Worker(Answer, rename=None):
    worker_id: int
    status: str = "active"


class Health(Answer, rename=None):
    status: str
    database: str
    server: str = "fairlane"
    worker_id: int
    version: str
    store: str
    uptime_seconds: float
    queen: Worker


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
    """Brokers share nothing but their store."""

    enabled: bool = False
    store: str


class Refreshed(Answer):
    skipped: bool = True
    reason: str = "statistics are counted when they are asked for"


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
