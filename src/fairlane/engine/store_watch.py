"""Whether the store answers, as those who call it found."""

from __future__ import annotations

import asyncio
import logging
import time

log = logging.getLogger(__name__)


class StoreWatch:
    """`up` until somebody found it lost; lost until somebody found it back."""

    def __init__(self) -> None:
        self.up = True
        self.why = ""
        self.outages = 0
        self._lost_at = 0.0
        self._back = asyncio.Event()
        self._back.set()

    def lost(self, why: str) -> None:
        if self.up:
            self.up = False
            self.why = why
            self.outages += 1
            self._lost_at = time.monotonic()
            self._back.clear()
            log.warning("the store does not answer, pushes and acks go to the journal: %s", why)

    def back(self) -> None:
        if not self.up:
            self.up = True
            log.warning("the store answers again after %.1f s", self.away_seconds())
            self._back.set()

    def away_seconds(self) -> float:
        return time.monotonic() - self._lost_at if self.outages else 0.0

    async def wait_back(self, seconds: float) -> bool:
        """Wait for the store, so long at most; whether it is back."""
        try:
            async with asyncio.timeout(seconds):
                await self._back.wait()
        except TimeoutError:
            return False
        return True
