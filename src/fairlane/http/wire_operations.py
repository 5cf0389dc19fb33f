"""Shapes of operations."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.broker.admission import Admission
from fairlane.broker.deferral.failed import Settled
from fairlane.http.problems import public_text
from fairlane.http.wire_queues import Wire
from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.operation import Operation, OperationBacklog, OperationCount, OperationStatus


class OperationOut(msgspec.Struct, kw_only=True):
    id: str
    operation_type: str
    status: str
    priority: int
    queue: str
    partition: str
    consumer_group: str | None
    created_at: str
    processing_started_at: str | None
    processed_at: str | None
    worker: str | None
    retry_count: int
    error_message: str | None
    failed_at: str | None
    """When it met its last error."""
    latency_seconds: float | None
    """From acceptance to its end."""
    messages: int
    durability: str
    """Where it is: in the `store`, or in the `journal` of the broker that answers."""
    result: msgspec.Raw
    """What became of each item, once it is completed."""


class OperationsQuery(msgspec.Struct, kw_only=True):
    status: OperationStatus | None = None
    queue: str | None = None
    cursor: str | None = None
    """`cursor` of the page before."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class OperationPage(msgspec.Struct, kw_only=True):
    operations: list[OperationOut]
    cursor: str | None
    """Of the next page; null on the last one."""
    complete: bool
    """False while the store does not answer: then only those of this broker's journal are here."""


class SettleBody(msgspec.Struct, kw_only=True):
    """The choice of failed operations: those named, those of a queue, or all of them. Just one of the three."""

    ids: Annotated[list[str], msgspec.Meta(max_length=1000)] | None = None
    queue: str | None = None
    all: bool = False
    cursor: str | None = None
    """`cursor` of the answer before, to go on."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class Refused(msgspec.Struct, kw_only=True):
    id: str
    error: str
    code: str


class SettledOut(msgspec.Struct, kw_only=True):
    done: list[str]
    refused: list[Refused]
    """Those that cannot be, each with the reason; they are as they were."""
    cursor: str | None
    """Where to go on; null when there are no more."""


class CountOut(msgspec.Struct, kw_only=True):
    operation_type: str
    priority: int
    status: str
    count: int
    oldest: str
    newest: str
    avg_latency_seconds: float | None


class SystemHealth(Wire, rename="camel", kw_only=True):
    pool_utilization: float
    pool_waiting: int
    queue_depth: int


class BacklogOut(Wire, rename="camel", kw_only=True):
    queue: str
    partition: str
    consumer_group: str | None
    depth: int
    moved_at: str
    """When the first of them came, or the last one before them ended."""


class OperationStats(Wire, rename="camel", kw_only=True):
    stats: list[CountOut]
    system_health: SystemHealth
    lanes: list[BacklogOut]


class AdmissionKind(msgspec.Struct, kw_only=True):
    """The limits of one kind of request, and which way those went that came."""

    wait_seconds: float
    """How long one more would wait now; of a pop, its acks."""
    wait_seconds_max: float
    operations_max: int
    """0: it never becomes an operation."""
    decisions: dict[str, int]


class AdmissionStatus(msgspec.Struct, kw_only=True):
    kinds: dict[str, AdmissionKind]


def admission_out(admission: Admission) -> AdmissionStatus:
    kinds = {
        str(kind): AdmissionKind(
            wait_seconds=round(admission.wait_seconds(kind), 4),
            wait_seconds_max=limit.wait_seconds,
            operations_max=limit.operations,
            decisions={str(verdict): count for verdict, count in admission.decisions.get(kind, {}).items()},
        )
        for kind, limit in admission.limits.items()
    }
    return AdmissionStatus(kinds=kinds)


def operation_out(one: Operation) -> OperationOut:
    ended = one.processed_at
    return OperationOut(
        id=str(one.id),
        operation_type=one.type,
        status=one.status,
        priority=one.priority,
        queue=one.queue,
        partition=one.partition_name,
        consumer_group=one.group or None,
        created_at=timestamp(one.created_at),
        processing_started_at=timestamp_or_none(one.started_at),
        processed_at=timestamp_or_none(ended),
        worker=one.worker,
        retry_count=one.retries,
        error_message=one.error,
        failed_at=timestamp_or_none(one.failed_at),
        latency_seconds=None if ended is None else (ended - one.created_at) / 1e6,
        messages=one.messages,
        durability=one.durability,
        result=msgspec.Raw(one.result or b"null"),
    )


def settled_out(settled: Settled) -> SettledOut:
    return SettledOut(
        done=[str(id) for id in settled.done],
        refused=[Refused(id=str(id), error=public_text(error), code=error.code) for id, error in settled.refused],
        cursor=None if settled.end is None else str(settled.end),
    )


def count_out(one: OperationCount) -> CountOut:
    return CountOut(
        operation_type=one.type,
        priority=one.priority,
        status=one.status,
        count=one.count,
        oldest=timestamp(one.oldest),
        newest=timestamp(one.newest),
        avg_latency_seconds=one.latency_seconds,
    )


def backlog_out(one: OperationBacklog) -> BacklogOut:
    return BacklogOut(
        queue=one.queue,
        partition=one.partition,
        consumer_group=one.group or None,
        depth=one.open,
        moved_at=timestamp(one.moved_at),
    )
