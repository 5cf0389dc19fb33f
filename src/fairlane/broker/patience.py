"""The patience with the store: how long its answer is waited for.

One slow flush has the whole patience. A store that was given work and has answered nobody for a good while is asked
whether it is there; if it does not even answer that, nobody waits for it any longer: who does, and who comes, is
answered from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from fairlane.broker.store_watch import LATE_SECONDS, StoreWatch
from fairlane.store.contract.journal import Backlog

PATIENCE_SECONDS = 2.0
SILENCE_SHARE = 0.25
"""Of the patience: a silence of the whole store that is shorter says nothing."""
SLOWEST_TIMES = 4.0
"""Nor one that is shorter than so many times what the store took lately."""
FORGET = 0.9
"""What is left of the slowest answer with each that comes after it."""


class Patience:
    def __init__(
        self, watch: StoreWatch, seconds: float = PATIENCE_SECONDS, ended: Callable[[], None] = lambda: None
    ) -> None:
        """`ended` is called when work that was not waited for came to its end."""
        self.seconds = seconds
        self.abandoned: dict[asyncio.Task[Any], frozenset[Backlog]] = {}
        """Work that was not waited for, and the lanes it may yet change. Nothing of these is applied from the journal
        before it ended: what comes twice is known only to who comes second."""
        self._watch = watch
        self._ended = ended
        self._under_way = 0
        self._heard_at = 0.0
        # Until it was seen to be fast, a store has the whole patience.
        self._slowest = seconds

    def silence_seconds(self) -> float:
        """How long the store may answer nobody."""
        return min(self.seconds, max(SILENCE_SHARE * self.seconds, SLOWEST_TIMES * self._slowest))

    def unsettled(self) -> set[Backlog]:
        """The lanes of abandoned work."""
        return set().union(*self.abandoned.values())

    async def wait_for(
        self, work: Coroutine[Any, Any, Any], hasty: Callable[[], bool], backlogs: Callable[[], frozenset[Backlog]]
    ) -> bool:
        """Whether the work, which is about `backlogs`, was done in time; if not, it goes on by itself. It has the whole
        patience unless `hasty`."""
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
        self.abandoned[task] = backlogs()
        task.add_done_callback(self._end)
        return False

    async def _wait(self, task: asyncio.Task[Any], give_up_at: float, hasty: Callable[[], bool]) -> None:
        while not task.done():
            silent_at = self._heard_at + self.silence_seconds()
            if silent_at <= monotonic() < give_up_at and hasty():
                if not await self._is_there(task):
                    return
                continue
            until = min(give_up_at, silent_at) if silent_at > monotonic() else give_up_at
            left = until - monotonic()
            if left <= 0:
                return
            await asyncio.wait([task], timeout=left)
            late = monotonic() - until
            if late > LATE_SECONDS:
                self._heard_at += late
                give_up_at += late

    async def _is_there(self, task: asyncio.Task[Any]) -> bool:
        """Ask a store that is silent. Whatever it answered meanwhile is as good as an answer."""
        heard_at = self._heard_at
        answered = await self._watch.answers(self.silence_seconds())
        if answered:
            self._heard_at = monotonic()
        elif self._heard_at == heard_at and not task.done():
            self._watch.lost("it is silent, and does not answer whether it is there")
        return self._watch.up or task.done()

    def _end(self, task: asyncio.Task[Any]) -> None:
        del self.abandoned[task]
        if not task.cancelled():
            task.exception()  # whoever waited for it was answered long ago
        self._ended()
