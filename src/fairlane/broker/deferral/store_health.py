"""Store health: the result of health checks.

The store is unavailable only if a health check got no answer. A locked lane, a slow flush or a failed statement is a
problem of one lane or one request.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from fairlane.errors import FairlaneError
from fairlane.store.contract.store import Store

PING_SECONDS = 1.0
"""Interval of health checks while the store is unavailable."""
RECENT_SECONDS = 60.0
"""Time for which the last error of a store that answers is reported."""
LATE_SECONDS = 0.05
"""A timer that fires later than this means that this process stalled, and could not have received an answer."""

log = logging.getLogger(__name__)


class StoreHealth:
    """The health of the store: `up` until a health check gets no answer, and again once one does."""

    def __init__(self, store: Store) -> None:
        self.up = True
        self.why = ""
        """The last error of the store while it is unavailable."""
        self.outages = 0
        self._store = store
        self._error = ""
        """Error of the last health check; empty if it was answered."""
        self._asking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._failed_with, self._failed_at = "", float("-inf")
        self._lost_at = self._answered_at = 0.0
        self._back = asyncio.Event()
        self._back.set()

    async def check(self, why: str, seconds: float) -> bool:
        """Check the store because of `why`. Returns False if it does not answer within `seconds`."""
        if self.up and not await self.answers(seconds):
            self.mark_unavailable(why)
        if self.up:
            self._failed_with, self._failed_at = why.partition("\n")[0], monotonic()
        return self.up

    def last_error(self) -> str | None:
        """Return the error of the store while it is unavailable, or of the last minute if it answers.

        A store whose disk is full may answer health checks, and refuse every message. If it ends then, this names both
        errors: that it cannot be reached, and why it refused messages before.
        """
        if not self.up:
            before = self._failed_with if self._lost_at - self._failed_at < RECENT_SECONDS else self.why
            return self.why if before in self.why else f"{self.why}; its last error was: {before}"
        return self._failed_with if monotonic() - self._failed_at < RECENT_SECONDS else None

    async def healthy(self, seconds: float, *, journalled: bool) -> bool:
        """Return True if the store committed a write within the last second.

        With a journal, a store that does not answer counts as unavailable from now on, so that pushes and acks need not
        find out themselves.
        """
        if not self.up:
            return False
        if monotonic() - self._answered_at < PING_SECONDS:
            return True
        if not await self.answers(seconds):
            if journalled:
                self.mark_unavailable("it did not commit a write in time")
            return False
        return True

    async def answers(self, seconds: float) -> bool:
        """Return True if the store answers within `seconds`. Concurrent callers share one health check."""
        give_up_at = monotonic() + seconds
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ping())
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        asking = self._asking
        while not asking.done() and (left := give_up_at - monotonic()) > 0:
            await asyncio.wait([asking], timeout=left)
            late = monotonic() - give_up_at
            give_up_at += late if late > LATE_SECONDS else 0.0
        return asking.done() and not asking.cancelled() and asking.exception() is None

    async def _ping(self) -> None:
        try:
            await self._store.check_health()
        except FairlaneError as error:
            self._error = self.why = str(error)
            raise
        self._error = ""
        self._answered_at = monotonic()

    def mark_unavailable(self, why: str) -> None:
        """Note that a health check got no answer, and check again in the background until one does."""
        if not self.up:
            return
        self.up = False
        self.why = self._error or why
        self.outages += 1
        self._lost_at = monotonic()
        self._back.clear()
        log.warning("store unavailable, pushes and acks go to the journal: %(error)s", {"error": self.why})
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._wait(), name="fairlane store health")

    async def _wait(self) -> None:
        """Check until the store answers."""
        while not await self.answers(PING_SECONDS):
            if self._asking is not None and self._asking.done():  # it was refused at once
                await asyncio.sleep(PING_SECONDS)
        self.mark_available()

    def mark_available(self) -> None:
        if not self.up:
            self.up = True
            log.warning("store available again after %(seconds).1f s", {"seconds": self.unavailable_seconds()})
            self._back.set()

    def unavailable_seconds(self) -> float:
        return monotonic() - self._lost_at if self.outages else 0.0

    async def wait_available(self, seconds: float) -> bool:
        """Wait up to `seconds` for the store. Returns True if it is available."""
        try:
            async with asyncio.timeout(seconds):
                await self._back.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        tasks = [task for task in (self._watching, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
