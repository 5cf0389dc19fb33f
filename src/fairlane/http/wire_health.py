"""Shapes of health, metrics and maintenance."""

from __future__ import annotations

import msgspec

from fairlane.http.wire_queues import Wire
from fairlane.http.wire_status import EngineStatus, JournalStatus


class Alive(msgspec.Struct, kw_only=True):
    status: str


class Ready(msgspec.Struct, kw_only=True):
    status: str
    database: str
    journal: JournalStatus | None = None
    """What waits for the store; a broker without its store still takes pushes and acks."""


class Worker(msgspec.Struct, kw_only=True):
    worker_id: int
    status: str


class Health(msgspec.Struct, kw_only=True):
    status: str
    database: str
    server: str
    worker_id: int
    version: str
    store: str
    uptime_seconds: float
    queen: Worker


class Memory(Wire, rename="camel", kw_only=True):
    rss: int


class Cpu(Wire, rename="camel", kw_only=True):
    user: float
    system: float


class Rate(Wire, rename="camel", kw_only=True):
    total: int
    rate: float
    """A second, since the broker started."""


class Pool(Wire, rename="camel", kw_only=True):
    pool_size: int
    idle_connections: int
    waiting_requests: int


class Metrics(Wire, rename="camel", kw_only=True):
    uptime: float
    requests: Rate
    messages: Rate
    database: Pool
    memory: Memory
    cpu: Cpu
    engine: EngineStatus


class MaintenanceBody(msgspec.Struct, kw_only=True):
    enabled: bool


class BufferStats(Wire, rename="camel", kw_only=True):
    pending_count: int
    failed_count: int
    db_healthy: bool


class Maintenance(Wire, rename="camel", kw_only=True):
    maintenance_mode: bool
    pop_maintenance_mode: bool
    buffered_messages: int
    buffer_healthy: bool
    buffer_stats: BufferStats
    message: str | None = None


class PopMaintenance(Wire, rename="camel", kw_only=True):
    pop_maintenance_mode: bool
    message: str


class NotifyBody(msgspec.Struct, kw_only=True):
    queue: str
    partition: str | None = None


class Notified(msgspec.Struct, kw_only=True):
    status: str


class SharedState(msgspec.Struct, kw_only=True):
    """Brokers share nothing but their store."""

    enabled: bool
    store: str


class Refreshed(msgspec.Struct, kw_only=True):
    skipped: bool
    reason: str
