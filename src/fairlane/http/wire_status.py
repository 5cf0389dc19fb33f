"""Shapes of status and analytics. What is said of throughput is this broker's, since it started."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fairlane.http.wire_operations import AdmissionStatus
from fairlane.http.wire_queues import Counts, QueueSummary, Wire
from fairlane.wire.base import Limit, Offset, Pagination


class SpanQuery(Wire, rename="camel", kw_only=True):
    since: str | None = msgspec.field(name="from", default=None)
    until: str | None = msgspec.field(name="to", default=None)
    queue: str | None = None
    namespace: str | None = None
    task: str | None = None


class AnalyticsQuery(SpanQuery, rename="camel", kw_only=True):
    interval: Literal["minute", "hour", "day"] = "hour"


class StatusQueuesQuery(SpanQuery, rename="camel", kw_only=True):
    limit: Limit = 100
    offset: Offset = 0


class StatusMessagesQuery(Wire, rename="camel", kw_only=True):
    limit: Limit = 50
    offset: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0


class StatusQueueQuery(Wire, rename="camel", kw_only=True):
    include_partitions: bool = True
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000


class TimeRange(msgspec.Struct, kw_only=True):
    since: str = msgspec.field(name="from")
    until: str = msgspec.field(name="to")


class Point(Wire, rename="camel", kw_only=True):
    timestamp: str
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


class Requests(Wire, rename="camel", kw_only=True):
    push: float
    pop: float
    ack: float


class StatusCounts(Counts, rename="camel", kw_only=True):
    requests: Requests
    batch_efficiency: Requests
    """Messages a request, since the broker started."""


class LeaseCounts(Wire, rename="camel", kw_only=True):
    active: int
    partitions_with_leases: int
    total_batch_size: int


class DeadCounts(Wire, rename="camel", kw_only=True):
    total_messages: int


class WorkerEntry(Wire, rename="camel", kw_only=True):
    hostname: str
    worker_id: int
    db_connections: int
    job_queue_size: int
    messages_processed: int


class ErrorCounts(Wire, rename="camel", kw_only=True):
    db_errors: int
    ack_failed: int
    dlq_messages: int


class StatusQueue(Wire, rename="camel", kw_only=True):
    id: str
    name: str
    namespace: str
    task: str
    partitions: int
    messages: Counts


class Status(Wire, rename="camel", kw_only=True):
    time_range: TimeRange
    bucket_minutes: int
    point_count: int
    since_start_of_broker: str
    """Nothing is known of the throughput before this."""
    throughput: list[Point]
    queues: list[StatusQueue]
    messages: StatusCounts
    leases: LeaseCounts
    dead_letter_queue: DeadCounts
    workers: list[WorkerEntry]
    errors: ErrorCounts
    stats_age: int


class StatusQueues(Wire, rename="camel", kw_only=True):
    queues: list[QueueSummary]
    pagination: Pagination


class StatusQueueHead(Wire, rename="camel", kw_only=True):
    id: str
    name: str
    namespace: str
    task: str
    priority: int
    created_at: str
    config: dict[str, Any]


class Consumed(Wire, rename="camel", kw_only=True):
    total_consumed: int


class StatusPartition(Wire, rename="camel", kw_only=True):
    id: str
    name: str
    created_at: str
    messages: Counts
    stats: Counts
    cursor: Consumed
    last_activity: str | None
    oldest_message: str | None
    newest_message: str | None


class StatusTotals(Counts, rename="camel", kw_only=True):
    messages: Counts


class StatusQueueDetail(Wire, rename="camel", kw_only=True):
    queue: StatusQueueHead
    partitions: list[StatusPartition]
    totals: StatusTotals
    next: str | None


class StatusMessage(Wire, rename="camel", kw_only=True):
    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    status: str
    created_at: str


class DataPoint(Wire, rename="camel", kw_only=True):
    timestamp: str
    messages: int


class Analytics(msgspec.Struct, kw_only=True):
    data_points: list[DataPoint] = msgspec.field(name="dataPoints")
    interval: str
    since: str = msgspec.field(name="from")
    until: str = msgspec.field(name="to")
    since_start_of_broker: str = msgspec.field(name="sinceStartOfBroker")


class JournalStatus(Wire, rename="camel", kw_only=True):
    store_up: bool
    why_not: str | None
    """What the store said, while it is away."""
    away_seconds: float
    entries: int
    messages: int
    lanes: int
    """Partitions whose pushes or acks wait here."""
    bytes: int
    bytes_max: int
    failed: int
    oldest_seconds: float | None
    drain_rate: float
    """Messages that left it a second, lately."""
    acks_lost: int
    """Acks whose lease had ended when the store was back."""


class FailedEntry(Wire, rename="camel", kw_only=True):
    """Messages, or acks, that the store refused when they came from the journal; its id is that of the operation."""

    id: str
    kind: str
    queue: str | None
    consumer_group: str | None
    """Of acks."""
    partition: str
    messages: int
    error: str
    accepted_at: str


class JournalReport(Wire, rename="camel", kw_only=True):
    pending: int
    failed: int
    db_healthy: bool
    worker: int
    journal: JournalStatus | None = None
    failed_entries: list[FailedEntry] = msgspec.field(default_factory=list)


class Connections(msgspec.Struct, kw_only=True):
    total: int
    busy: int


class RequestCounts(msgspec.Struct, kw_only=True):
    pending: int
    """Requests handed over and not answered yet."""
    completed: int
    parked: int
    """Long polls that wait for messages."""


class VerbStatus(msgspec.Struct, kw_only=True):
    count: int
    avg_ms: float
    p50_ms: float
    p99_ms: float
    items: int
    errors: int


class EngineStatus(msgspec.Struct, kw_only=True):
    connections: Connections
    """To the database."""
    queue: RequestCounts
    operations: dict[str, VerbStatus]
    admission: AdmissionStatus
    uptime_seconds: float
