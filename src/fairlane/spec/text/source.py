"""The text of a spec, and errors that point into it."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property

from fairlane.errors import SpecError

EXCERPT_CHARS_MAX = 160  # show only a part of a longer line


class SourceText:
    """The text of one file. Positions are offsets; errors show lines and columns, both from 1."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(offset + 1 for offset, character in enumerate(self.text) if character == "\n")]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def error(self, message: str, start: int, end: int | None = None, *, hint: str | None = None) -> SpecError:
        """Return an error that points at the text from `start` to `end`."""
        start = min(start, len(self.text))
        line, column = self.position(start)
        excerpt = self._excerpt(line, column, max((end or start) - start, 1))
        return SpecError(message, file=self.name, line=line, column=column, excerpt=excerpt, hint=hint)

    def _excerpt(self, line: int, column: int, length: int) -> str:
        begin = self._line_starts[line - 1]
        end = self.text.find("\n", begin)
        text = self.text[begin:] if end < 0 else self.text[begin:end]
        text = text.rstrip("\r")
        cut = max(0, column - EXCERPT_CHARS_MAX // 2) if len(text) > EXCERPT_CHARS_MAX else 0
        shown = text[cut : cut + EXCERPT_CHARS_MAX]
        before = shown[: column - 1 - cut]
        # Keep tabs, so that the mark is below the right character at any tab width.
        margin = "".join("\t" if character == "\t" else " " for character in before)
        mark = "^" * max(1, min(length, len(shown) - len(before)))
        number = str(line)
        return f"  {number} | {shown}\n  {' ' * len(number)} | {margin}{mark}"


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word: the most similar known word, or all of them."""
    choices = sorted(known)
    close = difflib.get_close_matches(word[:80], choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"expected one of {', '.join(f'`{choice}`' for choice in choices)}" if choices else ""
