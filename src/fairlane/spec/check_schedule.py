"""Schedules of a document: whether they can tick as far as that is known without a clock, and what they push."""

from __future__ import annotations

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.names import check_name
from fairlane.model.schedule import ScheduleOptions
from fairlane.runtime.ticks import next_tick, zone
from fairlane.spec import ir
from fairlane.spec.check_webhook import unknown_queue
from fairlane.spec.finding import Finding
from fairlane.spec.fits import STRING, misfit
from fairlane.spec.spec_file import Path
from fairlane.spec.validate import compile_validator

TICK = ir.RecordType(fields={"schedule": STRING, "tick": ir.Scalar(of="time")})
"""What is pushed by a schedule without data."""


def check_schedule(spec: ir.Spec, name: str, schedule: ir.ScheduleSpec) -> list[Finding]:
    path = ("schedules", name)
    unknown = unknown_queue(spec, (*path, "queue"), schedule.queue)
    if unknown:
        return unknown
    try:
        check_name("the name of a schedule", name)
        options_of(schedule).check()
        if schedule.cron is None and schedule.timezone != "UTC":
            return [Finding((*path, "timezone"), "this has no effect: an interval goes by no clock")]
    except InvalidRequest as error:
        return [Finding(path, str(error))]
    if schedule.cron is not None and (never := _never_ticks(path, schedule)):
        return never
    wanted = spec.queues[schedule.queue].message_type
    if wanted is None:
        return []
    why = _data_misfit(schedule, wanted) if schedule.data is not None else misfit(TICK, wanted)
    return [Finding((*path, "data"), f"what it pushes never fits `{schedule.queue}`: {why}")] if why else []


def _never_ticks(path: Path, schedule: ir.ScheduleSpec) -> list[Finding]:
    """Whether the expression and the zone are such, and name a time that comes."""
    try:
        zone(schedule.timezone)
    except InvalidRequest as error:
        return [Finding((*path, "timezone"), str(error))]
    try:
        next_tick(options_of(schedule), 0)
    except InvalidRequest as error:
        return [Finding((*path, "cron"), str(error))]
    return []


def _data_misfit(schedule: ir.ScheduleSpec, wanted: ir.RecordType) -> str | None:
    try:
        compile_validator(wanted)(msgspec.json.encode(schedule.data))
    except InvalidRequest as error:
        return str(error)
    return None


def options_of(schedule: ir.ScheduleSpec) -> ScheduleOptions:
    return ScheduleOptions(
        queue=schedule.queue,
        partition=schedule.partition,
        data=msgspec.Raw(msgspec.json.encode(schedule.data)),
        type=schedule.type,
        every_seconds=schedule.every_seconds,
        cron=schedule.cron,
        timezone=schedule.timezone,
        missed=schedule.missed,
    )


def schedule_of(options: ScheduleOptions) -> ir.ScheduleSpec:
    """The same back."""
    return ir.ScheduleSpec(
        queue=options.queue,
        partition=options.partition,
        data=msgspec.json.decode(options.data),
        type=options.type,
        every_seconds=options.every_seconds,
        cron=options.cron,
        timezone=options.timezone,
        missed=options.missed,
    )
