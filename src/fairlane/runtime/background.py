"""Background tasks of a verb, which waits for them when it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from fairlane.errors import FairlaneError

log = logging.getLogger(__name__)


class BackgroundTasks:
    def __init__(self, verb: str) -> None:
        """Create the set. `verb` is the verb that the tasks belong to, for the log."""
        self._verb = verb
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), FairlaneError):
            log.warning("error in a background step of %(verb)s: %(error)s", {"verb": self._verb, "error": error})

    async def finish(self) -> None:
        """Wait until all tasks have ended, including those that they start."""
        while self._tasks:
            await asyncio.wait(self._tasks)
