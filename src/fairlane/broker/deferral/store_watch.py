"""The store watch: whether the store answers. It is away only if it was asked and did not answer: a locked lane, a slow
flush or a statement that fails is the trouble of one lane or one request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

ASK_SECONDS = 1.0
"""Between two questions while it is away."""
LATE_SECONDS = 0.05
"""A timer that fires later than this tells of a stall of this process, in which it could hear nobody."""

log = logging.getLogger(__name__)


class StoreWatch:
    """The store watch: `up` until a question got no answer; away until one did. `ask` is the question: it fails, or
    returns."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self.up = True
        self.why = ""
        self.outages = 0
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._back = asyncio.Event()
        self._back.set()

    async def check(self, why: str, seconds: float) -> bool:
        """Ask because of `why`; whether the store is there. It is away if there is no answer within `seconds`."""
        if self.up and not await self.answers(seconds):
            self.lost(why)
        return self.up

    async def answers(self, seconds: float) -> bool:
        """Whether the store answers in time. Of many that ask at once, one does."""
        give_up_at = time.monotonic() + seconds
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._asked())
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        asking = self._asking
        while not asking.done() and (left := give_up_at - time.monotonic()) > 0:
            await asyncio.wait([asking], timeout=left)
            late = time.monotonic() - give_up_at
            give_up_at += late if late > LATE_SECONDS else 0.0
        return asking.done() and not asking.cancelled() and asking.exception() is None

    async def _asked(self) -> None:
        await self._ask()

    def lost(self, why: str) -> None:
        """A question got no answer."""
        if not self.up:
            return
        self.up = False
        self.why = why
        self.outages += 1
        self._lost_at = time.monotonic()
        self._back.clear()
        log.warning("store unavailable, pushes and acks go to the journal: %s", why)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._wait(), name="fairlane store watch")

    async def _wait(self) -> None:
        """Ask until there is an answer."""
        while not await self.answers(ASK_SECONDS):
            if self._asking is not None and self._asking.done():  # it was refused, at once
                await asyncio.sleep(ASK_SECONDS)
        self.back()

    def back(self) -> None:
        if not self.up:
            self.up = True
            log.warning("store available again after %.1f s", self.away_seconds())
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

    async def stop(self) -> None:
        tasks = [task for task in (self._watching, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
