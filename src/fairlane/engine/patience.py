"""How long an answer of the store is waited for.

One slow flush has the whole patience. A store that was given work and has answered nobody for a good while is taken for
frozen sooner: who waits for it then, and who comes, is answered from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

PATIENCE_SECONDS = 2.0
SILENCE_SHARE = 0.25
"""Of the patience: a silence of the whole store that is shorter says nothing."""
SLOWEST_TIMES = 4.0
"""Nor one that is shorter than so many times what the store took lately."""
FORGET = 0.9
"""What is left of the slowest answer with each that comes after it."""
LATE_SECONDS = 0.05
"""A timer that fires later than this tells of a stall of this process, in which it could hear nobody."""


class Patience:
    def __init__(self, seconds: float = PATIENCE_SECONDS) -> None:
        self.seconds = seconds
        self.left_behind: set[asyncio.Task[Any]] = set()
        """Work that was not waited for. Nothing is applied from the journal while some of it may still be."""
        self._under_way = 0
        self._heard_at = 0.0
        # Until it was seen to be fast, a store has the whole patience.
        self._slowest = seconds

    def silence_seconds(self) -> float:
        """How long the store may answer nobody."""
        return min(self.seconds, max(SILENCE_SHARE * self.seconds, SLOWEST_TIMES * self._slowest))

    async def waits_for(self, work: Coroutine[Any, Any, Any], hasty: Callable[[], bool]) -> bool:
        """Whether the work was done in time; if not, it goes on by itself. It has the whole patience unless `hasty`."""
        began = monotonic()
        if not self._under_way:
            self._heard_at = began
        self._under_way += 1
        task = asyncio.ensure_future(work)
        try:
            await self._wait(task, began + self.seconds, hasty)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._under_way -= 1
        if task.done():
            self._heard_at = monotonic()
            self._slowest = max(self._heard_at - began, self._slowest * FORGET)
            task.result()
            return True
        self.left_behind.add(task)
        task.add_done_callback(self._ended)
        return False

    async def _wait(self, task: asyncio.Task[Any], give_up_at: float, hasty: Callable[[], bool]) -> None:
        while not task.done():
            silent_at = self._heard_at + self.silence_seconds()
            if silent_at <= monotonic() and not hasty():
                silent_at = give_up_at
            until = min(give_up_at, silent_at)
            left = until - monotonic()
            if left <= 0:
                return
            await asyncio.wait([task], timeout=left)
            late = monotonic() - until
            if late > LATE_SECONDS:
                self._heard_at += late
                give_up_at += late

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.left_behind.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it was answered long ago
