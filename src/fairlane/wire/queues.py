"""Queues on the wire: their options, partitions and numbers."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.model.queue import QueueOptions
from fairlane.wire.base import Answer, Body, Limit, ListQuery


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


_OWN_NAMES: Final = {
    "lease_seconds": "leaseTime",
    "retry_delay_ms": "retryDelay",
    "retry_delay_max_ms": "maxRetryDelay",
    "ttl_seconds": "ttl",
    "delay_seconds": "delayedProcessing",
    "window_seconds": "windowBuffer",
    "max_wait_seconds": "maxWaitTimeSeconds",
}
OPTION_NAMES: Final = {name: _OWN_NAMES.get(name) or camel(name) for name in QueueOptions.__struct_fields__}
"""Name of each queue option on the wire."""


def options_out(options: QueueOptions) -> dict[str, Any]:
    """Return every option with its effective value, by its name on the wire."""
    return {wire: getattr(options, name) for name, wire in OPTION_NAMES.items()}


class ConfigureBody(Body):
    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Options by their names on the wire, or in the form `leaseSeconds` or `lease_seconds`."""


class OptionsBody(Body):
    options: dict[str, Any]
    """Options to change, by any of their names."""


class OptionsSet(Answer):
    queue: str
    options: dict[str, Any]
    """Every option with its effective value."""


class Configured(Answer):
    configured: bool = True
    queue_id: str
    partition_id: str
    """Id of the partition `Default`."""
    queue: str
    namespace: str
    task: str
    options: dict[str, Any]
    """Every option with its effective value."""


class Counts(Answer):
    """Messages by state."""

    total: int
    pending: int
    processing: int
    """Leased messages."""
    completed: int
    failed: int
    """Failed attempts of messages that will be retried."""
    dead_letter: int


class QueueHead(Answer):
    id: str
    name: str
    namespace: str
    task: str
    created_at: Moment


class QueueSummary(QueueHead):
    partitions: int
    messages: Counts


class Rates(Answer):
    """Messages per second in the last ten seconds."""

    pushed: float = 0.0
    popped: float = 0.0
    acked: float = 0.0


class ListedQueue(QueueSummary):
    paused: bool
    lanes_stopped: int | None
    """Blocked and parked lanes. Null on a page of more than 200."""
    groups: int
    """Consumer groups. 0 if the queue was never read."""
    oldest_at: Moment | None
    """Time of the oldest message that some group has not finished.

    In a queue without groups, the time of the oldest stored message. Null if there is no such message, and for all but
    the newest 100 queues without groups.
    """
    rates: Rates
    spark: list[float]
    """Pushed messages per second in the last five minutes, in 60 steps. Empty on a page of more than 200."""


class QueueList(Answer):
    queues: list[ListedQueue]
    total: int
    """Number of queues with this name on all pages."""
    stats_age: int = 0
    """Seconds since the queues were counted. 0 unless there are very many partitions."""


class QueueListQuery(ListQuery):
    sort: Literal["created", "name", "pending", "oldest", "rate", "deadLetters", "trouble"] = "created"
    """Order of the queues. `trouble` puts stopped lanes first, then unread queues, dead letters, and old messages."""
    limit: Limit = 10_000


class PartitionDetail(Answer):
    id: str
    name: str
    created_at: Moment
    stats: Counts
    oldest_message: Moment | None
    newest_message: Moment | None


class QueueDetail(QueueHead):
    options: dict[str, Any]
    """Options by their names on the wire."""
    partitions: list[PartitionDetail]
    """A page of the partitions, by name."""
    totals: Counts
    next: str | None
    """Name after which the next page of partitions begins. Null on the last one."""
    stats_age: int = 0
    """Seconds since the totals were counted. 0 unless there are very many partitions."""


class PageQuery(Body):
    after: str = ""
    """Name after which the page of partitions begins."""
    limit: Limit = 1000


class PartitionQuery(PageQuery):
    queue: str


class PartitionList(Answer):
    queue: str
    partitions: list[PartitionDetail]
    next: str | None


class DeletedQueue(Answer):
    deleted: bool = True
    queue: str
    existed: bool


class ClearQuery(Body):
    partition: str | None = None


class ClearedQueue(Answer):
    success: bool = True
    queue: str
    partition: str | None
    cleared: int
    """Number of messages that were removed."""


class DepthQuery(Body):
    group: str | None = None


class PartitionDepth(Answer):
    partition: str
    pending: int


class QueueDepth(Answer):
    queue: str
    group: str | None
    pending: int
    partitions_pending: int
    conflation: bool
    effective_pending: int
    partitions: list[PartitionDepth]
    capacity: int | None
    """`maxSize` of the queue. Null without one."""


class NamespaceCounts(Answer):
    """Messages of the queues of a namespace or a task."""

    total: int
    pending: int


class LabelSummary(Answer):
    queues: int
    partitions: int
    messages: NamespaceCounts


class NamespaceSummary(LabelSummary):
    namespace: str


class NamespaceList(Answer):
    namespaces: list[NamespaceSummary]


class TaskSummary(LabelSummary):
    task: str


class TaskList(Answer):
    tasks: list[TaskSummary]


class Spread(Answer):
    avg: float
    median: float
    min: float
    max: float


class Lag(Answer):
    time: Spread
    """Seconds since the oldest unfinished message of each group was pushed."""
    offset: Spread
    """Messages that each group has not finished."""


class Throughput(Answer):
    """Throughput of this broker in its last full minute."""

    ingested_per_second: float
    processed_per_second: float


class Overview(Answer):
    queues: int
    partitions: int
    namespaces: int
    tasks: int
    messages: Counts
    lag: Lag
    throughput: Throughput
    timestamp: Moment
    stats_age: int
