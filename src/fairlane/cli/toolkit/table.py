"""Tables for people. Columns are as wide as needed, and wrapped to fit the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from unicodedata import combining, east_asian_width

from fairlane.cli.toolkit.output import printable

_GAP = "   "
_WIDTH_MIN = 8
"""Minimum width of a column."""


def lines(columns: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table, with numbers aligned right and empty columns left out.

    Without `width`, lines are wrapped to the width of the terminal, and not wrapped in a pipe.
    """
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    filled = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)]
    columns, rows = [columns[at] for at in filled], [[row[at] for at in filled] for row in rows]
    right = [all(isinstance(row[at], int | float | None) for row in rows) for at in range(len(columns))]
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(columns, *cells, strict=True)]
    if width is not None:
        _fit(widths, width - len(_GAP) * (len(widths) - 1))
    if any(columns):
        yield from _row(columns, widths, right)
        yield _GAP.join("─" * one for one in widths)
    for row in cells:
        yield from _row(row, widths, right)


def display_width(text: str) -> int:
    """Return the width of a text on a terminal."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(letter: str) -> int:
    return 0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1


def _fit(widths: list[int], wanted: int) -> None:
    """Shrink the widest columns until the table fits."""
    while sum(widths) > wanted and max(widths) > _WIDTH_MIN:
        widest, *others = sorted(set(widths), reverse=True)
        at = [number for number, one in enumerate(widths) if one == widest]
        spare = -(-(sum(widths) - wanted) // len(at))
        for number in at:
            widths[number] = max(widest - spare, *others[:1], _WIDTH_MIN) if others else max(widest - spare, _WIDTH_MIN)


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    folded = [_wrap(text, width) for text, width in zip(row, widths, strict=True)]
    for parts in zip_longest(*folded, fillvalue=""):
        padded = (
            blank + part if to_right else part + blank
            for part, width, to_right in zip(parts, widths, right, strict=True)
            for blank in [" " * (width - display_width(part))]
        )
        yield _GAP.join(padded).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    """Wrap a text to this width, at spaces where possible."""
    parts = []
    while display_width(text) > width:
        end = taken = 0
        while taken + _char_width(text[end]) <= width:
            taken += _char_width(text[end])
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
