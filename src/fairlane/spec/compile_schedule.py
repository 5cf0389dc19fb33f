"""A schedule's section to its part of the document."""

from __future__ import annotations

from typing import Any, get_args

from fairlane.errors import ExpressionFailed
from fairlane.model.recurring import Missed
from fairlane.spec import ir, tree
from fairlane.spec.evaluate import compile_expression
from fairlane.spec.reading import Form, Path, Place, Reading

SCHEDULE: dict[str, Form] = dict.fromkeys(
    ("queue", "every_seconds", "cron", "timezone", "missed", "data", "partition", "type"), "setting"
)


def compile_schedule(reading: Reading, section: tree.Section, path: Path) -> ir.ScheduleSpec:
    given: dict[str, Any] = {}
    for name, entry in reading.entries(section.body, SCHEDULE, of="a schedule").items():
        assert isinstance(entry, tree.Setting)
        reading.places[(*path, name)] = Place(reading.source, entry)
        given[name] = _setting(reading, entry, (*path, name))
    given = {name: value for name, value in given.items() if value is not None}
    if "queue" not in given:
        if not reading.problems:
            reading.note(section.kind, "a schedule needs `queue`")
        given["queue"] = ""
    return ir.ScheduleSpec(**given)


def _setting(reading: Reading, setting: tree.Setting, path: Path) -> Any:
    match setting.name.text:
        case "queue":
            return reading.reference(setting)
        case "every_seconds":
            return reading.duration(setting, unit_ms=1000)
        case "missed":
            return reading.choice(setting, get_args(Missed))
        case "data":
            return _constant(reading, setting, path)
    return reading.string(setting)


def _constant(reading: Reading, setting: tree.Setting, path: Path) -> Any:
    text = reading.expression(setting, path)
    try:
        return None if text is None else compile_expression(text)({})
    except ExpressionFailed:
        reading.note(setting.value, "`data` is a value: nothing is known of a message that is not there yet")
        return None
