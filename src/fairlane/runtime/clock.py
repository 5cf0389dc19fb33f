"""The wall clock. No other module reads it."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Function that returns microseconds since 1970."""


def wall_clock() -> int:
    return time.time_ns() // 1000


def steady_clock(least: int = 0) -> Clock:
    """Return a clock that starts at the wall clock, but not before `least`, and then follows the monotonic clock.

    A store that keeps its own time uses it, so that changes of the host's clock neither shorten nor extend leases.
    """
    offset = max(wall_clock(), least) - time.monotonic_ns() // 1000
    return lambda: offset + time.monotonic_ns() // 1000
