"""The formatter, one way to write a spec: two blanks of indentation, one entry per line, comments where they were.

A block that stood on one line stays there while it fits; everything else about the layout is decided here. Formatting
what was formatted changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fairlane.spec import tree
from fairlane.spec.parser import parse
from fairlane.spec.print import print_expression, print_type
from fairlane.spec.source import Source

LINE_CHARS_MAX = 100
_STRINGS_AND_COMMENTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<comment>(?://|#)[^\n]*)')
Item = tree.Import | tree.Entry | tree.Field


class Comment(NamedTuple):
    start: int
    text: str


def format_spec(source: Source) -> str:
    """The same spec in its one form. SpecError if it cannot be read."""
    items = parse(source).items
    return _Formatter(source).file(items)


class _Formatter:
    def __init__(self, source: Source) -> None:
        self._text = source.text
        self._source = source
        self._comments = [
            Comment(found.start(), found.group().rstrip())
            for found in _STRINGS_AND_COMMENTS.finditer(source.text)
            if found.group("comment")
        ]
        self._next = 0
        self._lines: list[str] = []
        self._end = 0
        """Where in the text the last printed thing ended, to see blank lines."""

    def file(self, items: Sequence[Item]) -> str:
        self._items(items, indent=0, until=len(self._text))
        return "".join(f"{line}\n" for line in self._lines)

    def _items(self, items: Sequence[Item], *, indent: int, until: int) -> None:
        for number, item in enumerate(items):
            following = items[number + 1].start if number + 1 < len(items) else until
            self._item(item, indent=indent, following=following)
        self._comments_before(until, indent=indent)

    def _item(self, item: Item, *, indent: int, following: int) -> None:
        head, body, tail = _parts(item)
        line = _on_one_line(item)
        fits = indent + len(line) <= LINE_CHARS_MAX and not self._has_comment(item)
        if body is None or (fits and self._same_line(body.start, body.end)) or not _members(body):
            self._comments_before(item.end, indent=indent)
            self._emit(item.start, indent, line)
        else:
            self._comments_before(body.start, indent=indent)
            self._emit(item.start, indent, f"{head} {{")
            members = _members(body)
            self._end = body.start + 1
            self._trailing(members[0].start)
            first = len(self._lines)
            self._items(members, indent=indent + 2, until=body.end - 1)
            if len(self._lines) > first and not self._lines[first]:
                del self._lines[first]
            self._lines.append(" " * indent + "}" + tail)
        self._end = item.end
        self._trailing(following)

    def _emit(self, start: int, indent: int, text: str) -> None:
        self._blank(start)
        self._lines.append(" " * indent + text)

    def _blank(self, start: int) -> None:
        """At most one empty line where there were some, and none at the beginning."""
        if self._lines and self._lines[-1] and self._text.count("\n", self._end, start) > 1:
            self._lines.append("")

    def _same_line(self, one: int, other: int) -> bool:
        return self._source.position(one)[0] == self._source.position(other)[0]

    def _has_comment(self, item: Item) -> bool:
        return self._next < len(self._comments) and self._comments[self._next].start < item.end

    def _comments_before(self, offset: int, *, indent: int) -> None:
        while self._next < len(self._comments) and self._comments[self._next].start < offset:
            comment = self._comments[self._next]
            self._emit(comment.start, indent, comment.text)
            self._end = max(self._end, comment.start + len(comment.text))
            self._next += 1

    def _trailing(self, following: int) -> None:
        """A comment behind something on its line stays there."""
        if self._next == len(self._comments):
            return
        comment = self._comments[self._next]
        if comment.start < following and self._same_line(comment.start, self._end - 1):
            self._lines[-1] += f"  {comment.text}"
            self._end = comment.start + len(comment.text)
            self._next += 1


def _members(body: tree.Body | tree.RecordType) -> Sequence[Item]:
    return body.entries if isinstance(body, tree.Body) else body.fields


def _parts(item: Item) -> tuple[str, tree.Body | tree.RecordType | None, str]:
    """What stands before the braces of an item, what is in them, and what behind."""
    match item:
        case tree.Section(kind=kind, label=None, body=body):
            return kind.text, body, ""
        case tree.Section(kind=kind, label=tree.Label() as label, body=body):
            return f"{kind.text} {_label(label)}", body, ""
        case tree.Types(name=name, body=fields):
            return name.text, fields, ""
        case tree.Field(name=name, type=tree.RecordType() as fields):
            return f"{name.text}:", fields, ""
        case tree.Field(name=name, type=tree.OptionalType(of=tree.RecordType() as fields)):
            return f"{name.text}:", fields, "?"
        case tree.Setting(name=name, value=tree.Call() as call):
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
        case tree.Setting(name=name, value=value):
            return f"{name.text}: {_value(value)}"
    raise AssertionError(item)


def _value(value: tree.Value) -> str:
    match value:
        case tree.Target(queue=queue):
            return f"queue {_label(queue)}"
        case tree.Request(method=method, url=url):
            return f"http {method.text} {url.text}"
        case tree.Header(name=name):
            return f"header {name.text}"
        case tree.Call():
            raise AssertionError("a call has a body")
    return print_expression(value)


def _label(label: tree.Label) -> str:
    return label.quoted or label.text
