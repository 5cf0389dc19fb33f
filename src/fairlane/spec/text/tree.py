"""The syntax tree: what a file says, where it says it, and nothing about what it means."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Node(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    end: int
    """The node is the text from `start` to `end`."""
    depth: int = 1
    """Nodes beneath each other. The parser bounds it, so that walks over a tree never run out of stack."""


class Word(Node, frozen=True, kw_only=True):
    text: str


class Label(Node, frozen=True, kw_only=True):
    """The name of what a section declares, and as it was written if that was in quotes."""

    text: str
    quoted: str | None = None


class Literal(Node, frozen=True, kw_only=True):
    value: str | int | float | bool | None
    text: str
    """As it was written."""
    unit: bool = False
    """It is a duration; `value` is in milliseconds."""


class Name(Node, frozen=True, kw_only=True):
    name: str


class Member(Node, frozen=True, kw_only=True):
    of: Expression
    name: Word


class Index(Node, frozen=True, kw_only=True):
    of: Expression
    key: Expression


class Function(Node, frozen=True, kw_only=True):
    """`size(x)`, or with a target `x.startsWith(y)`."""

    name: Word
    target: Expression | None = None
    arguments: tuple[Expression, ...]


class Unary(Node, frozen=True, kw_only=True):
    operator: str
    of: Expression


class Binary(Node, frozen=True, kw_only=True):
    operator: str
    left: Expression
    right: Expression


class Conditional(Node, frozen=True, kw_only=True):
    test: Expression
    then: Expression
    otherwise: Expression


class ListOf(Node, frozen=True, kw_only=True):
    items: tuple[Expression, ...]


class MapOf(Node, frozen=True, kw_only=True):
    pairs: tuple[tuple[Expression, Expression], ...]


Expression: TypeAlias = Literal | Name | Member | Index | Function | Unary | Binary | Conditional | ListOf | MapOf


class NamedType(Node, frozen=True, kw_only=True):
    name: Word


class GenericType(Node, frozen=True, kw_only=True):
    name: Word
    of: tuple[TypeNode, ...]


class EnumType(Node, frozen=True, kw_only=True):
    name: Word
    choices: tuple[Literal, ...]


class RecordType(Node, frozen=True, kw_only=True):
    fields: tuple[Field, ...]


class OptionalType(Node, frozen=True, kw_only=True):
    of: TypeNode


TypeNode: TypeAlias = NamedType | GenericType | EnumType | RecordType | OptionalType


class Field(Node, frozen=True, kw_only=True):
    name: Word
    type: TypeNode


class Types(Node, frozen=True, kw_only=True):
    """`message_type { ... }` or `input { ... }`."""

    name: Word
    body: RecordType


class Body(Node, frozen=True, kw_only=True):
    """Entries between braces, which are its first and last character."""

    entries: tuple[Entry, ...]


class Call(Node, frozen=True, kw_only=True):
    """`pagerduty { ... }`, or `command Incident.Create { ... }` if `command` is set."""

    head: Expression | Label
    command: bool
    body: Body


class Target(Node, frozen=True, kw_only=True):
    """`queue Other`"""

    queue: Label


class Request(Node, frozen=True, kw_only=True):
    """`http POST "https://..."`"""

    method: Word
    url: Literal


class Header(Node, frozen=True, kw_only=True):
    """`header "X-Webhook-Id"`"""

    name: Literal


Value: TypeAlias = Expression | Call | Target | Request | Header


class Setting(Node, frozen=True, kw_only=True):
    name: Word
    value: Value


class Section(Node, frozen=True, kw_only=True):
    kind: Word
    label: Label | None
    body: Body


Entry: TypeAlias = Setting | Types | Section


class Import(Node, frozen=True, kw_only=True):
    path: Literal


class File(Node, frozen=True, kw_only=True):
    items: tuple[Import | Section, ...]


def keys_of(node: object, *, index: bool = False) -> tuple[str, ...]:
    """`a.b.c` as its keys, with `index` also `a["b"]`; none if it is another expression."""
    match node:
        case Name(name=name):
            return (name,)
        case Member(of=of, name=Word(text=key)):
            pass
        case Index(of=of, key=Literal(value=str(key))) if index:
            pass
        case _:
            return ()
    before = keys_of(of, index=index)
    return (*before, key) if before else ()
