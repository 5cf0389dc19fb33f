"""A task that works, rests until there is news or some time has passed, and ends when it is asked to."""

from __future__ import annotations

import asyncio


class Service:
    """`_run` is the work: it goes on until `_stopping`, and rests with `_rest`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._news = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name=f"fairlane {self._name}")

    def wake(self) -> None:
        """There is something new to do."""
        self._news.set()

    async def stop(self) -> None:
        """Finish the step that is being done; the rest is for whoever comes next. Raises what ended the work early."""
        self._stopping = True
        self._news.set()
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (error := self._task.exception()):
                raise error

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
