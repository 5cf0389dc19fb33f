"""A queue's section to its part of the document."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.spec import ir, tree
from fairlane.spec.compile_types import compile_record
from fairlane.spec.settings import DECLARED, QUEUE_SETTINGS, QueueSetting
from fairlane.spec.spec_file import Form, Location, Path, SpecFile, dotted

QUEUE: dict[str, Form] = {
    **dict.fromkeys(QUEUE_SETTINGS[""], "setting"),
    **{section: "section" for section in QUEUE_SETTINGS if section},
    "message_type": "types",
    "key": "setting",
    "map_to": "setting",
}


def compile_queue(file: SpecFile, section: tree.Section, path: Path) -> ir.QueueSpec:
    entries = file.entries(section.body, QUEUE, of="a queue")
    given: dict[str, Any] = {}
    message_type = key = map_to = None
    for name, entry in entries.items():
        if isinstance(entry, tree.Types):
            message_type = compile_record(file, entry.body)
            file.locations[(*path, name)] = Location(file.source, entry.name)
        elif isinstance(entry, tree.Section):
            known: dict[str, Form] = dict.fromkeys(QUEUE_SETTINGS[name], "setting")
            for inner in file.entries(entry.body, known, of=f"`{name}`").values():
                assert isinstance(inner, tree.Setting)
                given |= _option(file, inner, QUEUE_SETTINGS[name][inner.name.text], path)
        elif name == "key":
            key = file.expression(entry, (*path, "key"))
        elif name == "map_to":
            map_to = compile_mapping(file, entry, (*path, "map_to"), command=True)
        else:
            given |= _option(file, entry, QUEUE_SETTINGS[""][name], path)
    options = msgspec.structs.replace(DECLARED, **given)
    aged = bool(options.retention_seconds or options.completed_retention_seconds)
    options = msgspec.structs.replace(options, retention_enabled=aged)
    return ir.QueueSpec(options=options, message_type=message_type, key=key, map_to=map_to)


def _option(file: SpecFile, setting: tree.Setting, kind: QueueSetting, path: Path) -> dict[str, Any]:
    """The option that a setting sets, or nothing if it is wrong."""
    file.locations[(*path, "options", kind.option)] = Location(file.source, setting)
    value = _value(file, setting, kind)
    if value is None:
        return {}
    if kind.option == "retry_limit":
        if value < 1:
            file.note(setting.value, "`max_attempts` counts deliveries in all, and one is the least")
            return {}
        value -= 1
    return {kind.option: value}


def _value(file: SpecFile, setting: tree.Setting, kind: QueueSetting) -> Any:
    match kind.kind:
        case "count":
            return file.number(setting)
        case "flag":
            return file.flag(setting)
        case "choice":
            return file.choice(setting, kind.choices)
        case "seconds":
            return file.duration(setting, unit_ms=1000)
        case "milliseconds":
            return file.duration(setting, unit_ms=1)
        case "queue":
            return file.reference(setting)


def compile_mapping(file: SpecFile, setting: tree.Setting, path: Path, *, command: bool) -> ir.Mapping | None:
    """`map_to: command Name { field: expression }`; in a webhook it is `command: Name { ... }`."""
    call = setting.value
    name = None
    if isinstance(call, tree.Call) and call.command == command:
        name = call.head.text if isinstance(call.head, tree.Label) else dotted(call.head)
    if name is None or not isinstance(call, tree.Call):
        shape = "map_to: command Entity.Name { field: ... }" if command else "command: Entity.Name { field: ... }"
        file.note(setting.value, f"`{setting.name.text}` names a command and what it gets: `{shape}`")
        return None
    file.locations[path] = Location(file.source, call.head)
    fields: dict[str, str] = {}
    for entry in call.body.entries:
        word = entry.kind if isinstance(entry, tree.Section) else entry.name
        file.locations[(*path, word.text, "name")] = Location(file.source, word)
        if not isinstance(entry, tree.Setting):
            file.note(word, f"a field of a command is written `{word.text}: expression`")
        elif word.text in fields:
            file.note(word, f"`{word.text}` is there twice")
        elif (text := file.expression(entry, (*path, word.text))) is not None:
            fields[word.text] = text
    return ir.Mapping(command=name, fields=fields)
