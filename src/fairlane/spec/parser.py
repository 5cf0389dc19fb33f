"""The parser: text to syntax tree, or an error at a line and column."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from fairlane.errors import SpecError
from fairlane.spec.builder import Misplaced, TreeBuilder
from fairlane.spec.source import Source
from fairlane.spec.tree import Expression, File

EXPRESSION_CHARS_MAX = 10_000
SOURCE_CHARS_MAX = 1024 * 1024  # a spec is written by people; more is a mistake, or an attack

_READABLE = {
    "NAME": "a name",
    "STRING": "a string",
    "INT": "a number",
    "METHOD": "an HTTP method",
    "COLON": "`:`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "MORETHAN": "`>`",
    "IMPORT": "`import`",
}
_HINTS = {
    ",": "entries are separated by white space alone",
    ";": "entries are separated by white space alone",
    "=": "a setting is written `name: value`, a comparison `==`",
    "'": "strings stand in double quotes",
    "&": "and is written `&&`",
    "|": "or is written `||`",
}
_BRACES = re.compile(r'"(?:\\.|[^"\\\n])*"|(?://|#)[^\n]*|[{}]')
"""Those in strings and comments are passed over with them."""
_NAME_BEFORE = re.compile(r"[\w.]*$")
_DASHED = re.compile(r"[\w.]+(-[\w.]+)+")


def parse(source: Source) -> File:
    """The tree of a file; SpecError at the first place that cannot be read."""
    tree = _parse(source, "file")
    assert isinstance(tree, File)
    return tree


def parse_expression(source: Source) -> Expression:
    """The tree of one expression alone."""
    tree = _parse(source, "expr")
    assert not isinstance(tree, File)
    return tree


def _parse(source: Source, start: str) -> File | Expression:
    if len(source.text) > SOURCE_CHARS_MAX:
        raise source.error(f"the text has {len(source.text)} characters; at most {SOURCE_CHARS_MAX} are read", 0)
    try:
        tree: Any = _grammar().parse(source.text, start=start)
    except Misplaced as error:
        raise source.error(str(error), error.start, error.end, hint=error.hint) from None
    except UnexpectedInput as error:
        raise _explained(source, error) from None
    return cast("File | Expression", tree)


@cache
def _grammar() -> Lark:
    text = files("fairlane.spec").joinpath("grammar.lark").read_text(encoding="utf-8")
    # The tree is built while the text is read, from the leaves up: no walk over what was nested too deeply.
    return Lark(
        text,
        parser="lalr",
        lexer="contextual",
        start=["file", "expr"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=TreeBuilder(),
    )


def _explained(source: Source, error: UnexpectedInput) -> SpecError:
    offset = error.pos_in_stream if error.pos_in_stream is not None else len(source.text)
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        missing = _missing(error.accepts or error.expected)
        return source.error(f"the text ends too early{missing}", len(source.text.rstrip()), hint=_unclosed(source.text))
    if isinstance(error, UnexpectedToken):
        token: Token = error.token
        shown = str(token) if len(token) <= 40 else f"{token[:40]}..."
        hint = _hint(source.text, offset)
        return source.error(f"`{shown}` cannot stand here{_missing(error.expected)}", offset, token.end_pos, hint=hint)
    assert isinstance(error, UnexpectedCharacters)
    character = source.text[offset]
    if character == '"':
        return source.error("the string is not closed on its line", offset)
    hint = _hint(source.text, offset)
    return source.error(f"`{character}` cannot stand here{_missing(error.allowed)}", offset, hint=hint)


def _hint(text: str, offset: int) -> str | None:
    if dashed := _dashed(text, offset):
        return f'a name with `-` in it stands in quotes: "{dashed}"'
    return _HINTS.get(text[offset : offset + 1])


def _dashed(text: str, offset: int) -> str | None:
    """The name around this place, if a dash of it stands here."""
    if text[offset : offset + 1] != "-":
        return None
    begin = offset - len(_NAME_BEFORE.search(text[:offset])[0])  # type: ignore[index]  # it may be empty, but is found
    name = _DASHED.match(text, begin)
    return name[0] if name is not None and name.end() > offset > begin else None


def _unclosed(text: str) -> str | None:
    """Which block the end of the text should have closed."""
    opened: list[int] = []
    for found in _BRACES.finditer(text):
        if found[0] == "{":
            opened.append(found.start())
        elif found[0] == "}" and opened:
            opened.pop()
    if not opened:
        return None
    line = text.count("\n", 0, opened[-1]) + 1
    return f"the `{{` of line {line} is not closed"


def _missing(expected: set[str] | None) -> str:
    """What would have been right, where that is little enough to help."""
    readable = sorted(_READABLE[name] for name in expected or () if name in _READABLE)
    return f"; expected {' or '.join(readable)}" if 0 < len(readable) <= 4 else ""
