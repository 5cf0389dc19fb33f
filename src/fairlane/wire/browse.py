"""Browsing on the wire: stored messages, one by one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fairlane.model.limits import WAIT_SECONDS_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.wire.base import NULL, Answer, Body, Limit

Status = Literal["pending", "processing", "completed", "dead_letter"]


class MessageQuery(Body):
    queue: str | None = None
    partition: str | None = None
    ns: str | None = None
    """Namespace."""
    task: str | None = None
    status: Status | None = None
    since: Moment | None = msgspec.field(name="from", default=None)
    """An hour ago, unless `transactionId`, `traceId` or `before` is given."""
    until: Moment | None = msgspec.field(name="to", default=None)
    """Now; included, to the end of its minute."""
    transaction_id: str | None = None
    trace_id: str | None = None
    position: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    """Of the `partition` of the `queue`, whenever they came: the messages from this position on, up to `limit` of
    them."""
    before: str | None = None
    """The `next` of the page before."""
    limit: Limit = 200
    offset: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """The messages before it are walked over; for pages further on there is `before`."""


class _Message(Answer):
    """A message, as far as every look at it tells of it."""

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


class MessageHead(_Message):
    """A stored message without its payload."""

    queue_status: str | None
    """To the queue's own group; null if there is none."""
    bus_status: BusStatus
    queue_priority: int


class ListMode(Answer):
    has_queue_mode: bool
    bus_groups_count: int
    type: str


class MessagePage(Answer):
    messages: list[MessageHead]
    """Newest first."""
    mode: ListMode
    next: str | None
    """Where the next page begins, to be sent as `before`; null on the last page."""


class QueueConfig(Answer):
    lease_time: int
    retry_limit: int
    retry_delay: int
    ttl: int
    priority: int


class GroupView(Answer):
    name: str
    consumed: bool
    lease_expires_at: Moment | None


class ResultView(Answer):
    """The result that a group's ack carried."""

    raw: msgspec.Raw = msgspec.field(name="result")
    """JSON."""
    created_at: Moment

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)


class DetailMode(ListMode):
    consumed_by_groups: int


class BrowsedMessage(_Message):
    """A stored message, whole."""

    raw: msgspec.Raw = msgspec.field(name="payload")
    """The producer's bytes: JSON."""
    is_encrypted: bool = False
    type: str | None
    headers: dict[str, str] | None
    error_message: str | None
    """Of the last failed attempt."""
    retry_count: int
    max_attempts: int
    """Its own, or those of its queue."""
    queue_config: QueueConfig
    mode: DetailMode
    consumer_groups: list[GroupView]
    results: dict[str, ResultView] = msgspec.field(default_factory=dict)
    """By group; of those whose ack carried one."""

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)


class ResultQuery(Body):
    consumer_group: str | None = None
    """Without one: the group that carries out commands, the queue's own, or the only one there is."""
    wait: bool = False
    """Until the group has finished the message, or given it up."""
    timeout: Annotated[int, msgspec.Meta(ge=0, le=WAIT_SECONDS_MAX * 1000)] = 30_000
    """Milliseconds that it waits at most."""

    @property
    def wait_seconds(self) -> float:
        return self.timeout / 1000 if self.wait else 0.0


class NamedResultQuery(ResultQuery):
    partition: str = DEFAULT_PARTITION


class MessageResult(Answer):
    """The end of a message for one group."""

    partition_id: str
    transaction_id: str
    consumer_group: str
    status: Status
    raw: msgspec.Raw = msgspec.field(name="result", default_factory=lambda: NULL)
    """What the ack carried: JSON; null if nothing, and while it is not completed."""
    error: str | None = None
    """Why it was given up."""
    dead_letter_id: str | None = None
    """Id of its dead letter, if the message was dead-lettered."""
    replayed_as: str | None = None
    """Id of the message that its dead letter was last replayed as. Status, result and error are then that message's."""

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def over(self) -> bool:
        return self.status in ("completed", "dead_letter")


class _Done(Answer):
    """The end of a verb on one message, in words as well."""

    success: bool = True
    partition_id: str
    transaction_id: str
    message: str


class DeletedMessage(_Done):
    message: str = "Message deleted successfully"


class RetriedMessage(_Done):
    message_id: str
    """Of the copy that was pushed."""
    message: str = "Message pushed again"


class DeadLetterBody(Body):
    consumer_group: str | None = None
    """Without one: every group that has not finished the message."""
    error: str | None = None


class DeadLetteredMessage(_Done):
    consumer_groups: list[str]
    message: str = "Message moved to the dead letters"
