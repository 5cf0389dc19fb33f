"""Shapes of the series that dashboards draw. All of it is this broker's, since it started."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.http.wire_queues import Wire
from fairlane.http.wire_status import SpanQuery, TimeRange, WorkerEntry


class ReplicaQuery(SpanQuery, rename="camel", kw_only=True):
    hostname: str | None = None
    worker_id: str | None = None


class Replica(Wire, rename="camel", kw_only=True):
    hostname: str
    worker_id: int
    time_series: list[dict[str, Any]] = msgspec.field(default_factory=list)


class SystemMetrics(Wire, rename="camel", kw_only=True):
    time_range: TimeRange
    replicas: list[Replica]
    replica_count: int
    bucket_minutes: int
    point_count: int


class WorkerPoint(Wire, rename="camel", kw_only=True):
    timestamp: str
    push_requests: int
    push_messages: int
    pop_requests: int
    pop_messages: int
    ack_requests: int
    ack_messages: int
    transactions: int
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    avg_lag_ms: float
    max_lag_ms: float
    db_errors: int


class QueueLag(Wire, rename="camel", kw_only=True):
    queue_name: str
    pop_count: int
    avg_lag_ms: float
    max_lag_ms: float
    bucket_time: str | None = None


class WorkerSummary(Wire, rename="camel", kw_only=True):
    total_push_messages: int
    total_pop_messages: int
    total_ack_messages: int
    total_push_requests: int
    total_pop_requests: int
    total_ack_requests: int
    total_transactions: int
    total_db_errors: int


class WorkerMetrics(Wire, rename="camel", kw_only=True):
    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    time_series: list[WorkerPoint]
    workers: list[WorkerEntry]
    queues: list[QueueLag]
    summary: WorkerSummary


class QueueOpsPoint(Wire, rename="camel", kw_only=True):
    bucket: str
    queue_name: str
    push_requests: int
    push_messages: int
    pop_messages: int
    pop_empty: int
    ack_success: int
    ack_failed: int
    dead_letters: int
    avg_lag_ms: float
    max_lag_ms: float
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    empty_per_second: float


class QueueOps(Wire, rename="camel", kw_only=True):
    time_range: TimeRange
    bucket_minutes: int
    series: list[QueueOpsPoint]
    queues: list[str]


class ParkedPoint(Wire, rename="camel", kw_only=True):
    bucket: str
    queue_name: str
    hostname: str
    worker_id: int
    parked_count: int


class ReplicaName(Wire, rename="camel", kw_only=True):
    hostname: str
    worker_id: int


class ParkedReplicas(Wire, rename="camel", kw_only=True):
    """Long polls parked now; what was parked before is not kept."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[ParkedPoint]
    replicas: list[ReplicaName]


class RetentionTotals(Wire, rename="camel", kw_only=True):
    retention_msgs: int = 0
    completed_retention_msgs: int = 0
    eviction_msgs: int = 0
    total_msgs: int = 0
    event_count: int = 0


class RetentionPoint(RetentionTotals, rename="camel", kw_only=True):
    bucket: str


class Retention(Wire, rename="camel", kw_only=True):
    time_range: TimeRange
    bucket_minutes: int
    series: list[RetentionPoint]
    totals: RetentionTotals
