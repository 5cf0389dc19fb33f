"""Scheduled messages on the wire."""

from __future__ import annotations

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit


class ScheduledQuery(Body):
    after: str = ""
    """`next` of the page before."""
    limit: Limit = 100


class ScheduledMessage(Answer):
    """A message that waits for its time."""

    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    deliver_at: Moment


class ScheduledPage(Answer):
    messages: list[ScheduledMessage]
    """Next due first."""
    next: str | None
    """Where the next page begins; null on the last."""


class RescheduleBody(Body):
    """The new delivery time: one of these."""

    deliver_at: Moment | None = None
    delay_ms: int | None = None


class Rescheduled(Answer):
    queue: str
    partition: str
    transaction_id: str
    rescheduled: bool
    """False: the message does not wait any more, or never did."""
    deliver_at: Moment | None


class Cancelled(Answer):
    queue: str
    partition: str
    transaction_id: str
    cancelled: bool
