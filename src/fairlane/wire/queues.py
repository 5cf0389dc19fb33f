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
"""What each option of a queue is called on the wire."""


def options_out(options: QueueOptions) -> dict[str, Any]:
    """Every option with its effective value, by its name on the wire."""
    return {wire: getattr(options, name) for name, wire in OPTION_NAMES.items()}


class ConfigureBody(Body):
    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """By their names on the wire, or those that they have everywhere else, like `leaseSeconds` or `lease_seconds`."""


class OptionsBody(Body):
    options: dict[str, Any]
    """Those that change, by any of their names."""


class OptionsSet(Answer):
    queue: str
    options: dict[str, Any]
    """Every option with its effective value."""


class Configured(Answer):
    configured: bool = True
    queue_id: str
    partition_id: str
    """Of the partition `Default`."""
    queue: str
    namespace: str
    task: str
    options: dict[str, Any]
    """Every option with its effective value."""


class Counts(Answer):
    """Messages by where they stand."""

    total: int
    pending: int
    processing: int
    """Leased now."""
    completed: int
    failed: int
    """Failed attempts that are not passed yet: each message comes again."""
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
    """Messages a second, in the last ten seconds."""

    pushed: float = 0.0
    popped: float = 0.0
    acked: float = 0.0


class ListedQueue(QueueSummary):
    paused: bool
    lanes_stopped: int | None
    """Lanes that are blocked or parked; null on a page of more than 200."""
    groups: int
    """Consumer groups; 0 if nobody has ever read the queue."""
    oldest_at: Moment | None
    """Arrival time of the oldest message that some group has not finished. In a queue without groups, arrival time of
    the oldest stored message. Null if no such message exists, and for all but the newest 100 queues without groups."""
    rates: Rates
    spark: list[float]
    """Messages pushed a second in the last five minutes, in 60 steps; empty on a page of more than 200."""


class QueueList(Answer):
    queues: list[ListedQueue]
    total: int
    """How many there are with this name, on all pages."""
    stats_age: int = 0
    """Seconds since what they hold was counted; 0 unless there are very many partitions."""


class QueueListQuery(ListQuery):
    sort: Literal["created", "name", "pending", "oldest", "rate", "deadLetters"] = "created"
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
    """By their names on the wire."""
    partitions: list[PartitionDetail]
    """A page of them, by name."""
    totals: Counts
    next: str | None
    """The name after which the next page of partitions begins; null on the last."""
    stats_age: int = 0
    """Seconds since the totals were counted; 0 unless there are very many partitions."""


class PageQuery(Body):
    after: str = ""
    """Only partitions whose name comes after this."""
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
    """How many messages were taken out."""


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
    """The queue's maxSize, null without one."""


class NamespaceCounts(Answer):
    """Messages of the queues of a namespace, or of a task."""

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
    """Seconds that the oldest unfinished message of each group waits."""
    offset: Spread
    """Messages that each group has not finished."""


class Throughput(Answer):
    """Of this broker in its last full minute."""

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
