"""A file of a spec while it is compiled: its settings, each as what it must be. What is wrong is noted, so that one run
finds everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from fairlane.errors import SpecError
from fairlane.spec import tree
from fairlane.spec.print import print_expression
from fairlane.spec.source import Source, suggestion

Path: TypeAlias = tuple[str, ...]
"""Where something is in the document: ("queues", "Orders", "key")."""

Form = Literal["setting", "section", "types"]
_SHAPES: dict[Form, str] = {"setting": "`{0}: ...`", "section": "`{0} {{ ... }}`", "types": "`{0} {{ field: type }}`"}


class Location(NamedTuple):
    source: Source
    node: tree.Node


class SpecFile:
    """A file of a spec. `problems` and `locations` are those of the whole spec."""

    def __init__(self, source: Source, problems: list[SpecError], locations: dict[Path, Location]) -> None:
        self.source = source
        self.problems = problems
        self.locations = locations

    def note(self, node: tree.Node, message: str, *, hint: str | None = None) -> None:
        self.problems.append(self.source.error(message, node.start, node.end, hint=hint or None))

    def entries(self, body: tree.Body, known: Mapping[str, Form], *, of: str) -> dict[str, tree.Entry]:
        """The entries of a body by name: those that are known, of the right form, and the first of their name."""
        found: dict[str, tree.Entry] = {}
        for entry in body.entries:
            word = entry.kind if isinstance(entry, tree.Section) else entry.name
            form = known.get(word.text)
            if form is None:
                self.note(word, f"{of} has no `{word.text}`", hint=suggestion(word.text, known))
            elif word.text in found:
                self.note(word, f"`{word.text}` is there twice", hint=f"first in line {self._line(found[word.text])}")
            elif form != _form(entry) or (isinstance(entry, tree.Section) and entry.label):
                self.note(word, f"`{word.text}` is written {_SHAPES[form].format(word.text)}")
            else:
                found[word.text] = entry
        return found

    def _line(self, node: tree.Node) -> int:
        return self.source.position(node.start)[0]

    def number(self, setting: tree.Setting) -> int | None:
        """A whole number."""
        value, sign = setting.value, 1
        if isinstance(value, tree.Unary) and value.operator == "-":
            value, sign = value.of, -1
        if isinstance(value, tree.Literal) and type(value.value) is int and not value.unit:
            return sign * value.value
        self._expected(setting, "a whole number")
        return None

    def flag(self, setting: tree.Setting) -> bool | None:
        value = setting.value
        if isinstance(value, tree.Literal) and isinstance(value.value, bool):
            return value.value
        self._expected(setting, "`true` or `false`")
        return None

    def choice(self, setting: tree.Setting, choices: Iterable[str]) -> str | None:
        choices = list(choices)
        value = setting.value
        if isinstance(value, tree.Name) and value.name in choices:
            return value.name
        hint = suggestion(value.name, choices) if isinstance(value, tree.Name) else None
        self._expected(setting, f"one of {', '.join(f'`{choice}`' for choice in choices)}", hint=hint)
        return None

    def duration(self, setting: tree.Setting, *, unit_ms: int) -> int | None:
        """Of a plain number the unit is in the setting's name; a duration like `24h` brings its own."""
        value = setting.value
        if not isinstance(value, tree.Literal) or type(value.value) is not int:
            self._expected(setting, "a whole number or a duration like `24h`")
            return None
        if not value.unit:
            return value.value
        if value.value % unit_ms:
            self._expected(setting, "a whole number of seconds")
            return None
        return value.value // unit_ms

    def string(self, setting: tree.Setting) -> str | None:
        value = setting.value
        if isinstance(value, tree.Literal) and isinstance(value.value, str):
            return value.value
        self._expected(setting, "a string in quotes")
        return None

    def strings(self, setting: tree.Setting) -> tuple[str, ...] | None:
        """One string, or a list of them."""
        items = setting.value.items if isinstance(setting.value, tree.ListOf) else (setting.value,)
        texts = tuple(
            item.value
            for item in items
            if isinstance(item, tree.Literal) and isinstance(item.value, str) and item.value
        )
        if not texts or len(texts) < len(items):
            self._expected(setting, 'a string in quotes, or several: `["A", "B"]`')
            return None
        return texts

    def reference(self, setting: tree.Setting) -> str | None:
        """The name of something declared: a word, words with dots, or a string."""
        value = setting.value
        if isinstance(value, tree.Literal) and isinstance(value.value, str):
            return value.value
        name = dotted(value)
        if name is None:
            self._expected(setting, "a name")
        return name

    def expression(self, setting: tree.Setting, path: Path) -> str | None:
        """The expression's text in its one form; the place keeps the tree for the checker."""
        value = setting.value
        if isinstance(value, tree.Call | tree.Target | tree.Request | tree.Header):
            self._expected(setting, "an expression")
            return None
        self.locations[path] = Location(self.source, value)
        return print_expression(value)

    def _expected(self, setting: tree.Setting, what: str, *, hint: str | None = None) -> None:
        self.note(setting.value, f"`{setting.name.text}` must be {what}", hint=hint)


def _form(entry: tree.Entry) -> Form:
    return "setting" if isinstance(entry, tree.Setting) else "types" if isinstance(entry, tree.Types) else "section"


def dotted(value: tree.Value) -> str | None:
    """`A.b` if that is all it is."""
    names: list[str] = []
    while isinstance(value, tree.Member):
        names.append(value.name.text)
        value = value.of
    return ".".join([value.name, *reversed(names)]) if isinstance(value, tree.Name) else None
