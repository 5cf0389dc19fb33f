"""Counters of the pushes of each tenant: totals since the process started, and recent rates."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

LATELY_SECONDS: Final = 60.0
"""Time span of the rates."""
_MARK_SECONDS: Final = 5.0
_MARKS_MAX: Final = 13


class TenantCounts(msgspec.Struct):
    """Pushes of one tenant since the process started."""

    pushes: int = 0
    messages: int = 0
    bytes: int = 0


class TenantRate(NamedTuple):
    """Messages and bytes per second of one tenant."""

    messages: float
    bytes: float


class TenantCounters:
    def __init__(self) -> None:
        self.counts: dict[str, TenantCounts] = {}
        self._marks: deque[tuple[float, dict[str, tuple[int, int]]]] = deque([(time.monotonic(), {})], _MARKS_MAX)
        """Messages and bytes by tenant at past times, oldest first."""

    def of(self, tenant: str) -> TenantCounts:
        return self.counts.setdefault(tenant, TenantCounts())

    def mark(self) -> None:
        """Remember the counts for the rates, at most every five seconds."""
        now = time.monotonic()
        if now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, {name: (one.messages, one.bytes) for name, one in self.counts.items()}))

    def rates(self) -> dict[str, TenantRate]:
        """Return the rates over the last minute, of the tenants that pushed something."""
        now = time.monotonic()
        old = [mark for mark in self._marks if now - mark[0] >= LATELY_SECONDS]
        at, before = old[-1] if old else self._marks[0]
        seconds = max(1.0, now - at)
        rates = {}
        for name, one in self.counts.items():
            messages, size = before.get(name, (0, 0))
            if one.messages > messages:
                rates[name] = TenantRate((one.messages - messages) / seconds, (one.bytes - size) / seconds)
        self.mark()
        return rates


def summed(found: Iterable[dict[str, TenantRate]]) -> dict[str, TenantRate]:
    """Return the rates of several processes together."""
    total: dict[str, TenantRate] = {}
    for rates in found:
        for name, one in rates.items():
            messages, size = total.get(name, (0.0, 0.0))
            total[name] = TenantRate(messages + one.messages, size + one.bytes)
    return total
