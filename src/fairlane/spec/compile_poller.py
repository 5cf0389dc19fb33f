"""A poller's section to its part of the document."""

from __future__ import annotations

from typing import Any

from fairlane.spec import ir, tree
from fairlane.spec.reading import Form, Path, Place, Reading

POLLER: dict[str, Form] = dict.fromkeys(ir.PollerSpec.__struct_fields__, "setting")


def compile_poller(reading: Reading, section: tree.Section, path: Path) -> ir.PollerSpec:
    given: dict[str, Any] = {}
    for name, entry in reading.entries(section.body, POLLER, of="a poller").items():
        assert isinstance(entry, tree.Setting)
        reading.places[(*path, name)] = Place(reading.source, entry)
        given[name] = _setting(reading, entry)
    given = {name: value for name, value in given.items() if value is not None}
    for needed in ("url", "queue"):
        if needed not in given:
            if not reading.problems:
                reading.note(section.kind, f"a poller needs `{needed}`")
            given[needed] = ""
    return ir.PollerSpec(**given)


def _setting(reading: Reading, setting: tree.Setting) -> Any:
    match setting.name.text:
        case "queue":
            return reading.reference(setting)
        case "paging":
            return reading.choice(setting, ("id", "token", "link"))
        case "every_seconds" | "sweep_seconds" | "lease_seconds":
            return reading.duration(setting, unit_ms=1000)
        case "page_size":
            return reading.number(setting)
        case "may_be_empty":
            return reading.flag(setting)
        case "ignore":
            return reading.strings(setting)
    return reading.string(setting)
