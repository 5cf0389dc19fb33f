"""Shapes of what retention did."""

from __future__ import annotations

from fairlane.http.wire_queues import Wire
from fairlane.http.wire_status import TimeRange


class RetentionRunEntry(Wire, rename="camel", kw_only=True):
    """One rule of a retention run: `messages` are dead letters for the rule `dead_letters`, and partitions for
    `partitions`."""

    queue: str
    rule: str
    messages: int = 0
    unread: int = 0


class RetentionRun(Wire, rename="camel", kw_only=True):
    success: bool
    deleted: list[RetentionRunEntry]


class Went(Wire, rename="camel", kw_only=True):
    at: str
    queue: str
    rule: str
    messages: int
    unread: int


class RetentionHistory(Wire, rename="camel", kw_only=True):
    time_range: TimeRange
    history: list[Went]
