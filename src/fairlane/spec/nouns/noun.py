"""A noun of the language, declared once: its settings with how each is read and written, its checks, its plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from fairlane.spec import ir, reader
from fairlane.spec.findings import Findings
from fairlane.spec.reader import Form, Location, Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.types import named, quoted

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
Part = TypeVar("Part", bound=ir.Part)
Leaves: TypeAlias = dict[str, Any]
"""The settings of one declared thing, by their name in the language."""


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def as_name(name: Any) -> str | None:
    if not isinstance(name, str):
        return None
    return name if _WORD.fullmatch(name) else quoted(name)


def as_strings(texts: tuple[str, ...]) -> str:
    return quoted(texts[0]) if len(texts) == 1 else as_json(texts)


def as_mapping(mapping: ir.Mapping) -> str:
    return block(mapping.command, [f"{name}: {text}" for name, text in mapping.fields.items()])


def block(head: str, entries: list[str]) -> str:
    return "\n".join([f"{head} {{", *entries, "}"]) if entries else f"{head} {{}}"


class Setting(NamedTuple):
    """A setting: what reads its entry in a file, None if that is wrong; what writes its value again, None if this
    setting does not say it; and where in the part of the document it is, if not under its own name."""

    read: Callable[[SpecFile, Any, Path], Any]
    write: Callable[[Any], str | None] = as_json
    at: tuple[str, ...] = ()
    form: Form = "setting"


Settings: TypeAlias = Mapping[str, "Setting | Settings"]
"""By name; others inside are those of a section."""

NUMBER = Setting(reader.number)
FLAG = Setting(reader.flag)
SECONDS = Setting(reader.seconds)
MILLISECONDS = Setting(reader.milliseconds)
STRING = Setting(reader.string)
STRINGS = Setting(reader.strings, as_strings)
NAME = Setting(reader.reference, as_name)
EXPRESSION = Setting(reader.expression, str)
TYPES = Setting(lambda file, entry, path: file.record(entry.body), lambda type_: named(type_, exact=True), form="types")


def choice(*choices: str) -> Setting:
    return Setting(reader.choice(choices), str)


class Noun(Generic[Part]):
    word: ClassVar[str]
    family: ClassVar[str]
    """Where it is in the document."""
    usual: Part
    """What one has that says nothing."""
    settings: ClassVar[Settings]
    """In the order in which they are written."""
    needed: ClassVar[tuple[str, ...]] = ()
    gone: ClassVar[str | None] = None
    """What may be lost, refused or exposed when one is no longer declared."""

    def read(self, file: SpecFile, section: tree.Section, path: Path) -> Part:
        """Its part of the document."""
        given = read_settings(file, section.body, self.settings, path, of=f"a {self.word}")
        for needed in self.needed:
            if needed not in given and not file.problems:
                file.note(section.kind, f"a {self.word} needs `{needed}`")
            given.setdefault(needed, "")
        return self.build(given)

    def build(self, given: dict[str, Any]) -> Part:
        return type(self.usual)(**given)

    def check(self, found: Findings, path: Path, name: str, part: Part) -> None:
        raise NotImplementedError

    def write(self, name: str, part: Part) -> str:
        """What reads as this part again."""
        return block(f"{self.word} {as_name(name)}", write_settings(self.settings, part, self.usual))

    def leaves(self, part: Part) -> Leaves:
        """What one says, setting by setting."""
        leaves: Leaves = {}
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if isinstance(value, ir.RecordType):
                leaves |= type_leaves(name, value)
            elif isinstance(value, ir.Mapping):
                leaves |= mapping_leaves(name, value)
            elif value is not None and value != ():
                leaves[name] = msgspec.to_builtins(value)
        return leaves


def read_settings(file: SpecFile, body: tree.Body, settings: Settings, path: Path, *, of: str) -> dict[str, Any]:
    """What the entries of a body say, those that are wrong left out."""
    forms: dict[str, Form] = {
        name: setting.form if isinstance(setting, Setting) else "section" for name, setting in settings.items()
    }
    given: dict[str, Any] = {}
    for name, entry in file.entries(body, forms, of=of).items():
        setting = settings[name]
        if isinstance(setting, Setting):
            at = setting.at or (name,)
            file.locations.setdefault((*path, *at), Location(file.source, entry))
            if (value := setting.read(file, entry, (*path, *at))) is not None:
                given[at[-1]] = value
        else:
            assert isinstance(entry, tree.Section)
            given |= read_settings(file, entry.body, setting, path, of=f"`{name}`")
    return given


def write_settings(settings: Settings, part: ir.Part, usual: ir.Part) -> list[str]:
    """The entries that say what a part of the document has unlike the usual one."""
    entries = []
    for name, setting in settings.items():
        if not isinstance(setting, Setting):
            if inside := write_settings(setting, part, usual):
                entries.append(block(name, inside))
            continue
        value, default = (reduce(getattr, setting.at or (name,), of) for of in (part, usual))
        if value != default and (text := setting.write(value)) is not None:
            entries.append(f"{name}: {text}" if setting.form == "setting" else f"{name} {text}")
    return entries


def mapping_leaves(name: str, mapping: ir.Mapping) -> Leaves:
    return {name: mapping.command} | {f"{name}.{field}": text for field, text in mapping.fields.items()}


def type_leaves(name: str, type_: ir.Type) -> Leaves:
    """A field for each part of a record, so that a change of one is told as that."""
    if isinstance(type_, ir.RecordType) and type_.fields:
        leaves: Leaves = {name: "{ ... }?"} if type_.optional else {}
        for field, inner in type_.fields.items():
            leaves |= type_leaves(f"{name}.{field}", inner)
        return leaves
    return {name: named(type_) + ("?" if type_.optional else "")}
