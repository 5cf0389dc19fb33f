"""Schedules on the wire: intervals or cron expressions by which the broker pushes messages.

A message with its own delivery time is a scheduled message, which is something else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import NAME_CHARS_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_PARTITION, check_name, count_or_none, name_or_none
from fairlane.model.unique import Unique, check_unique
from fairlane.wire.base import NULL, Answer, Body, ListQuery
from fairlane.wire.browse import Status

Missed = Literal["skip", "once", "all"]
INTERVAL_SECONDS_MAX = 366 * 24 * 3600


class ScheduleOptions(Body):
    """Options of a schedule: the message and the times."""

    queue: str
    partition: str = DEFAULT_PARTITION
    data: msgspec.Raw = msgspec.field(default_factory=lambda: NULL)
    """Payload. Null for the name of the schedule and the time of the tick."""
    type: str | None = None
    unique: Unique | None = None
    """Push a tick only if no other message with `unique_key` is waiting, or waiting or running."""
    unique_key: str | None = None
    """Key for `unique`. Null for the name of the schedule."""
    every_seconds: int | None = None
    """Interval in seconds. Ticks are its multiples since 1970."""
    cron: str | None = None
    """Cron expression: minute, hour, day of month, month, day of week, in the time zone."""
    timezone: str = "UTC"
    missed: Missed = "once"
    """Handling of ticks that no broker pushed in time: skip them, push one for all, or push each."""

    def check(self) -> ScheduleOptions:
        check_name("queue", self.queue)
        check_name("partition", self.partition)
        name_or_none("type", self.type)
        if (self.every_seconds is None) == (self.cron is None):
            raise InvalidRequest("give exactly one of everySeconds and cron")
        count_or_none("everySeconds", self.every_seconds, least=1, most=INTERVAL_SECONDS_MAX)
        name_or_none("cron", self.cron, chars_max=NAME_CHARS_MAX)
        check_unique(self.unique, self.unique_key)
        if self.missed not in ("skip", "once", "all"):
            raise InvalidRequest(f"missed is {self.missed!r:.40}; it must be skip, once or all")
        return self


class LastRun(Answer):
    """The last tick that was pushed, and the state of its message."""

    at: Moment
    transaction_id: str
    partition_id: str | None = None
    status: Status | None = None
    """State of the message for the group that counts. Null if `unique` left it out, or if it is not stored anymore."""


class Schedule(ScheduleOptions, forbid_unknown_fields=False):
    """A schedule with its name and state."""

    name: str
    paused_at: Moment | None = None
    next_at: Moment | None = None
    """Time of the next tick. None while it is paused."""
    next_runs: list[Moment] = msgspec.field(default_factory=list)
    """The next five ticks."""
    last_run: LastRun | None = None
    """The last tick. Null before the first one."""
    refused: str | None = None
    """Reason why its message does not fit the type of its queue, which stops the schedule. Null if it fits."""


class ScheduleListQuery(ListQuery):
    """A page of the list of schedules. `search` also matches their queues."""

    sort: Literal["name", "queue", "next"] = "name"


class Schedules(Answer):
    schedules: list[Schedule]
    total: int = 0
    """Number of schedules on all pages."""


class ScheduleDeleted(Answer):
    name: str
    deleted: bool


class ScheduleRun(Answer):
    name: str
    queue: str
    message_id: str | None
    transaction_id: str
