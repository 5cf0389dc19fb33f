"""Monitoring on the wire: findings, history, the live stream, and the system report."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fairlane.model.history import KEEP_MINUTES
from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body
from fairlane.wire.status import JournalStatus

Severity = Literal["critical", "warning", "notice"]
WATCHED_MAX = 16


class Action(Answer):
    """A request of this API that may fix the problem."""

    label: str
    method: str
    path: str
    body: dict[str, Any] = msgspec.field(default_factory=dict)


class Finding(Answer):
    kind: str
    """Kind of the problem.

    One of lanes_stopped, app_lost, leases_lost, dead_letters_growing, operations_failed, operations_stuck,
    staged_waiting, journal_waiting, group_stopped, queue_unread, schedule_late, hook_refused, hook_unavailable,
    snapshot_pinned, bloat, store_slow, store_away, cell_away, disk_full and tenant_floods.
    """
    severity: Severity
    sentence: str
    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    app: str | None = None
    tenant: str | None = None
    count: int | None = None
    since: Moment | None = None
    page: str | None = None
    """Page of the dashboard with the details."""
    action: Action | None = None
    key: str = ""
    """Identifies the finding as long as it lasts, for example to snooze it."""
    snoozed_until: Moment | None = None
    """End of its snooze. Null if it is not snoozed."""
    snoozed_by: str | None = None


class FindingList(Answer):
    findings: list[Finding]
    """Findings, most severe first."""
    timestamp: Moment


class SnoozeBody(Body):
    key: str
    """Key of a current finding."""
    seconds: Annotated[int, msgspec.Meta(ge=1, le=7 * 86_400)] | None = None
    """Duration of the snooze, up to a week.

    Null snoozes the finding until it ends, becomes more severe, or its count doubles, but at most for a week.
    """


class UnsnoozeQuery(Body):
    key: str


class Unsnoozed(Answer):
    key: str
    deleted: bool
    """False if the finding was not snoozed."""


class HistoryQuery(Body):
    queue: str | None = None
    """Queue to report on. The default is all queues together."""
    group: str | None = None
    """Group of the queue whose lag is reported."""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=KEEP_MINUTES)] = 60
    """Length of the time range, up to 30 days.

    Up to 5 minutes have one point per second, or per five seconds for one queue. Up to a day have one per minute, up to
    a week one per ten minutes, longer ranges one per hour.
    """
    until: Moment | None = None
    """End of the time range. The default is now. With an end, points are at least a minute long."""


class History(Answer):
    """A time series, oldest first, with one value per point in each column.

    Rates are messages per second, and null where nothing is known. Up to five minutes they are sums over all processes
    of the broker that answers. Longer ranges are sums over all brokers, kept in the store for 30 days. Latencies are
    from the slowest process. In points of several minutes, depth, age, lag and latencies are maxima.
    """

    queue: str | None
    group: str | None
    step_seconds: int
    since: Moment = msgspec.field(name="from")
    """Time of the first point."""
    pushed: list[float | None]
    popped: list[float | None]
    acked: list[float | None]
    failed: list[float | None]
    dead: list[float | None]
    depth: list[int | None]
    """Messages that some group has not finished, at the last count."""
    oldest_seconds: list[float | None]
    """Age of the oldest of them. Up to five minutes only for all queues together."""
    lag: list[int | None]
    """Messages that the group has not finished, at the last count."""
    wait_mean_ms: list[float | None]
    """Mean time in the queue of the first message of each pop. Up to five minutes only for one queue."""
    wait_max_ms: list[float | None]
    push_p50_ms: list[float | None] = msgspec.field(name="pushP50Ms")
    push_p99_ms: list[float | None] = msgspec.field(name="pushP99Ms")
    pop_p50_ms: list[float | None] = msgspec.field(name="popP50Ms")
    pop_p99_ms: list[float | None] = msgspec.field(name="popP99Ms")
    ack_p50_ms: list[float | None] = msgspec.field(name="ackP50Ms")
    ack_p99_ms: list[float | None] = msgspec.field(name="ackP99Ms")


class LiveQuery(Body):
    """The query of a live stream. `watch` is repeated for each path."""

    watch: Annotated[list[str], msgspec.Meta(min_length=1, max_length=WATCHED_MAX)]


class LiveSnapshot(Answer):
    """The complete answer of a path, or its current error."""

    path: str
    status: int
    body: msgspec.Raw


class LiveChange(Answer):
    """The difference to the previous answer, as a JSON merge patch (RFC 7396)."""

    path: str
    patch: dict[str, Any]


class Setting(Answer):
    """A setting in force. Secrets are masked."""

    name: str
    value: str | int | float | bool | None
    default: bool
    """True if the setting has its default value."""
    help: str


class BrokerProcess(Answer):
    """The process that answers."""

    version: str
    hostname: str
    pid: int
    python: str
    started_at: Moment
    memory_bytes: int
    processes: int
    """Processes of this broker, which share its port."""


class SystemReport(Answer):
    broker: BrokerProcess
    store: dict[str, Any]
    """Facts about the database. Only its kind while it is down."""
    journal: JournalStatus | None
    settings: list[Setting]
    """Settings of the broker. Empty if a program has opened it."""
