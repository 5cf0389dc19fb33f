"""The grammar and the tree builder, based on lark. `parser.py` imports this module when it parses its first text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, cast

import msgspec

from fairlane.errors import SpecError
from fairlane.extras import MissingExtra
from fairlane.spec.text import tree
from fairlane.spec.text.parser import DEPTH_MAX
from fairlane.spec.text.source import SourceText

try:
    from lark import Lark, Token, Transformer
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
except ModuleNotFoundError as error:
    raise MissingExtra("reading a spec", "worker", error.name) from None

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_DURATION_MAX = 2**53
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
    "'": "strings are written in double quotes",
    "&": "`and` is written `&&`",
    "|": "or is written `||`",
}
_BRACES = re.compile(r'"(?:\\.|[^"\\\n])*"|(?://|#)[^\n]*|[{}]')
"""Matches braces, and skips strings and comments."""
_NAME_BEFORE = re.compile(r"[\w.]*$")
_DASHED = re.compile(r"[\w.]+(-[\w.]+)+")


def parse(source: SourceText, start: str) -> tree.File | tree.Expression:
    """Parse a text by the rule `start`. Raises SpecError at the first syntax error."""
    try:
        return cast(tree.File | tree.Expression, _grammar().parse(source.text, start=start))
    except Misplaced as error:
        raise source.error(str(error), error.start, error.end, hint=error.hint) from None
    except UnexpectedInput as error:
        raise _explained(source, error) from None


@cache
def _grammar() -> Lark:
    text = files("fairlane.spec.text").joinpath("grammar.lark").read_text(encoding="utf-8")
    # The tree is built bottom-up while parsing, so text that is nested too deeply is never walked.
    return Lark(
        text,
        parser="lalr",
        lexer="contextual",
        start=["file", "expr"],
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=TreeBuilder(),
    )


def _explained(source: SourceText, error: UnexpectedInput) -> SpecError:
    text = source.text
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        missing = _missing(error.accepts or error.expected)
        return source.error(f"unexpected end of the text{missing}", len(text.rstrip()), hint=_unclosed(text))
    offset = error.pos_in_stream if error.pos_in_stream is not None else len(text)
    if isinstance(error, UnexpectedToken):
        shown, end, expected = str(error.token), error.token.end_pos, error.expected
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
    else:
        assert isinstance(error, UnexpectedCharacters)
        shown, end, expected = text[offset], None, error.allowed
        if shown == '"':
            return source.error("the string is not closed on its line", offset)
    hint = _HINTS.get(text[offset : offset + 1])
    if text[offset : offset + 1] == "-":
        begin = offset - len(_NAME_BEFORE.search(text[:offset])[0])  # type: ignore[index]  # it may be empty, but is found
        name = _DASHED.match(text, begin)
        if name is not None and name.end() > offset > begin:
            hint = f'a name with `-` in it must be quoted: "{name[0]}"'
    return source.error(f"unexpected `{shown}`{_missing(expected)}", offset, end, hint=hint)


def _unclosed(text: str) -> str | None:
    """Return a hint about the block that is still open at the end of the text."""
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
    """Return a list of what the grammar expected, if that list is short enough to help."""
    readable = sorted(_READABLE[name] for name in expected or () if name in _READABLE)
    return f"; expected {' or '.join(readable)}" if 0 < len(readable) <= 4 else ""


class Misplaced(Exception):
    """A token that is valid for the grammar but wrong in itself."""

    def __init__(self, message: str, start: int, end: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.start = start
        self.end = end
        self.hint = hint


Children = list[Any]


class TreeBuilder(Transformer[Token, Any]):
    """Builds the tree rule by rule, including the rules of `_PLAIN`.

    Children are tokens or nodes. Punctuation is among them and gives each node its position.
    """

    def file(self, children: Children) -> tree.File:
        return tree.File(items=tuple(children), **_span(children))

    def section(self, children: Children) -> tree.Section:
        label = children[1] if isinstance(children[1], tree.Label) else None
        body = _body(children[2 if label else 1 :])
        return tree.Section(kind=_word(children[0]), label=label, body=body, **_span([children[0], body]))

    def label(self, children: Children) -> tree.Label:
        [child] = children
        if isinstance(child, tree.Label):
            return child
        return tree.Label(text=str(_literal(child).value), quoted=str(child), **_span(children))

    def path(self, children: Children) -> tree.Label:
        return tree.Label(text="".join(children), **_span(children))

    def call(self, children: Children) -> tree.BlockValue:
        body = _body(children[1:])
        return tree.BlockValue(head=children[0], command=False, body=body, **_span([children[0], body]))

    def mapping(self, children: Children) -> tree.BlockValue:
        body = _body(children[2:])
        return tree.BlockValue(head=children[1], command=True, body=body, **_span([children[0], body]))

    def types(self, children: Children) -> tree.Types:
        body = self.record(children[1:])
        return tree.Types(name=_word(children[0]), body=body, **_span([children[0], body]))

    def record(self, children: Children) -> tree.RecordTypeNode:
        return tree.RecordTypeNode(fields=_nodes(children), **_span(children))

    def generic(self, children: Children) -> tree.GenericTypeNode:
        return tree.GenericTypeNode(name=_word(children[0]), of=_nodes(children), **_span(children))

    def enum(self, children: Children) -> tree.EnumTypeNode:
        choices = tuple(_literal(child) for child in children if isinstance(child, Token) and child.type == "STRING")
        return tree.EnumTypeNode(name=_word(children[0]), choices=choices, **_span(children))

    def literal(self, children: Children) -> tree.Literal:
        return _literal(children[0])

    def name(self, children: Children) -> tree.Name | tree.Literal:
        [token] = children
        if token in _CONSTANTS:
            return tree.Literal(value=_CONSTANTS[token], text=str(token), **_span(children))
        return tree.Name(name=str(token), **_span(children))

    def group(self, children: Children) -> tree.Expression:
        """Return the expression in parentheses, with the position of the parentheses."""
        return cast(tree.Expression, msgspec.structs.replace(children[1], **_span(children)))

    def map(self, children: Children) -> tree.MapOf:
        found = children[1]
        return tree.MapOf(pairs=tuple(zip(found[::2], found[1::2], strict=True)), **_span(children))

    def items(self, children: Children) -> tuple[Any, ...]:
        return _nodes(children)

    pairs = items


# Rules whose children are the fields of their node, by name. None is punctuation.
_PLAIN: dict[str, tuple[type[tree.SyntaxNode], tuple[str | None, ...]]] = {
    "import_": (tree.Import, (None, "path")),
    "setting": (tree.Assignment, ("name", None, "value")),
    "target": (tree.QueueTarget, (None, "queue")),
    "request": (tree.HttpTarget, (None, "method", "url")),
    "header": (tree.Header, (None, "name")),
    "field": (tree.Field, ("name", None, "type")),
    "optional": (tree.OptionalTypeNode, ("of", None)),
    "named": (tree.NamedTypeNode, ("name",)),
    "conditional": (tree.Conditional, ("test", None, "then", None, "otherwise")),
    "binary": (tree.Binary, ("left", "operator", "right")),
    "unary": (tree.Unary, ("operator", "of")),
    "member": (tree.Member, ("of", None, "name")),
    "method": (tree.Function, ("target", None, "name", None, "arguments", None)),
    "function": (tree.Function, ("name", None, "arguments", None)),
    "index": (tree.Index, ("of", None, "key", None)),
    "list": (tree.ListOf, (None, "items", None)),
}


def _plain(
    node: type[tree.SyntaxNode], fields: tuple[str | None, ...]
) -> Callable[[TreeBuilder, Children], tree.SyntaxNode]:
    def build(builder: TreeBuilder, children: Children) -> tree.SyntaxNode:
        named = {name: _field(child) for name, child in zip(fields, children, strict=True) if name is not None}
        return node(**named, **_span(children))

    return build


def _field(child: Any) -> Any:
    if not isinstance(child, Token):
        return child
    return _literal(child) if child.type == "STRING" else _word(child) if child.type in _WORDS else str(child)


_WORDS = ("NAME", "METHOD")
for _rule, _node in _PLAIN.items():
    setattr(TreeBuilder, _rule, _plain(*_node))


def _nodes(children: Children) -> tuple[Any, ...]:
    return tuple(child for child in children if isinstance(child, tree.SyntaxNode))


def _body(children: Children) -> tree.Block:
    return tree.Block(entries=_nodes(children), **_span(children))


def _span(children: Children) -> Any:
    """Return the position and depth of a node."""
    if not children:
        return {"start": 0, "end": 0}
    start, end = _start(children[0]), _end(children[-1])
    depth = 0
    for child in children:
        for node in child if isinstance(child, tuple) else (child,):
            depth = max(depth, node.depth if isinstance(node, tree.SyntaxNode) else 0)
    if depth >= DEPTH_MAX:
        raise Misplaced(f"this is nested more than {DEPTH_MAX} deep", start, start + 1)
    return {"start": start, "end": end, "depth": depth + 1}


def _start(child: Any) -> int:
    return int(child.start if isinstance(child, tree.SyntaxNode) else child.start_pos)


def _end(child: Any) -> int:
    return int(child.end if isinstance(child, tree.SyntaxNode) else child.end_pos)


def _word(token: Token) -> tree.Word:
    return tree.Word(text=str(token), start=_start(token), end=_end(token))


def _literal(token: Token) -> tree.Literal:
    start, end, text = _start(token), _end(token), str(token)
    if token.type == "STRING":
        try:
            value: Any = json.loads(text, strict=False)  # the escapes are the same as in JSON
            value.encode()
        except json.JSONDecodeError as error:
            at, hint = (
                start + error.pos,
                'expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four hex digits',
            )
            raise Misplaced("the string has an invalid escape", at, at + 2, hint) from None
        except UnicodeEncodeError:
            raise Misplaced("the string has a lone surrogate, which is not valid text", start, end) from None
        return tree.Literal(value=value, text=text, start=start, end=end)
    if token.type == "DURATION":
        parts = re.findall(r"([0-9]+)([a-z]+)", text)
        if len(text) > 40 or (length := sum(int(count) * _MILLISECONDS[unit] for count, unit in parts)) > _DURATION_MAX:
            raise Misplaced("the duration is too long", start, end)
        return tree.Literal(value=length, text=text, unit=True, start=start, end=end)
    value = float(text) if token.type == "FLOAT" else int(text[:20])
    if not (math.isfinite(value) if isinstance(value, float) else value < 2**63):
        raise Misplaced("the number is too large", start, end)
    return tree.Literal(value=value, text=text, start=start, end=end)
