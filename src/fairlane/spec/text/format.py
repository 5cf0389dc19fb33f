"""The formatter: two spaces of indentation, one entry per line, comments kept in place.

A block on one line stays there while it fits; all other layout is decided here. Formatting is idempotent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, cast

from fairlane.spec.text import tree
from fairlane.spec.text.parser import parse
from fairlane.spec.text.source import SourceText

LINE_CHARS_MAX = 100
_BINDS = {"||": 1, "&&": 2, "in": 3, **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">"), 3)}
_BINDS |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
_UNARY, _POSTFIX = 6, 7
_STRINGS_AND_COMMENTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<comment>(?://|#)[^\n]*)')
Item = tree.Import | tree.Entry | tree.Field


class Comment(NamedTuple):
    start: int
    text: str


def format_spec(source: SourceText) -> str:
    """Return the spec in its canonical form. Raises SpecError if it cannot be parsed."""
    formatter = _Formatter(source)
    formatter.items(parse(source).items, indent=0, until=len(source.text))
    return "".join(f"{line}\n" for line in formatter.lines)


class _Formatter:
    def __init__(self, source: SourceText) -> None:
        self._text = source.text
        self._source = source
        self._comments = [
            Comment(found.start(), found.group().rstrip())
            for found in _STRINGS_AND_COMMENTS.finditer(source.text)
            if found.group("comment")
        ]
        self._next = 0
        self.lines: list[str] = []
        self._end = 0
        """End offset of the last printed item in the source, to detect blank lines."""

    def items(self, items: Sequence[Item], *, indent: int, until: int) -> None:
        for number, item in enumerate(items):
            following = items[number + 1].start if number + 1 < len(items) else until
            self._item(item, indent=indent, following=following)
        self._comments_before(until, indent=indent)

    def _item(self, item: Item, *, indent: int, following: int) -> None:
        head, body, tail = _parts(item)
        line = _on_one_line(item)
        fits = indent + len(line) <= LINE_CHARS_MAX and not self._has_comment(item.end)
        if body is None or (fits and self._same_line(body.start, body.end)) or not _members(body):
            self._comments_before(item.end, indent=indent)
            self._emit(item.start, indent, line)
        else:
            self._comments_before(body.start, indent=indent)
            self._emit(item.start, indent, f"{head} {{")
            members = _members(body)
            self._end = body.start + 1
            self._trailing(members[0].start)
            first = len(self.lines)
            self.items(members, indent=indent + 2, until=body.end - 1)
            if len(self.lines) > first and not self.lines[first]:
                del self.lines[first]
            self.lines.append(" " * indent + "}" + tail)
        self._end = item.end
        self._trailing(following)

    def _emit(self, start: int, indent: int, text: str) -> None:
        """Append a line. Keeps one blank line where the source had some, but none at the start."""
        if self.lines and self.lines[-1] and self._text.count("\n", self._end, start) > 1:
            self.lines.append("")
        self.lines.append(" " * indent + text)

    def _same_line(self, one: int, other: int) -> bool:
        return self._source.position(one)[0] == self._source.position(other)[0]

    def _has_comment(self, before: int) -> bool:
        return self._next < len(self._comments) and self._comments[self._next].start < before

    def _comments_before(self, offset: int, *, indent: int) -> None:
        while self._has_comment(offset):
            comment = self._comments[self._next]
            self._emit(comment.start, indent, comment.text)
            self._end = max(self._end, comment.start + len(comment.text))
            self._next += 1

    def _trailing(self, following: int) -> None:
        """Keep a comment at the end of its line."""
        if self._has_comment(following) and self._same_line(self._comments[self._next].start, self._end - 1):
            comment = self._comments[self._next]
            self.lines[-1] += f"  {comment.text}"
            self._end = comment.start + len(comment.text)
            self._next += 1


def _members(body: tree.Block | tree.RecordTypeNode) -> Sequence[Item]:
    return body.entries if isinstance(body, tree.Block) else body.fields


def _parts(item: Item) -> tuple[str, tree.Block | tree.RecordTypeNode | None, str]:
    """Return the head of an item, its block if it has one, and the text behind the block."""
    match item:
        case tree.Section(kind=kind, label=None, body=body):
            return kind.text, body, ""
        case tree.Section(kind=kind, label=tree.Label() as label, body=body):
            return f"{kind.text} {_label(label)}", body, ""
        case tree.Types(name=name, body=fields):
            return name.text, fields, ""
        case tree.Field(name=name, type=tree.RecordTypeNode() as fields):
            return f"{name.text}:", fields, ""
        case tree.Field(name=name, type=tree.OptionalTypeNode(of=tree.RecordTypeNode() as fields)):
            return f"{name.text}:", fields, "?"
        case tree.Assignment(name=name, value=tree.BlockValue() as call):
            head = _label(call.head) if isinstance(call.head, tree.Label) else print_expression(call.head)
            return f"{name.text}: {'command ' if call.command else ''}{head}", call.body, ""
    return "", None, ""


def _on_one_line(item: Item) -> str:
    head, body, tail = _parts(item)
    if body is not None:
        members = "  ".join(map(_on_one_line, _members(body)))
        return f"{head} {{ {members} }}{tail}" if members else f"{head} {{}}{tail}"
    match item:
        case tree.Import(path=path):
            return f"import {path.text}"
        case tree.Field(name=name, type=type_):
            return f"{name.text}: {print_type(type_)}"
        case tree.Assignment(name=name, value=tree.QueueTarget(queue=queue)):
            return f"{name.text}: queue {_label(queue)}"
        case tree.Assignment(name=name, value=tree.HttpTarget(method=method, url=url)):
            return f"{name.text}: http {method.text} {url.text}"
        case tree.Assignment(name=name, value=tree.Header(name=header)):
            return f"{name.text}: header {header.text}"
        case tree.Assignment(name=name, value=value):
            return f"{name.text}: {print_expression(cast(tree.Expression, value))}"
    raise AssertionError(item)


def _label(label: tree.Label) -> str:
    return label.quoted or label.text


def print_type(node: tree.TypeNode) -> str:
    match node:
        case tree.NamedTypeNode(name=name):
            return name.text
        case tree.GenericTypeNode(name=name, of=of):
            return f"{name.text}<{', '.join(map(print_type, of))}>"
        case tree.EnumTypeNode(name=name, choices=choices):
            return f"{name.text}({', '.join(choice.text for choice in choices)})"
        case tree.OptionalTypeNode(of=inner):
            return f"{print_type(inner)}?"
        case tree.RecordTypeNode(fields=fields):
            inside = "  ".join(f"{field.name.text}: {print_type(field.type)}" for field in fields)
            return f"{{ {inside} }}" if inside else "{}"


def print_expression(node: tree.Expression, binding: int = 0) -> str:
    """Return an expression as text, in parentheses if it binds less strongly than `binding`."""
    own, text = _printed(node)
    return f"({text})" if own < binding else text


def _printed(node: tree.Expression) -> tuple[int, str]:
    match node:
        case tree.Literal(text=text):
            return _POSTFIX + 1, text
        case tree.Name(name=name):
            return _POSTFIX + 1, name
        case tree.Member(of=of, name=word):
            return _POSTFIX, f"{print_expression(of, _POSTFIX)}.{word.text}"
        case tree.Index(of=of, key=key):
            return _POSTFIX, f"{print_expression(of, _POSTFIX)}[{print_expression(key)}]"
        case tree.Function(name=word, target=None, arguments=arguments):
            return _POSTFIX, f"{word.text}({_joined(arguments)})"
        case tree.Function(name=word, target=target, arguments=arguments):
            assert target is not None
            return _POSTFIX, f"{print_expression(target, _POSTFIX)}.{word.text}({_joined(arguments)})"
        case tree.Unary(operator=operator, of=of):
            return _UNARY, f"{operator}{print_expression(of, _UNARY)}"
        case tree.Binary(operator=operator, left=left, right=right):
            own = _BINDS[operator]
            return own, f"{print_expression(left, own)} {operator} {print_expression(right, own + 1)}"
        case tree.Conditional(test=test, then=then, otherwise=otherwise):
            parts = (print_expression(test, 1), print_expression(then, 1), print_expression(otherwise))
            return 0, f"{parts[0]} ? {parts[1]} : {parts[2]}"
        case tree.ListOf(items=items):
            return _POSTFIX, f"[{_joined(items)}]"
        case tree.MapOf(pairs=pairs):
            inside = (f"{print_expression(key)}: {print_expression(value)}" for key, value in pairs)
            return _POSTFIX, f"{{{', '.join(inside)}}}"


def _joined(nodes: tuple[tree.Expression, ...]) -> str:
    return ", ".join(map(print_expression, nodes))
