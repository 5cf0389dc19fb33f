"""Memory of a broker process: garbage collector, allocator and the byte budget of requests."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

SMALL_BYTES_MAX = 64 * 1024
_MMAP_THRESHOLD = -3  # a parameter of glibc's mallopt
_MMAP_BYTES_MIN = 1024 * 1024


def collect_rarely() -> None:
    """Make the garbage collector look for cycles less often.

    The start creates tens of thousands of objects that stay, and a flush creates and drops thousands of acyclic ones.
    With the default settings a fifth of the CPU time of the start, and a tenth of that of flushes, goes into looking
    for cycles among them.
    """
    gc.set_threshold(100_000, 20, 50)


def exempt_from_collection() -> None:
    """Make the garbage collector never look at the objects that exist now. The start leaves hardly any cycles."""
    gc.freeze()


def return_large_blocks() -> None:
    """Make the allocator return large blocks to the system when they are freed.

    By default glibc keeps blocks of up to 32 MiB, so a burst of large requests would enlarge the process for good.
    """
    with contextlib.suppress(AttributeError, OSError):  # another allocator
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _MMAP_BYTES_MIN)


class ByteBudget:
    """A budget of bytes for request bodies and unread answers.

    Large bodies leave an eighth of it to small ones, and answers leave a quarter to bodies. So clients that do not read
    their answers, or do not finish their requests, never block the pushes of others.
    """

    __slots__ = ("bytes_max", "used")

    def __init__(self, bytes_max: int = sys.maxsize) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def limit(self, bytes_max: int) -> None:
        """Set the limit, which a server does when it starts."""
        self.bytes_max = bytes_max

    def fits(self, more: int, size: int) -> bool:
        """Return True if `more` bytes of a body of `size` bytes fit in."""
        most = self.bytes_max if size <= SMALL_BYTES_MAX else self.bytes_max * 7 // 8
        return self.used + more <= most

    @property
    def answer_bytes_free(self) -> int:
        """Bytes left for answers."""
        return self.bytes_max * 3 // 4 - self.used
