"""Shapes of queues, partitions and what they hold."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model import stats
from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.queue import Queue
from fairlane.wire.base import Limit, Offset
from fairlane.wire.queues import options_out


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""


class Configured(Wire, rename="camel", kw_only=True):
    configured: bool
    queue_id: str
    partition_id: str
    """Of the partition `Default`."""
    queue: str
    namespace: str
    task: str
    options: dict[str, Any]
    """Every option with its effective value."""


class OptionsSet(Wire, rename="camel", kw_only=True):
    queue: str
    options: dict[str, Any]
    """Every option with its effective value."""


class Counts(Wire, rename="camel", kw_only=True):
    """Messages by where they stand."""

    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    """Failed attempts that are not passed yet: each message comes again."""
    dead_letter: int


class QueueSummary(Wire, rename="camel", kw_only=True):
    id: str
    name: str
    namespace: str
    task: str
    created_at: str
    partitions: int
    messages: Counts


class QueueList(Wire, rename="camel", kw_only=True):
    queues: list[QueueSummary]


class QueueListQuery(Wire, rename="camel", kw_only=True):
    search: str = ""
    """Only queues whose name contains this."""
    limit: Limit = 10_000
    offset: Offset = 0


class PartitionDetail(Wire, rename="camel", kw_only=True):
    id: str
    name: str
    created_at: str
    stats: Counts
    oldest_message: str | None
    newest_message: str | None


class QueueDetail(Wire, rename="camel", kw_only=True):
    id: str
    name: str
    namespace: str
    task: str
    created_at: str
    options: dict[str, Any]
    partitions: list[PartitionDetail]
    totals: Counts
    next: str | None
    """The name after which the next page of partitions begins; null on the last."""


class PageQuery(Wire, rename="camel", kw_only=True):
    after: str = ""
    """Only partitions whose name comes after this."""
    limit: Limit = 1000


class PartitionQuery(Wire, rename="camel", kw_only=True):
    queue: str
    after: str = ""
    limit: Limit = 1000


class PartitionList(Wire, rename="camel", kw_only=True):
    queue: str
    partitions: list[PartitionDetail]
    next: str | None


class DeletedQueue(Wire, rename="camel", kw_only=True):
    deleted: bool
    queue: str
    existed: bool


class ClearQuery(Wire, rename="camel", kw_only=True):
    partition: str | None = None


class ClearedQueue(Wire, rename="camel", kw_only=True):
    success: bool
    queue: str
    partition: str | None
    cleared: int
    """How many messages were taken out."""


class DepthQuery(Wire, rename="camel", kw_only=True):
    group: str | None = None


class PartitionDepth(Wire, rename="camel", kw_only=True):
    partition: str
    pending: int


class QueueDepth(Wire, rename="camel", kw_only=True):
    queue: str
    group: str | None
    pending: int
    partitions_pending: int
    conflation: bool
    effective_pending: int
    partitions: list[PartitionDepth]
    capacity: int | None
    """The queue's maxSize, null without one."""


class NamespaceCounts(Wire, rename="camel", kw_only=True):
    total: int
    pending: int


class NamespaceSummary(Wire, rename="camel", kw_only=True):
    namespace: str
    queues: int
    partitions: int
    messages: NamespaceCounts


class NamespaceList(Wire, rename="camel", kw_only=True):
    namespaces: list[NamespaceSummary]


class TaskSummary(Wire, rename="camel", kw_only=True):
    task: str
    queues: int
    partitions: int
    messages: NamespaceCounts


class TaskList(Wire, rename="camel", kw_only=True):
    tasks: list[TaskSummary]


class Spread(Wire, rename="camel", kw_only=True):
    avg: float
    median: float
    min: float
    max: float


class Lag(Wire, rename="camel", kw_only=True):
    time: Spread
    """Seconds that the oldest unfinished message of each group waits."""
    offset: Spread
    """Messages that each group has not finished."""


class Throughput(Wire, rename="camel", kw_only=True):
    """Of this broker in its last full minute."""

    ingested_per_second: float
    processed_per_second: float


class Overview(Wire, rename="camel", kw_only=True):
    queues: int
    partitions: int
    namespaces: int
    tasks: int
    messages: Counts
    lag: Lag
    throughput: Throughput
    timestamp: str
    stats_age: int


def counts_out(counts: stats.Counts) -> Counts:
    return Counts(
        total=counts.total,
        pending=counts.pending,
        processing=counts.leased,
        completed=counts.completed,
        failed=counts.failed,
        dead_letter=counts.dead,
    )


def summed(some: list[Counts]) -> Counts:
    return Counts(**{name: sum(getattr(each, name) for each in some) for name in Counts.__struct_fields__})


def queue_out(queue: Queue, counted: stats.QueueStats) -> QueueSummary:
    return QueueSummary(
        id=str(queue.id),
        name=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        created_at=timestamp(queue.created_at),
        partitions=counted.partitions,
        messages=counts_out(counted),
    )


def partition_out(partition: stats.PartitionStats) -> PartitionDetail:
    has_messages = partition.head > partition.start
    return PartitionDetail(
        id=str(partition.id),
        name=partition.name,
        created_at=timestamp(partition.created_at),
        stats=counts_out(partition),
        oldest_message=timestamp_or_none(partition.oldest_at),
        newest_message=timestamp(partition.last_at) if has_messages else None,
    )


def detail_out(queue: Queue, counted: stats.QueueStats, page: list[stats.PartitionStats], limit: int) -> QueueDetail:
    return QueueDetail(
        id=str(queue.id),
        name=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        created_at=timestamp(queue.created_at),
        options=options_out(queue.options),
        partitions=[partition_out(one) for one in page],
        totals=counts_out(counted),
        next=next_page(page, limit),
    )


def next_page(page: list[stats.PartitionStats], limit: int) -> str | None:
    return page[-1].name if len(page) == limit else None
