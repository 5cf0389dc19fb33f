"""A background service: a task that works, rests until it is woken or some time has passed, and can be stopped."""

from __future__ import annotations

import asyncio
import logging

AGAIN_SECONDS = 5.0

log = logging.getLogger(__name__)


class Service:
    """Base of background services. `_run` works until `_stopping` is set, and calls `_rest` in between.

    An unexpected error is logged, and the service restarts after a pause, because others depend on it.
    """

    def __init__(self, name: str, news: asyncio.Event | None = None) -> None:
        """`news` wakes the service; it may belong to another component."""
        self._name = name
        self._news = news or asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._failed: Exception | None = None

    def start(self) -> None:
        self._stopping = False
        self._task = asyncio.create_task(self._live(), name=f"fairlane {self._name}")

    def wake(self) -> None:
        """Wake the service, because there is new work."""
        self._news.set()

    async def stop(self) -> None:
        """Finish the current step and stop. Raises the error of the last run if the service did not recover from it."""
        self._stopping = True
        self._news.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._failed is not None:
            raise self._failed

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            try:
                await self._run()
                self._failed = None
                return
            except Exception as error:  # the boundary of a service: others depend on it, so it must not end
                self._failed = error
                log.exception(
                    "unexpected error in %(service)s; it starts again in %(seconds)g s",
                    {"service": self._name, "seconds": AGAIN_SECONDS},
                )
            again_at = loop.time() + AGAIN_SECONDS
            while not self._stopping and (left := again_at - loop.time()) > 0:
                await self._rest(left)

    async def _run(self) -> None:
        raise NotImplementedError

    async def _rest(self, seconds: float) -> None:
        """Wait until the service is woken or `seconds` have passed. Calls of `wake` after this return count again."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
