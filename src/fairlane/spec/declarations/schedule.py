"""The declaration of a schedule: checks its ticks, as far as possible without a clock, and its message."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import msgspec

from fairlane.errors import ExpressionFailed, InvalidRequest
from fairlane.model.names import check_name
from fairlane.model.unique import Unique
from fairlane.runtime.ticks import next_tick, zone
from fairlane.spec import ir
from fairlane.spec import settings as readers
from fairlane.spec.declarations.declaration import NAME, SECONDS, Declaration, SettingCodec, Settings, choice
from fairlane.spec.declarations.declaration import STRING as TEXT
from fairlane.spec.diagnostics import Diagnostics
from fairlane.spec.expression.evaluate import compile_expression
from fairlane.spec.settings import Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.types import STRING, compile_validator
from fairlane.wire.schedules import Missed, ScheduleOptions

TICK = ir.RecordType(fields={"schedule": STRING, "tick": ir.Scalar(of="time")})
"""The type of the message that a schedule without data pushes."""


def _read_data(file: SpecFile, setting: tree.Assignment, path: Path) -> Any:
    text = readers.expression(file, setting, path)
    try:
        return None if text is None else compile_expression(text)({})
    except ExpressionFailed:
        file.note(setting.value, "`data` must be a constant: there is no message to read from")
        return None


class ScheduleDeclaration(Declaration[ir.ScheduleSpec]):
    word, family = "schedule", "schedules"
    defaults = ir.ScheduleSpec(queue="")
    needed = ("queue",)
    settings: ClassVar[Settings] = {
        "queue": NAME,
        "every_seconds": SECONDS,
        "cron": TEXT,
        "timezone": TEXT,
        "missed": choice(*get_args(Missed)),
        "unique": choice(*get_args(Unique)),
        "unique_key": TEXT,
        "data": SettingCodec(_read_data),
        "partition": TEXT,
        "type": TEXT,
    }

    def check(self, found: Diagnostics, path: Path, name: str, schedule: ir.ScheduleSpec) -> None:
        if not found.has_queue((*path, "queue"), schedule.queue):
            return
        at = path
        try:
            check_name("the name of a schedule", name)
            options_of(schedule).check()
            if schedule.cron is not None:  # checks that the expression has a next tick in that zone
                at = (*path, "timezone")
                zone(schedule.timezone)
                at = (*path, "cron")
                next_tick(options_of(schedule), 0)
            elif schedule.timezone != "UTC":
                found.add((*path, "timezone"), "this has no effect: an interval uses no time zone")
                return
        except InvalidRequest as error:
            found.add(at, str(error))
            return
        self._check_data(found, (*path, "data"), schedule)

    def _check_data(self, found: Diagnostics, path: Path, schedule: ir.ScheduleSpec) -> None:
        what, wanted = "what it pushes never fits", found.spec.queues[schedule.queue].message_type
        if schedule.data is None:
            found.fit(path, TICK, schedule.queue, what=what)
        elif wanted is not None:
            try:
                compile_validator(wanted)(msgspec.json.encode(schedule.data))
            except InvalidRequest as error:
                found.add(path, f"{what} `{schedule.queue}`: {error}")


def options_of(schedule: ir.ScheduleSpec) -> ScheduleOptions:
    data = msgspec.Raw(msgspec.json.encode(schedule.data))
    return ScheduleOptions(**msgspec.structs.asdict(schedule) | {"data": data})


def schedule_of(options: ScheduleOptions) -> ir.ScheduleSpec:
    """Return the document node for schedule options. Inverse of `options_of`."""
    return ir.ScheduleSpec(**msgspec.structs.asdict(options) | {"data": msgspec.json.decode(options.data)})
