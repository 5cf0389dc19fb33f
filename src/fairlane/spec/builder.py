"""The syntax tree, built by the parser rule by rule. Each method is a rule of the grammar, of the same name."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from lark import Token, Transformer

from fairlane.spec import tree

DEPTH_MAX = 100  # nodes beneath each other; also operators in a row
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_DURATION_MAX = 2**53


class Misplaced(Exception):
    """A syntax error: what was read is wrong in itself."""

    def __init__(self, message: str, start: int, end: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.start = start
        self.end = end
        self.hint = hint


Children = list[Any]


class TreeBuilder(Transformer[Token, Any]):
    """Every child is a token or a node; punctuation is among them, which gives each node its place."""

    def file(self, children: Children) -> tree.File:
        return tree.File(items=tuple(children), **_span(children))

    def import_(self, children: Children) -> tree.Import:
        return tree.Import(path=_literal(children[1]), **_span(children))

    def section(self, children: Children) -> tree.Section:
        label = children[1] if isinstance(children[1], tree.Label) else None
        body = _body(children[2 if label else 1 :])
        return tree.Section(kind=_word(children[0]), label=label, body=body, **_span([*children[:1], body]))

    def label(self, children: Children) -> tree.Label:
        [child] = children
        if isinstance(child, tree.Label):
            return child
        return tree.Label(text=str(_literal(child).value), quoted=str(child), **_span(children))

    def path(self, children: Children) -> tree.Label:
        return tree.Label(text="".join(children), **_span(children))

    def setting(self, children: Children) -> tree.Setting:
        return tree.Setting(name=_word(children[0]), value=children[2], **_span(children))

    def call(self, children: Children) -> tree.Call:
        body = _body(children[1:])
        return tree.Call(head=children[0], command=False, body=body, **_span([children[0], body]))

    def mapping(self, children: Children) -> tree.Call:
        body = _body(children[2:])
        return tree.Call(head=children[1], command=True, body=body, **_span([children[0], body]))

    def target(self, children: Children) -> tree.Target:
        return tree.Target(queue=children[1], **_span(children))

    def request(self, children: Children) -> tree.Request:
        return tree.Request(method=_word(children[1]), url=_literal(children[2]), **_span(children))

    def header(self, children: Children) -> tree.Header:
        return tree.Header(name=_literal(children[1]), **_span(children))

    def types(self, children: Children) -> tree.Types:
        body = self.record(children[1:])
        return tree.Types(name=_word(children[0]), body=body, **_span([children[0], body]))

    def field(self, children: Children) -> tree.Field:
        return tree.Field(name=_word(children[0]), type=children[2], **_span(children))

    def optional(self, children: Children) -> tree.OptionalType:
        return tree.OptionalType(of=children[0], **_span(children))

    def named(self, children: Children) -> tree.NamedType:
        return tree.NamedType(name=_word(children[0]), **_span(children))

    def generic(self, children: Children) -> tree.GenericType:
        return tree.GenericType(name=_word(children[0]), of=_nodes(children), **_span(children))

    def enum(self, children: Children) -> tree.EnumType:
        choices = tuple(_literal(child) for child in children if isinstance(child, Token) and child.type == "STRING")
        return tree.EnumType(name=_word(children[0]), choices=choices, **_span(children))

    def record(self, children: Children) -> tree.RecordType:
        return tree.RecordType(fields=_nodes(children), **_span(children))

    def conditional(self, children: Children) -> tree.Conditional:
        test, then, otherwise = _nodes(children)
        return tree.Conditional(test=test, then=then, otherwise=otherwise, **_span(children))

    def binary(self, children: Children) -> tree.Binary:
        left, operator, right = children
        return tree.Binary(operator=str(operator), left=left, right=right, **_span(children))

    def unary(self, children: Children) -> tree.Unary:
        return tree.Unary(operator=str(children[0]), of=children[1], **_span(children))

    def member(self, children: Children) -> tree.Member:
        return tree.Member(of=children[0], name=_word(children[2]), **_span(children))

    def method(self, children: Children) -> tree.Function:
        target, _, name, _, arguments, _ = children
        return tree.Function(name=_word(name), target=target, arguments=tuple(arguments), **_span(children))

    def index(self, children: Children) -> tree.Index:
        return tree.Index(of=children[0], key=children[2], **_span(children))

    def literal(self, children: Children) -> tree.Literal:
        return _literal(children[0])

    def name(self, children: Children) -> tree.Name | tree.Literal:
        [token] = children
        if token in _CONSTANTS:
            return tree.Literal(value=_CONSTANTS[token], text=str(token), **_span(children))
        return tree.Name(name=str(token), **_span(children))

    def function(self, children: Children) -> tree.Function:
        name, _, arguments, _ = children
        return tree.Function(name=_word(name), target=None, arguments=tuple(arguments), **_span(children))

    def group(self, children: Children) -> tree.Expression:
        """Brackets are the place of what they hold, and nothing more: the tree itself has the order."""
        inner: tree.Expression = children[1]
        return type(inner)(**{name: getattr(inner, name) for name in inner.__struct_fields__} | _span(children))

    def list(self, children: Children) -> tree.ListOf:
        return tree.ListOf(items=tuple(children[1]), **_span(children))

    def map(self, children: Children) -> tree.MapOf:
        found = children[1]
        return tree.MapOf(pairs=tuple(zip(found[::2], found[1::2], strict=True)), **_span(children))

    def items(self, children: Children) -> tuple[tree.Node, ...]:
        return _nodes(children)

    pairs = items


def _nodes(children: Children) -> tuple[Any, ...]:
    return tuple(child for child in children if isinstance(child, tree.Node))


def _body(children: Children) -> tree.Body:
    return tree.Body(entries=_nodes(children), **_span(children))


def _span(children: Children) -> Any:
    """The place of a node, and how deep it is."""
    if not children:
        return {"start": 0, "end": 0}
    start, end = _start(children[0]), _end(children[-1])
    depth = 0
    for child in children:
        for node in child if isinstance(child, tuple) else (child,):
            depth = max(depth, node.depth if isinstance(node, tree.Node) else 0)
    if depth >= DEPTH_MAX:
        raise Misplaced(f"this is nested more than {DEPTH_MAX} deep", start, start + 1)
    return {"start": start, "end": end, "depth": depth + 1}


def _start(child: Any) -> int:
    return int(child.start if isinstance(child, tree.Node) else child.start_pos)


def _end(child: Any) -> int:
    return int(child.end if isinstance(child, tree.Node) else child.end_pos)


def _word(token: Token) -> tree.Word:
    return tree.Word(text=str(token), start=_start(token), end=_end(token))


def _literal(token: Token) -> tree.Literal:
    start, end, text = _start(token), _end(token), str(token)
    if token.type == "STRING":
        return tree.Literal(value=_string(text, start), text=text, start=start, end=end)
    if token.type == "DURATION":
        parts = re.findall(r"([0-9]+)([a-z]+)", text)
        if len(text) > 40 or (length := sum(int(count) * _MILLISECONDS[unit] for count, unit in parts)) > _DURATION_MAX:
            raise Misplaced("the duration is too long", start, end)
        return tree.Literal(value=length, text=text, unit=True, start=start, end=end)
    value = float(text) if token.type == "FLOAT" else int(text[:20])
    if not (math.isfinite(value) if isinstance(value, float) else value < 2**63):
        raise Misplaced("the number is too large", start, end)
    return tree.Literal(value=value, text=text, start=start, end=end)


def _string(text: str, start: int) -> str:
    """What a string in quotes stands for: escapes are those of JSON."""
    try:
        value: str = json.loads(text, strict=False)
        value.encode()
    except json.JSONDecodeError as error:
        hint = 'known are \\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u with four hex digits'
        raise Misplaced(
            "the string has an escape that is none", start + error.pos, start + error.pos + 2, hint
        ) from None
    except UnicodeEncodeError:
        raise Misplaced("the string has a lone surrogate, which is not valid text", start, start + len(text)) from None
    return value
