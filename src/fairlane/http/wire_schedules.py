"""Shapes of schedules."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.schedule import Schedule, ScheduleOptions

_NULL = msgspec.Raw(b"null")


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""


class ScheduleBody(Wire, rename="camel", kw_only=True):
    """The options of a schedule: by `everySeconds`, or by `cron` in a time zone."""

    queue: str
    partition: str = DEFAULT_PARTITION
    data: msgspec.Raw = msgspec.field(default_factory=lambda: _NULL)
    """The payload; null: the name of the schedule and the time of the tick."""
    type: str | None = None
    every_seconds: int | None = None
    cron: str | None = None
    timezone: str = "UTC"
    missed: Literal["skip", "once", "all"] = "once"
    """Ticks that passed while no broker ran: none of them is pushed, one for all, or each."""


class ScheduleAnswer(Wire, rename="camel", kw_only=True):
    name: str
    queue: str
    partition: str
    data: msgspec.Raw
    type: str | None
    every_seconds: int | None
    cron: str | None
    timezone: str
    missed: str
    paused_at: str | None
    next_at: str | None
    """Null while it is paused."""
    next_runs: list[str]
    """The next five ticks."""


class ScheduleList(Wire, rename="camel", kw_only=True):
    schedules: list[ScheduleAnswer]
    """By name."""


class ScheduleDeleted(Wire, rename="camel", kw_only=True):
    name: str
    deleted: bool


class ScheduleRun(Wire, rename="camel", kw_only=True):
    name: str
    queue: str
    message_id: str | None
    transaction_id: str


def options_in(body: ScheduleBody) -> ScheduleOptions:
    return ScheduleOptions(
        queue=body.queue,
        partition=body.partition,
        data=body.data,
        type=body.type,
        every_seconds=body.every_seconds,
        cron=body.cron,
        timezone=body.timezone,
        missed=body.missed,
    )


def schedule_out(schedule: Schedule, runs: list[int]) -> ScheduleAnswer:
    options = schedule.options
    return ScheduleAnswer(
        name=schedule.name,
        queue=options.queue,
        partition=options.partition,
        data=options.data,
        type=options.type,
        every_seconds=options.every_seconds,
        cron=options.cron,
        timezone=options.timezone,
        missed=options.missed,
        paused_at=timestamp_or_none(schedule.paused_at),
        next_at=timestamp_or_none(schedule.next_at),
        next_runs=[timestamp(at) for at in runs],
    )
