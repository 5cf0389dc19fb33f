"""Full-screen output, key presses and a progress bar on a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

RESIZED = ""
"""Reported as a key when the terminal is resized."""
_BAR = 30


class Screen:
    """The whole terminal, restored when the block ends.

    With `above`, the lines stay at the top while other output, such as a log, scrolls below them.
    """

    def __init__(self, *, above: bool = False) -> None:
        self._above = above
        self._fixed = (0, 0)

    @property
    def columns(self) -> int:
        return os.get_terminal_size(sys.stdout.fileno()).columns

    def __enter__(self) -> Self:
        _write("\x1b[2J" if self._above else "\x1b[?1049h\x1b[?25l")
        return self

    def __exit__(self, *raised: object) -> None:
        _write(f"\x1b[r\x1b[{self._fixed[1]};1H\n" if self._above else "\x1b[?25h\x1b[?1049l")

    def draw(self, lines: Sequence[str]) -> None:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        shown = lines[: rows - 2 if self._above else rows]
        text = "\x1b[H" + "\n".join(f"{line[:columns]}\x1b[K" for line in shown)
        if not self._above:
            _write(f"{text}\x1b[J")
            return
        if self._fixed != (len(shown), rows):
            self._fixed = (len(shown), rows)
            _write(f"\x1b[{len(shown) + 1};{rows}r\x1b[{rows};1H")
        _write(f"\x1b7{text}\x1b8")


@contextmanager
def keys() -> Iterator[asyncio.Queue[str]]:
    """Yield a queue of pressed keys. Restores the terminal when the block ends."""
    import termios
    import tty

    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    pressed: asyncio.Queue[str] = asyncio.Queue()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, lambda: pressed.put_nowait(os.read(descriptor, 1).decode(errors="replace") or "q"))
    loop.add_signal_handler(signal.SIGWINCH, pressed.put_nowait, RESIZED)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class ProgressBar:
    """A progress bar on stderr, cleared when the block ends. Shows nothing without a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._put("")

    def update(self, text: str, done: int, total: int | None) -> None:
        if total:
            full = min(_BAR, _BAR * done // total)
            text = f"{'━' * full}{'─' * (_BAR - full)} {min(100, 100 * done // total):3} %  {text}"
        self._put(text)

    def _put(self, text: str) -> None:
        if self._shown:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            sys.stderr.write(f"\r{text[: width - 1]}\x1b[K")
            sys.stderr.flush()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
