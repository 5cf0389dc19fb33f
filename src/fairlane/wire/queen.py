"""Foreign things on the wire: what exists for the sake of Queen's published clients and dashboard alone. What is said
of throughput is this broker's, since it started."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit, Offset, Pagination
from fairlane.wire.queues import Counts, PageQuery, PartitionDetail, QueueHead, QueueSummary
from fairlane.wire.status import SpanQuery, TimeRange

FOREIGN_OPTIONS: Final = frozenset({"maxQueueSize", "description"})
"""Options that published clients send and no queue here has."""


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


class Point(Answer):
    timestamp: Moment
    ingested: int
    processed: int
    pop_messages: int
    ingested_per_second: float
    processed_per_second: float
    pop_per_second: float
    avg_lag_ms: float
    max_lag_ms: float
    ack_failed: int
    dlq_count: int
    db_errors: int
    queen_cpu_user_pct: float
    queen_cpu_sys_pct: float
    queen_rss_mb: float


class Requests(Answer):
    push: float
    pop: float
    ack: float


class StatusCounts(Counts):
    requests: Requests
    batch_efficiency: Requests
    """Messages a request, since the broker started."""


class LeaseCounts(Answer):
    active: int
    partitions_with_leases: int
    total_batch_size: int


class DeadCounts(Answer):
    total_messages: int


class WorkerEntry(Answer):
    hostname: str
    worker_id: int
    db_connections: int
    job_queue_size: int
    messages_processed: int


class ErrorCounts(Answer):
    db_errors: int
    ack_failed: int
    dlq_messages: int


class Status(Answer):
    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    since_start_of_broker: Moment
    """Nothing is known of the throughput before this."""
    throughput: list[Point]
    queues: list[QueueSummary]
    messages: StatusCounts
    leases: LeaseCounts
    dead_letter_queue: DeadCounts
    workers: list[WorkerEntry]
    errors: ErrorCounts
    stats_age: int


class StatusQueues(Answer):
    queues: list[QueueSummary]
    pagination: Pagination


class StatusQueueHead(QueueHead):
    priority: int
    config: dict[str, Any]


class Consumed(Answer):
    total_consumed: int


class StatusPartition(PartitionDetail):
    messages: Counts
    cursor: Consumed
    last_activity: Moment | None


class StatusTotals(Counts):
    messages: Counts


class StatusQueueDetail(Answer):
    queue: StatusQueueHead
    partitions: list[StatusPartition]
    totals: StatusTotals
    next: str | None


class DataPoint(Answer):
    timestamp: Moment
    messages: int


class Analytics(Answer):
    data_points: list[DataPoint]
    interval: str
    since: Moment = msgspec.field(name="from")
    until: Moment = msgspec.field(name="to")
    since_start_of_broker: Moment


class ReplicaName(Answer):
    hostname: str
    worker_id: int


class Replica(ReplicaName):
    time_series: list[dict[str, Any]]


class SystemMetrics(Answer):
    time_range: TimeRange
    replicas: list[Replica]
    replica_count: int
    bucket_minutes: int
    point_count: int


class WorkerPoint(Answer):
    timestamp: Moment
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


class QueueLag(Answer):
    queue_name: str
    pop_count: int
    avg_lag_ms: float
    max_lag_ms: float
    bucket_time: Moment | None = None


class WorkerSummary(Answer):
    total_push_messages: int
    total_pop_messages: int
    total_ack_messages: int
    total_push_requests: int
    total_pop_requests: int
    total_ack_requests: int
    total_transactions: int
    total_db_errors: int


class WorkerMetrics(Answer):
    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    time_series: list[WorkerPoint]
    workers: list[WorkerEntry]
    queues: list[QueueLag]
    summary: WorkerSummary


class QueueOpsPoint(Answer):
    bucket: Moment
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


class QueueOps(Answer):
    time_range: TimeRange
    bucket_minutes: int
    series: list[QueueOpsPoint]
    queues: list[str]


class ParkedPoint(Answer):
    bucket: Moment
    queue_name: str
    hostname: str
    worker_id: int
    parked_count: int


class ParkedReplicas(Answer):
    """Long polls parked now; what was parked before is not kept."""

    time_range: TimeRange
    bucket_minutes: int
    series: list[ParkedPoint]
    replicas: list[ReplicaName]


class RetentionTotals(Answer):
    retention_msgs: int
    completed_retention_msgs: int
    eviction_msgs: int
    total_msgs: int
    event_count: int


class RetentionPoint(RetentionTotals):
    bucket: Moment


class RetentionSeries(Answer):
    time_range: TimeRange
    bucket_minutes: int
    series: list[RetentionPoint]
    totals: RetentionTotals
