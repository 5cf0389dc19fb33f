"""Schedules on the wire: an interval or cron by which the broker pushes messages. A message with a delivery time of its
own is a scheduled message, and another thing."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import NAME_CHARS_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_PARTITION, check_count, check_name
from fairlane.wire.base import NULL, Answer, Body, ListQuery

Missed = Literal["skip", "once", "all"]
INTERVAL_SECONDS_MAX = 366 * 24 * 3600


class ScheduleOptions(Body):
    """Options of a schedule: what it pushes, and when."""

    queue: str
    partition: str = DEFAULT_PARTITION
    data: msgspec.Raw = msgspec.field(default_factory=lambda: NULL)
    """The payload; null: the name of the schedule and the time of the tick."""
    type: str | None = None
    every_seconds: int | None = None
    """Ticks are the multiples of this since 1970."""
    cron: str | None = None
    """Minute, hour, day of month, month, day of week; by the clocks of the time zone."""
    timezone: str = "UTC"
    missed: Missed = "once"
    """Ticks that passed while no broker ran: none of them is pushed, one for all, or each."""

    def check(self) -> ScheduleOptions:
        check_name("queue", self.queue)
        check_name("partition", self.partition)
        if self.type is not None:
            check_name("type", self.type)
        if (self.every_seconds is None) == (self.cron is None):
            raise InvalidRequest("say when with an interval or with cron, and not with both")
        if self.every_seconds is not None:
            check_count("everySeconds", self.every_seconds, least=1, most=INTERVAL_SECONDS_MAX)
        if self.cron is not None:
            check_name("cron", self.cron, chars_max=NAME_CHARS_MAX)
        if self.missed not in ("skip", "once", "all"):
            raise InvalidRequest(f"missed is {self.missed!r:.40}; it must be skip, once or all")
        return self


class Schedule(ScheduleOptions, forbid_unknown_fields=False):
    """A schedule by its name, and where it stands."""

    name: str
    paused_at: Moment | None = None
    next_at: Moment | None = None
    """None while it is paused."""
    next_runs: list[Moment] = msgspec.field(default_factory=list)
    """The next five ticks."""
    refused: str | None = None
    """Why its message does not fit the type of its queue, so that it does not tick; null if it fits."""


class ScheduleListQuery(ListQuery):
    """`search` also finds the queues that they push to."""

    sort: Literal["name", "queue", "next"] = "name"


class Schedules(Answer):
    schedules: list[Schedule]
    total: int = 0
    """How many there are, on all pages."""


class ScheduleDeleted(Answer):
    name: str
    deleted: bool


class ScheduleRun(Answer):
    name: str
    queue: str
    message_id: str | None
    transaction_id: str
