"""The syntax tree: the structure of a file and its positions, without meaning."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class SyntaxNode(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    end: int
    """A node of the syntax tree, which covers the text from `start` to `end`."""
    depth: int = 1
    """Depth of nested nodes. The parser limits it, so that walks over a tree never overflow the stack."""


class Word(SyntaxNode, frozen=True, kw_only=True):
    text: str


class Label(SyntaxNode, frozen=True, kw_only=True):
    """A section name. `quoted` is its source text if it was written in quotes."""

    text: str
    quoted: str | None = None


class Literal(SyntaxNode, frozen=True, kw_only=True):
    value: str | int | float | bool | None
    text: str
    """A literal with its source text."""
    unit: bool = False
    """True if the literal is a duration. `value` is then in milliseconds."""


class Name(SyntaxNode, frozen=True, kw_only=True):
    name: str


class Member(SyntaxNode, frozen=True, kw_only=True):
    of: Expression
    name: Word


class Index(SyntaxNode, frozen=True, kw_only=True):
    of: Expression
    key: Expression


class Function(SyntaxNode, frozen=True, kw_only=True):
    """A call: `size(x)`, or with a target `x.startsWith(y)`."""

    name: Word
    target: Expression | None = None
    arguments: tuple[Expression, ...]


class Unary(SyntaxNode, frozen=True, kw_only=True):
    operator: str
    of: Expression


class Binary(SyntaxNode, frozen=True, kw_only=True):
    operator: str
    left: Expression
    right: Expression


class Conditional(SyntaxNode, frozen=True, kw_only=True):
    test: Expression
    then: Expression
    otherwise: Expression


class ListOf(SyntaxNode, frozen=True, kw_only=True):
    items: tuple[Expression, ...]


class MapOf(SyntaxNode, frozen=True, kw_only=True):
    pairs: tuple[tuple[Expression, Expression], ...]


Expression: TypeAlias = Literal | Name | Member | Index | Function | Unary | Binary | Conditional | ListOf | MapOf


class NamedTypeNode(SyntaxNode, frozen=True, kw_only=True):
    name: Word


class GenericTypeNode(SyntaxNode, frozen=True, kw_only=True):
    name: Word
    of: tuple[TypeNode, ...]


class EnumTypeNode(SyntaxNode, frozen=True, kw_only=True):
    name: Word
    choices: tuple[Literal, ...]


class RecordTypeNode(SyntaxNode, frozen=True, kw_only=True):
    fields: tuple[Field, ...]


class OptionalTypeNode(SyntaxNode, frozen=True, kw_only=True):
    of: TypeNode


TypeNode: TypeAlias = NamedTypeNode | GenericTypeNode | EnumTypeNode | RecordTypeNode | OptionalTypeNode


class Field(SyntaxNode, frozen=True, kw_only=True):
    name: Word
    type: TypeNode


class Types(SyntaxNode, frozen=True, kw_only=True):
    """A type block: `message_type { ... }` or `input { ... }`."""

    name: Word
    body: RecordTypeNode


class Block(SyntaxNode, frozen=True, kw_only=True):
    """A block of entries in braces. The node includes the braces."""

    entries: tuple[Entry, ...]


class BlockValue(SyntaxNode, frozen=True, kw_only=True):
    """A value with a block: `pagerduty { ... }`, or `command Incident.Create { ... }` if `command` is set."""

    head: Expression | Label
    command: bool
    body: Block


class QueueTarget(SyntaxNode, frozen=True, kw_only=True):
    """A target queue: `queue Other`."""

    queue: Label


class HttpTarget(SyntaxNode, frozen=True, kw_only=True):
    """A target URL: `http POST "https://..."`."""

    method: Word
    url: Literal


class Header(SyntaxNode, frozen=True, kw_only=True):
    """A reference to a header: `header "X-Webhook-Id"`."""

    name: Literal


Value: TypeAlias = Expression | BlockValue | QueueTarget | HttpTarget | Header


class Assignment(SyntaxNode, frozen=True, kw_only=True):
    name: Word
    value: Value


class Section(SyntaxNode, frozen=True, kw_only=True):
    kind: Word
    label: Label | None
    body: Block


Entry: TypeAlias = Assignment | Types | Section


class Import(SyntaxNode, frozen=True, kw_only=True):
    path: Literal


class File(SyntaxNode, frozen=True, kw_only=True):
    items: tuple[Import | Section, ...]


def keys_of(node: object, *, index: bool = False) -> tuple[str, ...]:
    """Return the keys of a path such as `a.b.c`, with `index` also of `a["b"]`.

    Returns nothing for other expressions.
    """
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
