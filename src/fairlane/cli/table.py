"""Tables for people: columns as wide as they need, and folded where the terminal is not wide enough."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from unicodedata import combining, east_asian_width

from fairlane.cli.output import printable

_GAP = "   "
_LEAST = 8
"""A column is not made narrower than this."""


def lines(columns: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None) -> Iterator[str]:
    """The lines of a table, numbers to the right, without columns in which nothing stands. Who reads from a pipe gets
    whole lines, a terminal those that fit."""
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    filled = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)]
    columns, rows = [columns[at] for at in filled], [[row[at] for at in filled] for row in rows]
    right = [all(isinstance(row[at], int | float | None) for row in rows) for at in range(len(columns))]
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(room, column)) for column in zip(columns, *cells, strict=True)]
    if width is not None:
        _fit(widths, width - len(_GAP) * (len(widths) - 1))
    if any(columns):
        yield from _row(columns, widths, right)
        yield _GAP.join("─" * one for one in widths)
    for row in cells:
        yield from _row(row, widths, right)


def room(text: str) -> int:
    """The columns that a text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_room, text))


def _room(letter: str) -> int:
    return 0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1


def _fit(widths: list[int], wanted: int) -> None:
    """Take from the widest columns what is too much."""
    while sum(widths) > wanted and max(widths) > _LEAST:
        widest, *others = sorted(set(widths), reverse=True)
        at = [number for number, one in enumerate(widths) if one == widest]
        spare = -(-(sum(widths) - wanted) // len(at))
        for number in at:
            widths[number] = max(widest - spare, *others[:1], _LEAST) if others else max(widest - spare, _LEAST)


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    folded = [_folded(text, width) for text, width in zip(row, widths, strict=True)]
    for parts in zip_longest(*folded, fillvalue=""):
        padded = (
            blank + part if to_right else part + blank
            for part, width, to_right in zip(parts, widths, right, strict=True)
            for blank in [" " * (width - room(part))]
        )
        yield _GAP.join(padded).rstrip()


def _folded(text: str, width: int) -> list[str]:
    """The text in parts of at most this width, at blanks where there are some."""
    parts = []
    while room(text) > width:
        end = taken = 0
        while taken + _room(text[end]) <= width:
            taken += _room(text[end])
            end += 1
        blank = text.rfind(" ", 1, end + 1)
        cut = blank if blank > 0 else max(end, 1)
        parts.append(text[:cut])
        text = text[cut:].lstrip(" ")
    return [*parts, text]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return "" if value is None else printable(str(value))
