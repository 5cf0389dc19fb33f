"""Shapes of browsing: messages one by one."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.broker.browse import Detail, Seen, Status
from fairlane.http.wire_queues import Wire
from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.names import QUEUE_MODE
from fairlane.model.stats import Standing
from fairlane.wire.base import Limit


class MessageQuery(Wire, rename="camel", kw_only=True):
    queue: str | None = None
    partition: str | None = None
    ns: str | None = None
    """Namespace."""
    task: str | None = None
    status: Status | None = None
    since: str | None = msgspec.field(name="from", default=None)
    """An hour ago, unless `transactionId`, `traceId` or `before` is given."""
    until: str | None = msgspec.field(name="to", default=None)
    """Now; included, to the end of its minute."""
    transaction_id: str | None = None
    trace_id: str | None = None
    before: str | None = None
    """The `next` of the page before."""
    limit: Limit = 200
    offset: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """The messages before it are walked over; for pages further on there is `before`."""


class BusStatus(Wire, rename="camel", kw_only=True):
    consumed_by: int
    total_groups: int


class MessageEntry(Wire, rename="camel", kw_only=True):
    """A message without its payload."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: Status
    queue_status: str | None
    """To the queue's own group; null if there is none."""
    bus_status: BusStatus
    trace_id: str | None
    producer_sub: str | None = None
    queue_priority: int
    position: int
    created_at: str
    lease_expires_at: str | None


class ListMode(Wire, rename="camel", kw_only=True):
    has_queue_mode: bool
    bus_groups_count: int
    type: str


class MessageList(Wire, rename="camel", kw_only=True):
    messages: list[MessageEntry]
    mode: ListMode
    next: str | None
    """Where the next page begins, to be sent as `before`; null on the last page."""


class QueueConfig(Wire, rename="camel", kw_only=True):
    lease_time: int
    retry_limit: int
    retry_delay: int
    ttl: int
    priority: int


class GroupView(Wire, rename="camel", kw_only=True):
    name: str
    consumed: bool
    lease_expires_at: str | None


class DetailMode(ListMode, rename="camel", kw_only=True):
    consumed_by_groups: int


class MessageDetail(Wire, rename="camel", kw_only=True):
    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: Status
    payload: msgspec.Raw
    is_encrypted: bool = False
    type: str | None
    headers: dict[str, str] | None
    trace_id: str | None
    producer_sub: str | None = None
    position: int
    created_at: str
    error_message: str | None
    retry_count: int
    lease_expires_at: str | None
    queue_config: QueueConfig
    mode: DetailMode
    consumer_groups: list[GroupView]


class DeletedMessage(Wire, rename="camel", kw_only=True):
    success: bool
    partition_id: str
    transaction_id: str
    message: str


class RetriedMessage(Wire, rename="camel", kw_only=True):
    success: bool
    partition_id: str
    transaction_id: str
    message_id: str
    """Of the copy that was pushed."""
    message: str


class DeadLetterBody(Wire, rename="camel", kw_only=True):
    consumer_group: str | None = None
    """Without one: every group that has not finished the message."""
    error: str | None = None


class DeadLetteredMessage(Wire, rename="camel", kw_only=True):
    success: bool
    partition_id: str
    transaction_id: str
    consumer_groups: list[str]
    message: str


def mode_type(queue_mode: bool, others: int) -> str:
    if queue_mode:
        return "hybrid" if others else "queue"
    return "bus" if others else "none"


def list_mode(seen: list[Seen]) -> ListMode:
    groups = {standing.group for one in seen for standing in one.standings}
    others = len(groups - {QUEUE_MODE})
    own = QUEUE_MODE in groups
    return ListMode(has_queue_mode=own, bus_groups_count=others, type=mode_type(own, others))


def entry_out(seen: Seen) -> MessageEntry:
    head, queue = seen.head, seen.queue
    passed = [standing for standing in seen.standings if standing.has_finished(head.position)]
    own = [standing for standing in seen.standings if standing.group == QUEUE_MODE]
    return MessageEntry(
        id=head.id,
        transaction_id=head.transaction_id,
        partition_id=str(head.partition),
        queue_path=f"{queue.name}/{seen.partition}",
        queue=queue.name,
        partition=seen.partition,
        namespace=queue.namespace,
        task=queue.task,
        status=seen.status,
        queue_status=seen.status if own else None,
        bus_status=BusStatus(consumed_by=len(passed), total_groups=len(seen.standings)),
        trace_id=head.trace_id,
        queue_priority=queue.options.priority,
        position=head.position,
        created_at=timestamp(head.created_at),
        lease_expires_at=_lease_end(head.position, seen.standings),
    )


def _lease_end(position: int, standings: list[Standing]) -> str | None:
    """The latest end of a lease that holds the message."""
    ends = [_leased_until(position, standing) for standing in standings]
    return timestamp_or_none(max((end for end in ends if end is not None), default=None))


def _leased_until(position: int, standing: Standing) -> int | None:
    return standing.lease_ends_at if standing.holds(position) else None


def detail_out(detail: Detail) -> MessageDetail:
    message, queue, options = detail.message, detail.queue, detail.queue.options
    groups = [
        GroupView(
            name=standing.group,
            consumed=standing.has_finished(message.position),
            lease_expires_at=timestamp_or_none(_leased_until(message.position, standing)),
        )
        for standing in detail.standings
    ]
    others = sum(group.name != QUEUE_MODE for group in groups)
    own = others < len(groups)
    return MessageDetail(
        id=message.id,
        transaction_id=message.transaction_id,
        partition_id=str(detail.partition_id),
        queue_path=f"{queue.name}/{detail.partition}",
        queue=queue.name,
        partition=detail.partition,
        namespace=queue.namespace,
        task=queue.task,
        status=detail.status,
        payload=message.raw,
        type=message.type,
        headers=message.headers,
        trace_id=message.trace_id,
        position=message.position,
        created_at=timestamp(message.created_at),
        error_message=detail.error,
        retry_count=detail.attempts,
        lease_expires_at=_lease_end(message.position, detail.standings),
        queue_config=QueueConfig(
            lease_time=options.lease_seconds,
            retry_limit=options.retry_limit,
            retry_delay=options.retry_delay_ms,
            ttl=options.ttl_seconds,
            priority=options.priority,
        ),
        mode=DetailMode(
            has_queue_mode=own,
            bus_groups_count=others,
            type=mode_type(own, others),
            consumed_by_groups=sum(group.consumed for group in groups),
        ),
        consumer_groups=groups,
    )
