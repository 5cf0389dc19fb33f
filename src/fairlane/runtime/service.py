"""A service: a task that works, rests until there is news or some time has passed, and ends when it is asked to."""

from __future__ import annotations

import asyncio
import logging

AGAIN_SECONDS = 5.0

log = logging.getLogger(__name__)


class Service:
    """A service: `_run` is the work, goes on until `_stopping`, and rests with `_rest`. After an unexpected error,
    which is logged, it begins again after a while: others count on it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._news = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._failed: Exception | None = None

    def start(self) -> None:
        self._stopping = False
        self._task = asyncio.create_task(self._live(), name=f"fairlane {self._name}")

    def wake(self) -> None:
        """There is something new to do."""
        self._news.set()

    async def stop(self) -> None:
        """Finish the step that is being done; the rest is for whoever comes next. Raises what the work failed of, if it
        did not go on since."""
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
            except Exception as error:  # the boundary of a service: others count on it, so that it must not just end
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
        """What comes after the look that follows is news again."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
