"""Diagnostics of a check, and the checks that several declarations share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from fairlane.errors import SpecError
from fairlane.spec import ir
from fairlane.spec.expression.evaluate import infer
from fairlane.spec.settings import Path
from fairlane.spec.text import tree
from fairlane.spec.text.parser import EXPRESSION_CHARS_MAX, parse_expression
from fairlane.spec.text.source import SourceText, suggestion
from fairlane.spec.types import JSON, family, misfit

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class Diagnostic(NamedTuple):
    path: Path
    """The place in the document, for example ("queues", "Orders", "key")."""
    message: str
    hint: str | None = None
    node: tree.SyntaxNode | None = None
    """The part of an expression that is wrong."""
    reference: bool = False
    """True if the diagnostic is about an undeclared name. The declaration may be in a part that could not be read."""

    def render(self) -> str:
        """Return the diagnostic as one line, for a document without a file."""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{'.'.join(self.path)}: {self.message}{hint}"


class Diagnostics(list[Diagnostic]):
    """All diagnostics of a document. `trees` holds expressions that are already parsed, by path."""

    def __init__(self, spec: ir.Spec, trees: Mapping[Path, tree.Expression]) -> None:
        super().__init__()
        self.spec = spec
        self._trees = trees

    def add(self, path: Path, message: str, hint: str | None = None) -> None:
        self.append(Diagnostic(path, message, hint))

    def expression(self, path: Path, text: str, scope: ir.RecordType | None) -> ir.Type:
        """Check an expression over messages of type `scope` and return its type."""
        if len(text) > EXPRESSION_CHARS_MAX:
            self.add(path, f"the expression has {len(text)} characters; at most {EXPRESSION_CHARS_MAX} are read")
            return JSON
        try:
            node = self._trees.get(path) or parse_expression(SourceText(".".join(path), text))
        except SpecError as error:
            self.add(path, f"`{text[:200]}` cannot be read: {error}", error.hint)
            return JSON
        type_, faults = infer(node, scope)
        self.extend(Diagnostic(path, fault.message, fault.hint, fault.node) for fault in faults)
        return type_

    def key(self, path: Path, text: str, scope: ir.RecordType | None) -> None:
        """Check an expression whose value is a key."""
        if family(self.expression(path, text, scope)) not in ("string", "int", "json"):
            self.add(path, "a key is a string or a whole number")

    def mapping(self, path: Path, mapping: ir.Mapping, scope: ir.RecordType | None) -> None:
        """Check each field of a mapping, and all of them against the command's input.

        A command that is not declared is handled by workers and takes any input.
        """
        before = len(self)
        given = {name: self.expression((*path, name), text, scope) for name, text in mapping.fields.items()}
        command = self.spec.commands.get(mapping.command)
        if command is None or command.input is None or len(self) > before:
            return
        wanted = command.input.fields
        for name, type_ in given.items():
            if name not in wanted:
                message = f"the input of `{mapping.command}` has no `{name}`"
                self.add((*path, name, "name"), message, suggestion(name, wanted))
            elif why := misfit(type_, wanted[name]):
                self.add((*path, name), f"`{name}` of `{mapping.command}`: {why}")
        for name, type_ in wanted.items():
            if name not in given and not type_.optional:
                self.add(path, f"`{mapping.command}` needs `{name}`, which is not given")

    def has_queue(self, path: Path, name: str) -> bool:
        """Return True if a queue is declared. Otherwise adds a diagnostic and returns False."""
        if name in self.spec.queues:
            return True
        hint = suggestion(name, self.spec.queues) or None
        self.append(Diagnostic(path, f"there is no queue `{name}`", hint, reference=True))
        return False

    def fit(self, path: Path, have: ir.Type, queue: str, *, what: str, hint: str | None = None) -> None:
        """Check that messages of type `have` match the type of a declared queue."""
        wanted = self.spec.queues[queue].message_type
        if wanted is not None and (why := misfit(have, wanted)):
            self.add(path, f"{what} `{queue}`: {why}", hint)

    def variables(self, path: Path, names: tuple[str, ...]) -> None:
        for name in names:
            if not _VARIABLE.fullmatch(name):
                self.add(path, f'"{name[:100]}" is not the name of an environment variable')
