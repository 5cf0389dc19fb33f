"""Open operations: their number, and the rate at which the drain applies them."""

from __future__ import annotations

import asyncio
import contextlib

from fairlane.runtime.rate import RateEstimate

UNKNOWN_SECONDS = 1.0
"""Estimated wait of an operation while the drain rate is unknown."""


class OpenOperations:
    def __init__(self) -> None:
        self.depth = 0
        """Open operations of all brokers: the last count of the store, and changes by this broker since."""
        self.rate = RateEstimate()
        """Rate of operations that are applied."""
        self.changed = asyncio.Event()
        """Set when operations were enqueued."""
        self._fewer = asyncio.Event()

    def counted(self, depth: int) -> None:
        """Take over the number of open operations in the store."""
        self.depth = depth

    def enqueued(self, count: int) -> None:
        """Count new operations, and wake the drain."""
        self.depth += count
        self.changed.set()

    def applied(self, count: int, now: float) -> None:
        self.depth = max(0, self.depth - count)
        self._fewer.set()
        self.rate.record(count, now)

    def estimate(self, position: int) -> float:
        """Return the seconds until an operation at this position of its backlog is applied. Backlogs take turns."""
        seconds = self.rate.seconds_for(max(position, self.depth))
        return UNKNOWN_SECONDS if seconds is None else round(max(0.01, seconds), 2)

    async def wait_below(self, depth: int, seconds: float) -> None:
        """Wait up to `seconds` until fewer than `depth` operations are open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.depth >= depth:
                    self._fewer.clear()
                    await self._fewer.wait()
