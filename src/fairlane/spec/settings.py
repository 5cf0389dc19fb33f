"""Readers of settings in a spec file, by type.

Problems are collected, so that one run finds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec

from fairlane.errors import SpecError
from fairlane.spec import ir
from fairlane.spec.text import tree
from fairlane.spec.text.format import print_expression
from fairlane.spec.text.source import SourceText, suggestion

Path: TypeAlias = tuple[str, ...]
"""A place in the document, for example ("queues", "Orders", "key")."""

Form = Literal["setting", "section", "types"]
_FORMS: dict[Form, type[tree.SyntaxNode]] = {"setting": tree.Assignment, "section": tree.Section, "types": tree.Types}
_SHAPES: dict[Form, str] = {"setting": "`{0}: ...`", "section": "`{0} {{ ... }}`", "types": "`{0} {{ field: type }}`"}

SCALARS: tuple[str, ...] = get_args(get_type_hints(ir.Scalar)["of"])
SHAPES = {"list": "list<string>", "map": "map<string, json>", "enum": 'enum("a", "b")'}
_JSON = ir.Scalar(of="json")


class Location(NamedTuple):
    source: SourceText
    node: tree.SyntaxNode


class SpecFile:
    """A file of a spec. `problems` and `locations` are shared by all files of the spec."""

    def __init__(self, source: SourceText, problems: list[SpecError], locations: dict[Path, Location]) -> None:
        self.source = source
        self.problems = problems
        self.locations = locations

    def locate(self, path: Path, node: tree.SyntaxNode) -> None:
        self.locations[path] = Location(self.source, node)

    def note(self, node: tree.SyntaxNode, message: str, *, hint: str | None = None) -> None:
        self.problems.append(self.source.error(message, node.start, node.end, hint=hint or None))

    def entries(self, body: tree.Block, known: Mapping[str, Form], *, of: str) -> dict[str, tree.Entry]:
        """Return the valid entries of a block by name: known names, in the right form, each once."""
        found: dict[str, tree.Entry] = {}
        for entry in body.entries:
            word = word_of(entry)
            form = known.get(word.text)
            if form is None:
                self.note(word, f"{of} has no `{word.text}`", hint=suggestion(word.text, known))
            elif word.text in found:
                line, _ = self.source.position(found[word.text].start)
                self.note(word, f"`{word.text}` is given twice", hint=f"first in line {line}")
            elif not isinstance(entry, _FORMS[form]) or (isinstance(entry, tree.Section) and entry.label):
                self.note(word, f"`{word.text}` is written {_SHAPES[form].format(word.text)}")
            else:
                found[word.text] = entry
        return found

    def expected(self, setting: tree.Assignment, what: str, hint: str | None = None) -> None:
        self.note(setting.value, f"`{setting.name.text}` must be {what}", hint=hint)

    def record(self, node: tree.RecordTypeNode) -> ir.RecordType:
        fields: dict[str, ir.Type] = {}
        for field in node.fields:
            if field.name.text in fields:
                self.note(field.name, f"the field `{field.name.text}` is given twice")
            fields[field.name.text] = self.type(field.type)
        return ir.RecordType(fields=fields)

    def type(self, node: tree.TypeNode) -> ir.Type:
        """Read a type. A wrong type is reported and replaced by `json`, so that reading continues."""
        match node:
            case tree.OptionalTypeNode(of=of):
                return msgspec.structs.replace(self.type(of), optional=True)
            case tree.RecordTypeNode():
                return self.record(node)
            case tree.NamedTypeNode(name=word):
                return self._scalar(word)
            case tree.GenericTypeNode():
                return self._generic(node)
            case tree.EnumTypeNode():
                return self._enum(node)

    def _scalar(self, word: tree.Word) -> ir.Type:
        if word.text in SCALARS:
            return msgspec.convert({"type": "scalar", "of": word.text}, ir.Scalar)
        if word.text in SHAPES:
            self.note(word, f"`{word.text}` needs more: `{SHAPES[word.text]}`")
        else:
            self.note(word, f"there is no type `{word.text}`", hint=suggestion(word.text, [*SCALARS, *SHAPES]))
        return _JSON

    def _generic(self, node: tree.GenericTypeNode) -> ir.Type:
        inner = [self.type(of) for of in node.of]
        if node.name.text == "list" and len(inner) == 1:
            return ir.ListType(items=inner[0])
        if node.name.text == "map" and len(inner) == 2:
            if inner[0] != ir.Scalar(of="string"):
                self.note(node.of[0], "the keys of a map are strings, as those of a JSON object: `map<string, ...>`")
            return ir.MapType(values=inner[1])
        if node.name.text in ("list", "map"):
            shape = "list<T>" if node.name.text == "list" else "map<string, T>"
            self.note(node, f"`{node.name.text}` is written `{shape}`")
        else:
            hint = suggestion(node.name.text, ["list", "map"])
            self.note(node.name, f"`{node.name.text}` takes no types in `<>`", hint=hint)
        return _JSON

    def _enum(self, node: tree.EnumTypeNode) -> ir.Type:
        if node.name.text != "enum":
            self.note(node.name, f"`{node.name.text}` takes no choices", hint=suggestion(node.name.text, ["enum"]))
            return _JSON
        choices: dict[str, None] = {}
        for literal in node.choices:
            if literal.value in choices:
                self.note(literal, f"the choice {literal.text} is given twice")
            choices[str(literal.value)] = None
        return ir.EnumType(choices=tuple(choices))


def word_of(entry: tree.Entry) -> tree.Word:
    return entry.kind if isinstance(entry, tree.Section) else entry.name


def number(file: SpecFile, setting: tree.Assignment, path: Path) -> int | None:
    """Read a whole number."""
    value, sign = setting.value, 1
    if isinstance(value, tree.Unary) and value.operator == "-":
        value, sign = value.of, -1
    if isinstance(value, tree.Literal) and type(value.value) is int and not value.unit:
        return sign * value.value
    file.expected(setting, "a whole number")
    return None


def literal(kind: type, what: str) -> Callable[[SpecFile, tree.Assignment, Path], Any]:
    def read(file: SpecFile, setting: tree.Assignment, path: Path) -> Any:
        if isinstance(setting.value, tree.Literal) and type(setting.value.value) is kind:
            return setting.value.value
        file.expected(setting, what)
        return None

    return read


flag = literal(bool, "`true` or `false`")
string = literal(str, "a string in quotes")


def choice(choices: tuple[str, ...]) -> Callable[[SpecFile, tree.Assignment, Path], str | None]:
    def choose(file: SpecFile, setting: tree.Assignment, path: Path) -> str | None:
        value = setting.value
        if isinstance(value, tree.Name) and value.name in choices:
            return value.name
        hint = suggestion(value.name, choices) if isinstance(value, tree.Name) else None
        file.expected(setting, f"one of {', '.join(f'`{choice}`' for choice in choices)}", hint)
        return None

    return choose


def milliseconds(file: SpecFile, setting: tree.Assignment, path: Path, *, unit_ms: int = 1) -> int | None:
    """Read a number in the unit of the setting's name, or a duration such as `24h`."""
    value = setting.value
    if not isinstance(value, tree.Literal) or type(value.value) is not int:
        file.expected(setting, "a whole number or a duration like `24h`")
        return None
    if not value.unit:
        return value.value
    if value.value % unit_ms:
        file.expected(setting, "a whole number of seconds")
        return None
    return value.value // unit_ms


def seconds(file: SpecFile, setting: tree.Assignment, path: Path) -> int | None:
    return milliseconds(file, setting, path, unit_ms=1000)


def strings(file: SpecFile, setting: tree.Assignment, path: Path) -> tuple[str, ...] | None:
    """Read one string, or a list of strings."""
    items = setting.value.items if isinstance(setting.value, tree.ListOf) else (setting.value,)
    texts = tuple(
        item.value for item in items if isinstance(item, tree.Literal) and isinstance(item.value, str) and item.value
    )
    if not texts or len(texts) < len(items):
        file.expected(setting, 'a string in quotes, or several: `["A", "B"]`')
        return None
    return texts


def reference(file: SpecFile, setting: tree.Assignment, path: Path) -> str | None:
    """Read the name of a declaration: a word, words with dots, or a string."""
    value = setting.value
    if isinstance(value, tree.Literal) and isinstance(value.value, str):
        return value.value
    if keys := tree.keys_of(value):
        return ".".join(keys)
    file.expected(setting, "a name")
    return None


def expression(file: SpecFile, setting: tree.Assignment, path: Path) -> str | None:
    """Return the text of an expression in canonical form. Its syntax tree is kept for the checks."""
    value = setting.value
    if isinstance(value, tree.BlockValue | tree.QueueTarget | tree.HttpTarget | tree.Header):
        file.expected(setting, "an expression")
        return None
    file.locate(path, value)
    return print_expression(value)


def mapping(file: SpecFile, setting: tree.Assignment, path: Path) -> ir.Mapping | None:
    """Read `map_to: command Name { field: expression }`, or `command: Name { ... }` in a webhook."""
    call, command = setting.value, setting.name.text == "map_to"
    name = ""
    if isinstance(call, tree.BlockValue) and call.command == command:
        name = call.head.text if isinstance(call.head, tree.Label) else ".".join(tree.keys_of(call.head))
    if not name or not isinstance(call, tree.BlockValue):
        shape = "map_to: command Entity.Name { field: ... }" if command else "command: Entity.Name { field: ... }"
        file.note(setting.value, f"`{setting.name.text}` names a command and what it gets: `{shape}`")
        return None
    file.locate(path, call.head)
    fields: dict[str, str] = {}
    for entry in call.body.entries:
        word = word_of(entry)
        file.locate((*path, word.text, "name"), word)
        if not isinstance(entry, tree.Assignment):
            file.note(word, f"a field of a command is written `{word.text}: expression`")
        elif word.text in fields:
            file.note(word, f"`{word.text}` is given twice")
        elif (text := expression(file, entry, (*path, word.text))) is not None:
            fields[word.text] = text
    return ir.Mapping(command=name, fields=fields)
