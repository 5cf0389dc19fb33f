"""Answers that routes write as text, because they are written so often. These types describe them in the API."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.pop import PopAnswerLane
from fairlane.wire.problem import Problem
from fairlane.wire.push import PushedIds


class PushedItem(msgspec.Struct, kw_only=True):
    """The outcome of one pushed item. The mix of camelCase and snake_case is what published clients expect."""

    index: int
    status: Literal["queued", "duplicate", "scheduled", "buffered", "failed"]
    transaction_id: str
    trace_id: str | None
    queue: str = msgspec.field(name="queueName")
    message_id: str | None = None
    partition_id: str | None = None
    deliver_at: Moment | msgspec.UnsetType = msgspec.field(name="deliverAt", default=msgspec.UNSET)
    """Time at which a `scheduled` message is stored."""
    depth: int | msgspec.UnsetType = msgspec.field(name="queueDepth", default=msgspec.UNSET)
    """Messages in a queue with a limit."""
    remaining_capacity: int | msgspec.UnsetType = msgspec.field(name="remainingCapacity", default=msgspec.UNSET)
    pressure: float | msgspec.UnsetType = msgspec.UNSET
    """Fill level of a queue with a limit: 0 if it is empty, 1 if it is full."""
    capacity: int | msgspec.UnsetType = msgspec.UNSET
    retry_after: float | msgspec.UnsetType | None = msgspec.field(name="retryAfter", default=msgspec.UNSET)
    operation_id: str | msgspec.UnsetType | None = msgspec.field(name="operationId", default=msgspec.UNSET)
    """Id of the operation that a `buffered` item became."""
    queue_position: int | msgspec.UnsetType | None = msgspec.field(name="queuePosition", default=msgspec.UNSET)
    reason: str | msgspec.UnsetType | None = msgspec.UNSET
    estimated_wait: float | msgspec.UnsetType | None = msgspec.field(name="estimatedWait", default=msgspec.UNSET)
    durability: str | msgspec.UnsetType | None = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET
    """Reason why a `failed` item was not stored."""
    code: str | msgspec.UnsetType = msgspec.UNSET


Pushed = list[PushedItem] | PushedIds


class AckedMessage(msgspec.Struct, kw_only=True, rename="camel"):
    """The outcome of one ack."""

    index: int
    count: int | msgspec.UnsetType = msgspec.UNSET
    """Number of messages with this outcome, for an ack of several."""
    transaction_id: str
    success: bool
    error: str | None
    queue: str | None = msgspec.field(name="queueName")
    partition: str | None = msgspec.field(name="partitionName")
    lease_released: bool
    dlq: bool
    """True if the message became a dead letter."""
    code: str | msgspec.UnsetType = msgspec.UNSET
    noop: bool | msgspec.UnsetType = msgspec.UNSET
    """True if the message was finished before."""
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    status: str | msgspec.UnsetType = msgspec.UNSET
    operation_id: str | msgspec.UnsetType | None = msgspec.UNSET
    queue_position: int | msgspec.UnsetType | None = msgspec.UNSET
    reason: str | msgspec.UnsetType | None = msgspec.UNSET
    estimated_wait: float | msgspec.UnsetType | None = msgspec.UNSET
    durability: str | msgspec.UnsetType | None = msgspec.UNSET


class PoppedMessage(msgspec.Struct, kw_only=True, rename="camel"):
    """A message as a pop returns it."""

    id: str
    transaction_id: str
    data: msgspec.Raw
    queue: str | msgspec.UnsetType = msgspec.UNSET
    """Queue of the message, for a pop that named none."""
    partition: str
    partition_id: str
    position: int
    created_at: Moment
    retry_count: int
    """Failed attempts before this delivery."""
    lease_id: str
    """Id of the lease, to ack the message. Empty if no ack is needed."""
    consumer_group: str
    type: str | msgspec.UnsetType | None = msgspec.UNSET
    headers: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    max_attempts: int | msgspec.UnsetType | None = msgspec.UNSET
    trace_id: str | None = None
    producer_sub: str | None = None


class PoppedMessages(msgspec.Struct, kw_only=True, rename="camel"):
    """The answer of a pop: `messages`, or `lanes` if the query has `byLane=true`."""

    success: bool
    queue: str
    lease_id: str
    consumer_group: str
    partition: str | msgspec.UnsetType = msgspec.UNSET
    partition_id: str | msgspec.UnsetType | None = msgspec.UNSET
    partitions_claimed: int | msgspec.UnsetType = msgspec.UNSET
    messages: list[PoppedMessage] | msgspec.UnsetType = msgspec.UNSET
    lanes: list[PopAnswerLane] | msgspec.UnsetType = msgspec.UNSET
    lease_seconds: int | msgspec.UnsetType = msgspec.UNSET
    retry_delay: int | msgspec.UnsetType = msgspec.UNSET
    ordered: bool | msgspec.UnsetType = msgspec.UNSET
    conflation: bool | msgspec.UnsetType = msgspec.UNSET
    conflation_conflict: bool | msgspec.UnsetType = msgspec.UNSET


class AckedAndPoppedMessages(PoppedMessages, kw_only=True, rename="camel"):
    """The answer of an ack and pop. `lanes` or `messages` are empty if the pop found nothing or failed."""

    acknowledgments: list[AckedMessage]
    problem: Problem | msgspec.UnsetType = msgspec.UNSET
    """Reason why the pop failed. The acks were processed."""
