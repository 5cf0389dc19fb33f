"""Status of a broker on the wire: health, what waits, and how long verbs take."""

from __future__ import annotations

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body


class SpanQuery(Body):
    """A range of time, and the queues that are meant."""

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
    """Requests handed over and not answered yet."""
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
    """The limits of one kind of request, and which way those went that came."""

    wait_seconds: float
    """How long one more would wait now; of a pop, its acks."""
    wait_seconds_max: float
    operations_max: int
    """0: it never becomes an operation."""
    decisions: dict[str, int]


class AdmissionStatus(Answer):
    kinds: dict[str, AdmissionKind]


class EngineStatus(Answer, rename=None):
    connections: Connections
    """To the database."""
    queue: RequestCounts
    operations: dict[str, VerbStatus]
    admission: AdmissionStatus
    uptime_seconds: float


class FailedEntry(Answer):
    """Messages, or acks, that the store refused when they came from the journal; its id is that of the operation."""

    id: str
    kind: str
    queue: str | None
    consumer_group: str | None
    """Of acks."""
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
    """A second, since the broker started."""


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
