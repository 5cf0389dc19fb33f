"""A schedule's section to its part of the document."""

from __future__ import annotations

from typing import Any, get_args

from fairlane.errors import ExpressionFailed
from fairlane.model.schedule import Missed
from fairlane.spec import ir, tree
from fairlane.spec.evaluate import compile_expression
from fairlane.spec.spec_file import Form, Location, Path, SpecFile

SCHEDULE: dict[str, Form] = dict.fromkeys(
    ("queue", "every_seconds", "cron", "timezone", "missed", "data", "partition", "type"), "setting"
)


def compile_schedule(file: SpecFile, section: tree.Section, path: Path) -> ir.ScheduleSpec:
    given: dict[str, Any] = {}
    for name, entry in file.entries(section.body, SCHEDULE, of="a schedule").items():
        assert isinstance(entry, tree.Setting)
        file.locations[(*path, name)] = Location(file.source, entry)
        given[name] = _setting(file, entry, (*path, name))
    given = {name: value for name, value in given.items() if value is not None}
    if "queue" not in given:
        if not file.problems:
            file.note(section.kind, "a schedule needs `queue`")
        given["queue"] = ""
    return ir.ScheduleSpec(**given)


def _setting(file: SpecFile, setting: tree.Setting, path: Path) -> Any:
    match setting.name.text:
        case "queue":
            return file.reference(setting)
        case "every_seconds":
            return file.duration(setting, unit_ms=1000)
        case "missed":
            return file.choice(setting, get_args(Missed))
        case "data":
            return _constant(file, setting, path)
    return file.string(setting)


def _constant(file: SpecFile, setting: tree.Setting, path: Path) -> Any:
    text = file.expression(setting, path)
    try:
        return None if text is None else compile_expression(text)({})
    except ExpressionFailed:
        file.note(setting.value, "`data` is a value: nothing is known of a message that is not there yet")
        return None
