"""The wall clock, which nobody else reads."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Microseconds since 1970."""


def wall_clock() -> int:
    return time.time_ns() // 1000


def steady_clock(least: int = 0) -> Clock:
    """A clock that begins at the wall clock, but not before `least`, and then runs by the monotonic one.

    A store that keeps the time itself uses it: leases must not end early, nor never, because somebody set the
    host's clock."""
    offset = max(wall_clock(), least) - time.monotonic_ns() // 1000
    return lambda: offset + time.monotonic_ns() // 1000
