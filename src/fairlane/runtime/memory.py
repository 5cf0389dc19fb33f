"""Memory of a process that handles many small values for many clients: its collector, its allocator, its budget."""

from __future__ import annotations

import contextlib
import ctypes
import gc

SMALL_BYTES_MAX = 64 * 1024
_MMAP_THRESHOLD = -3  # of glibc's mallopt
_MMAP_BYTES_MIN = 1024 * 1024


def ease_collector() -> None:
    """Look for cycles rarely: a flush makes and drops thousands of values, none of them cyclic, and each pass over them
    costs as much as a tenth of the work. What exists at start is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def return_large_blocks() -> None:
    """Have what is large go back to the system when it is freed. By itself glibc learns to keep blocks of up to 32 MiB,
    and a burst of large requests stays in the size of the process."""
    with contextlib.suppress(AttributeError, OSError):  # another allocator
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _MMAP_BYTES_MIN)


class Budget:
    """A budget of bytes for clients: bodies of requests that are received or answered, and answers that wait to be
    read. Bodies that are large leave an eighth of it to small ones, and answers leave a quarter to all bodies: who does
    not read what it asked for, or does not finish what it sends, stops no push of others."""

    __slots__ = ("bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def takes(self, more: int, size: int) -> bool:
        """Whether `more` bytes of a body that has `size` in all, as far as is known, fit in."""
        most = self.bytes_max if size <= SMALL_BYTES_MAX else self.bytes_max * 7 // 8
        return self.used + more <= most

    @property
    def room(self) -> int:
        """For answers."""
        return self.bytes_max * 3 // 4 - self.used
