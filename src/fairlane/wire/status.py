"""Status of a broker on the wire: health, journal, admission and latencies."""

from __future__ import annotations

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body


class SpanQuery(Body):
    """A time range, and the queues to report on."""

    since: Moment | None = msgspec.field(name="from", default=None)
    until: Moment | None = msgspec.field(name="to", default=None)
    queue: str | None = None
    namespace: str | None = None
    task: str | None = None


class TimeRange(Answer):
    since: Moment = msgspec.field(name="from")
    until: Moment = msgspec.field(name="to")


class Alive(Answer):
    status: str = "alive"


class JournalStatus(Answer):
    store_up: bool
    why_not: str | None
    """Error of the store while it is down, or a recent one while entries wait."""
    away_seconds: float
    entries: int
    messages: int
    lanes: int
    """Partitions with pushes or acks in the journal."""
    bytes: int
    bytes_max: int
    failed: int
    oldest_seconds: float | None
    drain_rate: float
    """Recent rate of messages that leave the journal, per second."""
    acks_lost: int
    """Acks whose lease had ended when the store came back."""


class HealthWorker(Answer, rename=None):
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
    queen: HealthWorker
    """Health in the form that clients of Queen read."""


class Ready(Answer):
    status: str
    database: str
    journal: JournalStatus | None = None
    """Entries that wait for the store. None for callers without the scope `status`."""


class Connections(Answer):
    total: int
    busy: int


class RequestCounts(Answer):
    pending: int
    """Requests that are not answered yet."""
    completed: int
    parked: int
    """Long polls that wait for messages."""


class VerbStatus(Answer, rename=None):
    count: int
    avg_ms: float
    p50_ms: float
    p99_ms: float
    items: int
    errors: int


class AdmissionKind(Answer, rename=None):
    """Limits and decisions for one kind of request."""

    wait_seconds: float
    """Estimated wait of a new request. For a pop, the wait of its acks."""
    wait_seconds_max: float
    operations_max: int
    """Limit of operations. 0 if such requests never become operations."""
    decisions: dict[str, int]


class AdmissionStatus(Answer):
    kinds: dict[str, AdmissionKind]


class EngineStatus(Answer, rename=None):
    connections: Connections
    """Connections to the database."""
    queue: RequestCounts
    operations: dict[str, VerbStatus]
    admission: AdmissionStatus
    uptime_seconds: float


class FailedEntry(Answer):
    """Messages or acks from the journal that the store refused. They have the id of the operation."""

    id: str
    kind: str
    queue: str | None
    consumer_group: str | None
    """Consumer group of acks."""
    partition: str
    messages: int
    error: str
    accepted_at: Moment


class JournalReport(Answer):
    pending: int = 0
    failed: int = 0
    db_healthy: bool
    worker: int
    journal: JournalStatus | None = None
    failed_entries: list[FailedEntry] = msgspec.field(default_factory=list)


class Memory(Answer):
    rss: int


class Cpu(Answer):
    user: float
    system: float


class Rate(Answer):
    total: int
    rate: float
    """Calls per second since the broker started."""


class Pool(Answer):
    pool_size: int
    idle_connections: int
    waiting_requests: int


class Metrics(Answer):
    uptime: float
    requests: Rate
    messages: Rate
    database: Pool
    memory: Memory
    cpu: Cpu
    engine: EngineStatus
