"""Retention on the wire: what its rules deleted."""

from __future__ import annotations

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer
from fairlane.wire.status import TimeRange


class Deleted(Answer):
    """A deletion: what one rule deleted of one queue. `messages` are dead letters for the rule `dead_letters`, and
    partitions for `partitions`; `unread` are those that some group had not finished."""

    queue: str
    rule: str
    messages: int
    unread: int


class RetentionRun(Answer):
    success: bool = True
    deleted: list[Deleted]


class WentAt(Deleted):
    """The same, in one minute."""

    at: Moment


class RetentionHistory(Answer):
    time_range: TimeRange
    history: list[WentAt]
