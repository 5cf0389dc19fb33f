"""The parser: turns text into a syntax tree, or raises an error with line and column."""

from __future__ import annotations

from typing import cast

from fairlane.spec.text import tree
from fairlane.spec.text.source import SourceText

EXPRESSION_CHARS_MAX = 10_000
SOURCE_CHARS_MAX = 1024 * 1024  # specs are written by people: a longer text is a mistake or an attack
DEPTH_MAX = 100  # limits nested nodes, and operators in a row


def parse(source: SourceText) -> tree.File:
    """Parse a file. Raises SpecError at the first syntax error."""
    return cast(tree.File, _parse(source, "file"))


def parse_expression(source: SourceText) -> tree.Expression:
    """Parse a single expression."""
    return cast(tree.Expression, _parse(source, "expr"))


def _parse(source: SourceText, start: str) -> tree.File | tree.Expression:
    if len(source.text) > SOURCE_CHARS_MAX:
        raise source.error(f"the text has {len(source.text)} characters; at most {SOURCE_CHARS_MAX} are read", 0)
    from fairlane.spec.text import lalr  # here, because a broker without specs starts faster without it

    return lalr.parse(source, start)
