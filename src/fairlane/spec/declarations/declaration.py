"""Base class of everything that an app can declare: settings with their codecs, checks, and values for the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from fairlane.spec import ir
from fairlane.spec import settings as readers
from fairlane.spec.diagnostics import Diagnostics
from fairlane.spec.settings import Form, Location, Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.types import named, quoted

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
Node = TypeVar("Node", bound=ir.Node)
Leaves: TypeAlias = dict[str, Any]
"""The settings of one declaration, by their name in the language."""


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


class SettingCodec(NamedTuple):
    """The functions that read and write a setting.

    `read` returns None if the entry is invalid. `write` returns None if the setting does not apply to the value. `at`
    is the key in the document if it differs from the setting's name.
    """

    read: Callable[[SpecFile, Any, Path], Any]
    write: Callable[[Any], str | None] = as_json
    at: tuple[str, ...] = ()
    form: Form = "setting"


Settings: TypeAlias = Mapping[str, "SettingCodec | Settings"]
"""Codecs by name. A nested mapping is a section."""

NUMBER = SettingCodec(readers.number)
FLAG = SettingCodec(readers.flag)
SECONDS = SettingCodec(readers.seconds)
MILLISECONDS = SettingCodec(readers.milliseconds)
STRING = SettingCodec(readers.string)
STRINGS = SettingCodec(readers.strings, as_strings)
NAME = SettingCodec(readers.reference, as_name)
EXPRESSION = SettingCodec(readers.expression, str)
TYPES = SettingCodec(
    lambda file, entry, path: file.record(entry.body), lambda type_: named(type_, exact=True), form="types"
)


def choice(*choices: str) -> SettingCodec:
    return SettingCodec(readers.choice(choices), str)


class Declaration(Generic[Node]):
    word: ClassVar[str]
    family: ClassVar[str]
    """The name of its mapping in the document."""
    defaults: Node
    """A node with the defaults of all settings."""
    settings: ClassVar[Settings]
    """Settings in the order in which they are written."""
    needed: ClassVar[tuple[str, ...]] = ()
    removal_danger: ClassVar[str | None] = None
    """The danger of removing the declaration: messages or data may be lost, refused or exposed."""

    def read(self, file: SpecFile, section: tree.Section, path: Path) -> Node:
        """Read a section to its node of the document."""
        given = read_settings(file, section.body, self.settings, path, of=f"a {self.word}")
        for needed in self.needed:
            if needed not in given and not file.problems:
                file.note(section.kind, f"a {self.word} needs `{needed}`")
            given.setdefault(needed, "")
        return self.build(given)

    def build(self, given: dict[str, Any]) -> Node:
        return type(self.defaults)(**given)

    def check(self, found: Diagnostics, path: Path, name: str, part: Node) -> None:
        raise NotImplementedError

    def write(self, name: str, part: Node) -> str:
        """Return the text that reads as this node again."""
        return block(f"{self.word} {as_name(name)}", write_settings(self.settings, part, self.defaults))

    def leaves(self, part: Node) -> Leaves:
        """Return the values of a node by setting, for the plan."""
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


def read_settings(file: SpecFile, body: tree.Block, settings: Settings, path: Path, *, of: str) -> dict[str, Any]:
    """Read the entries of a block by name. Leaves out invalid ones."""
    forms: dict[str, Form] = {
        name: setting.form if isinstance(setting, SettingCodec) else "section" for name, setting in settings.items()
    }
    given: dict[str, Any] = {}
    for name, entry in file.entries(body, forms, of=of).items():
        setting = settings[name]
        if isinstance(setting, SettingCodec):
            at = setting.at or (name,)
            file.locations.setdefault((*path, *at), Location(file.source, entry))
            if (value := setting.read(file, entry, (*path, *at))) is not None:
                given[at[-1]] = value
        else:
            assert isinstance(entry, tree.Section)
            given |= read_settings(file, entry.body, setting, path, of=f"`{name}`")
    return given


def write_settings(settings: Settings, part: ir.Node, defaults: ir.Node) -> list[str]:
    """Return the entries in which a node differs from the defaults."""
    entries = []
    for name, setting in settings.items():
        if not isinstance(setting, SettingCodec):
            if inside := write_settings(setting, part, defaults):
                entries.append(block(name, inside))
            continue
        value, default = (reduce(getattr, setting.at or (name,), of) for of in (part, defaults))
        if value != default and (text := setting.write(value)) is not None:
            entries.append(f"{name}: {text}" if setting.form == "setting" else f"{name} {text}")
    return entries


def mapping_leaves(name: str, mapping: ir.Mapping) -> Leaves:
    return {name: mapping.command} | {f"{name}.{field}": text for field, text in mapping.fields.items()}


def type_leaves(name: str, type_: ir.Type) -> Leaves:
    """Return one leaf for each field of a record, so that the plan shows changes by field."""
    if isinstance(type_, ir.RecordType) and type_.fields:
        leaves: Leaves = {name: "{ ... }?"} if type_.optional else {}
        for field, inner in type_.fields.items():
            leaves |= type_leaves(f"{name}.{field}", inner)
        return leaves
    return {name: named(type_) + ("?" if type_.optional else "")}
