"""Scheduled messages on the wire."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit


class ScheduledQuery(Body):
    after: str = ""
    """`next` of the previous page."""
    limit: Limit = 100


class ScheduledMessage(Answer):
    """A message that waits for its delivery time."""

    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    deliver_at: Moment


class ScheduledPage(Answer):
    messages: list[ScheduledMessage]
    """Messages, next due first."""
    next: str | None
    """Start of the next page. Null on the last one."""

    def __iter__(self) -> Iterator[ScheduledMessage]:
        return iter(self.messages)


class RescheduleBody(Body):
    """A new delivery time. Exactly one field must be set."""

    deliver_at: Moment | None = None
    delay_ms: int | None = None


class Rescheduled(Answer):
    queue: str
    partition: str
    transaction_id: str
    rescheduled: bool
    """False if the message is not scheduled."""
    deliver_at: Moment | None


class Cancelled(Answer):
    queue: str
    partition: str
    transaction_id: str
    cancelled: bool
