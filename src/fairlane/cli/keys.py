"""Keys of a terminal, one by one as they are pressed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[asyncio.Queue[str]]:
    """A queue of the keys that are pressed; the terminal is as it was when the block ends."""
    import termios
    import tty

    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    pressed: asyncio.Queue[str] = asyncio.Queue()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, lambda: pressed.put_nowait(os.read(descriptor, 1).decode(errors="replace") or "q"))
    try:
        yield pressed
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
