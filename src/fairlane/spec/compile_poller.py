"""A poller's section to its part of the document."""

from __future__ import annotations

from typing import Any

from fairlane.spec import ir, tree
from fairlane.spec.spec_file import Form, Location, Path, SpecFile

POLLER: dict[str, Form] = dict.fromkeys(ir.PollerSpec.__struct_fields__, "setting")


def compile_poller(file: SpecFile, section: tree.Section, path: Path) -> ir.PollerSpec:
    given: dict[str, Any] = {}
    for name, entry in file.entries(section.body, POLLER, of="a poller").items():
        assert isinstance(entry, tree.Setting)
        file.locations[(*path, name)] = Location(file.source, entry)
        given[name] = _setting(file, entry)
    given = {name: value for name, value in given.items() if value is not None}
    for needed in ("url", "queue"):
        if needed not in given:
            if not file.problems:
                file.note(section.kind, f"a poller needs `{needed}`")
            given[needed] = ""
    return ir.PollerSpec(**given)


def _setting(file: SpecFile, setting: tree.Setting) -> Any:
    match setting.name.text:
        case "queue":
            return file.reference(setting)
        case "paging":
            return file.choice(setting, ("id", "token", "link"))
        case "every_seconds" | "sweep_seconds" | "lease_seconds":
            return file.duration(setting, unit_ms=1000)
        case "page_size":
            return file.number(setting)
        case "may_be_empty":
            return file.flag(setting)
        case "ignore":
            return file.strings(setting)
    return file.string(setting)
