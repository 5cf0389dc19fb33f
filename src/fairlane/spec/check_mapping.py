"""The check of mappings: expressions against the types of messages and commands."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.errors import SpecError
from fairlane.spec import ir, tree
from fairlane.spec.finding import Finding
from fairlane.spec.fits import JSON, misfit
from fairlane.spec.infer import infer
from fairlane.spec.parser import EXPRESSION_CHARS_MAX, parse_expression
from fairlane.spec.source import Source, suggestion
from fairlane.spec.spec_file import Path


class Expressions:
    """Checks expressions and keeps what it finds."""

    def __init__(self, trees: Mapping[Path, tree.Expression]) -> None:
        self._trees = trees
        self.findings: list[Finding] = []

    def type(self, path: Path, text: str, scope: ir.RecordType | None) -> ir.Type:
        """The type of an expression over messages of type `scope`."""
        if len(text) > EXPRESSION_CHARS_MAX:
            message = f"the expression has {len(text)} characters; at most {EXPRESSION_CHARS_MAX} are read"
            self.findings.append(Finding(path, message))
            return JSON
        node = self._trees.get(path)
        try:
            node = node or parse_expression(Source(".".join(path), text))
        except SpecError as error:
            self.findings.append(Finding(path, f"`{text[:200]}` cannot be read: {error}", error.hint))
            return JSON
        type_, faults = infer(node, scope)
        self.findings += [Finding(path, fault.message, fault.hint, fault.node) for fault in faults]
        return type_

    def mapping(self, spec: ir.Spec, path: Path, mapping: ir.Mapping, scope: ir.RecordType | None) -> None:
        """The fields of a mapping, each for itself, and all of them against the command's input.

        A command that is not declared is an open name for workers, and takes anything.
        """
        before = len(self.findings)
        given = {name: self.type((*path, name), text, scope) for name, text in mapping.fields.items()}
        command = spec.commands.get(mapping.command)
        wanted = command.input if command else None
        if wanted is not None and len(self.findings) == before:
            self._against_input(path, mapping, given, wanted)

    def _against_input(self, path: Path, mapping: ir.Mapping, given: dict[str, ir.Type], wanted: ir.RecordType) -> None:
        for name, type_ in given.items():
            if name not in wanted.fields:
                hint = suggestion(name, wanted.fields)
                message = f"the input of `{mapping.command}` has no `{name}`"
                self.findings.append(Finding((*path, name, "name"), message, hint))
            elif why := misfit(type_, wanted.fields[name]):
                self.findings.append(Finding((*path, name), f"`{name}` of `{mapping.command}`: {why}"))
        for name, type_ in wanted.fields.items():
            if name not in given and not type_.optional:
                self.findings.append(Finding(path, f"`{mapping.command}` needs `{name}`, which is not given"))
