"""Browsing on the wire: stored messages, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from fairlane.model.limits import COUNT_MAX, PROGRESS_CHARS_MAX, PROGRESS_ITEMS_MAX, WAIT_SECONDS_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.wire.base import NULL, Answer, Body, Limit
from fairlane.wire.dead_letters import FailedAttempt

Status = Literal["pending", "processing", "completed", "dead_letter", "cancelled"]


class MessageQuery(Body):
    queue: str | None = None
    partition: str | None = None
    ns: str | None = None
    """Namespace of the queues."""
    task: str | None = None
    status: Status | None = None
    since: Moment | None = msgspec.field(name="from", default=None)
    """Start of the time range. The default is an hour ago, unless `transactionId`, `traceId` or `before` is given."""
    until: Moment | None = msgspec.field(name="to", default=None)
    """End of the time range, inclusive to the end of its minute. The default is now."""
    transaction_id: str | None = None
    trace_id: str | None = None
    position: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    """First position to return, of the given `queue` and `partition`. The time range is ignored."""
    before: str | None = None
    """`next` of the previous page."""
    limit: Limit = 200
    offset: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """Number of messages to skip by reading them. Use `before` for later pages."""


class _MessageFields(Answer):
    """Fields of a message that every view has."""

    id: str
    transaction_id: str
    partition_id: str
    queue_path: str
    queue: str
    partition: str
    namespace: str
    task: str
    status: Status
    trace_id: str | None
    producer_sub: str | None = None
    position: int
    created_at: Moment
    lease_expires_at: Moment | None


class BusStatus(Answer):
    consumed_by: int
    total_groups: int


class MessageHead(_MessageFields):
    """A stored message without its payload."""

    queue_status: str | None
    """Status for the queue's own group. Null without such a group."""
    bus_status: BusStatus
    queue_priority: int


class ListMode(Answer):
    has_queue_mode: bool
    bus_groups_count: int
    type: str


class MessagePage(Answer):
    messages: list[MessageHead]
    """Messages, newest first."""
    mode: ListMode
    next: str | None
    """Start of the next page, to send as `before`. Null on the last page."""

    def __iter__(self) -> Iterator[MessageHead]:
        return iter(self.messages)


class QueueConfig(Answer):
    lease_time: int
    retry_limit: int
    retry_delay: int
    ttl: int
    priority: int


class MessageProgress(Answer):
    """How far a handler is, as it reported it last."""

    fraction: float
    """Number from 0 to 1."""
    text: str
    at: Moment
    """Time of the report."""


class ProgressItem(Body):
    """The progress of a message that a lease holds."""

    lease_id: str
    partition_id: str
    position: Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
    fraction: Annotated[float, msgspec.Meta(ge=0, le=1)]
    text: Annotated[str, msgspec.Meta(max_length=PROGRESS_CHARS_MAX)] = ""


class ProgressBody(Body):
    items: Annotated[list[ProgressItem], msgspec.Meta(max_length=PROGRESS_ITEMS_MAX)]


class ProgressStored(Answer):
    stored: int
    """Number of items whose lease holds the message. Others were ignored."""


class GroupView(Answer):
    name: str
    consumed: bool
    lease_expires_at: Moment | None
    cancelled: bool = False
    progress: MessageProgress | None = None
    """Progress that its present handler reported."""


class ResultView(Answer):
    """Result of a group's ack."""

    raw: msgspec.Raw = msgspec.field(name="result")
    """Result as JSON."""
    created_at: Moment

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)


class DetailMode(ListMode):
    consumed_by_groups: int


class BrowsedMessage(_MessageFields):
    """A stored message with its payload."""

    raw: msgspec.Raw = msgspec.field(name="payload")
    """The producer's bytes, as JSON."""
    is_encrypted: bool = False
    type: str | None
    headers: dict[str, str] | None
    error_message: str | None
    """Error of the last failed attempt."""
    errors: list[FailedAttempt]
    """Errors of the last ten failed attempts, oldest first, in the group with the most."""
    retry_count: int
    max_attempts: int
    """Limit of the message itself, or of its queue."""
    queue_config: QueueConfig
    mode: DetailMode
    consumer_groups: list[GroupView]
    results: dict[str, ResultView] = msgspec.field(default_factory=dict)
    """Results by group, for acks that had one."""

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)


class ResultQuery(Body):
    consumer_group: str | None = None
    """Consumer group. The default is the group that runs commands, the queue's own group, or the only group."""
    wait: bool = False
    """True to wait until the group has finished or dead-lettered the message."""
    timeout: Annotated[int, msgspec.Meta(ge=0, le=WAIT_SECONDS_MAX * 1000)] = 30_000
    """Longest wait in milliseconds."""

    @property
    def wait_seconds(self) -> float:
        return self.timeout / 1000 if self.wait else 0.0


class NamedResultQuery(ResultQuery):
    partition: str = DEFAULT_PARTITION


class MessageResult(Answer):
    """The outcome of a message for one group."""

    partition_id: str
    transaction_id: str
    consumer_group: str
    status: Status
    raw: msgspec.Raw = msgspec.field(name="result", default_factory=lambda: NULL)
    """Result of the ack, as JSON. Null without a result, or if the message is not completed."""
    progress: MessageProgress | None = None
    """Progress that its present handler reported, if the message is being handled."""
    error: str | None = None
    """Error of the last attempt, if the message was dead-lettered."""
    dead_letter_id: str | None = None
    """Id of its dead letter, if the message was dead-lettered."""
    replayed_as: str | None = None
    """Id of the message that its dead letter was last replayed as.

    Status, result and error are then from that message.
    """

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def over(self) -> bool:
        return self.status in ("completed", "dead_letter", "cancelled")


class _MessageChanged(Answer):
    """The result of an action on one message, with a sentence for people."""

    success: bool = True
    partition_id: str
    transaction_id: str
    message: str


class DeletedMessage(_MessageChanged):
    message: str = "Message deleted successfully"


class RetriedMessage(_MessageChanged):
    message_id: str
    """Id of the pushed copy."""
    message: str = "Message pushed again"


class DeadLetterBody(Body):
    consumer_group: str | None = None
    """Consumer group. The default is every group that has not finished the message."""
    error: str | None = None


class DeadLetteredMessage(_MessageChanged):
    consumer_groups: list[str]
    message: str = "Message moved to the dead letters"
