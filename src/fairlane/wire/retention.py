"""Retention on the wire: the deletions by its rules."""

from __future__ import annotations

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer
from fairlane.wire.status import TimeRange


class Deleted(Answer):
    """Deletions of one queue by one rule.

    `messages` counts dead letters for the rule `dead_letters`, and partitions for `partitions`. `unread` counts those
    that some group had not finished.
    """

    queue: str
    rule: str
    messages: int
    unread: int


class RetentionRun(Answer):
    success: bool = True
    deleted: list[Deleted]


class WentAt(Deleted):
    """Deletions in one minute."""

    at: Moment


class RetentionHistory(Answer):
    time_range: TimeRange
    history: list[WentAt]
