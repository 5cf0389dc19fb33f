"""The patience with the store: how long its answer is waited for.

One slow flush has the whole patience. A store that was given work and has answered nobody for a good while is asked
whether it is there; if it does not even answer that, nobody waits for it any longer: who does, and who comes, is
answered from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from fairlane.broker.deferral.store_watch import LATE_SECONDS, StoreWatch
from fairlane.store.contract.journal import Backlog

PATIENCE_SECONDS = 2.0
SILENCE_SHARE = 0.25
"""Of the patience: a silence of the whole store that is shorter says nothing."""
SLOWEST_TIMES = 4.0
"""Nor one that is shorter than so many times what the store took lately."""
FORGET = 0.9
"""What is left of the slowest answer with each that comes after it."""


class _Flight:
    """Work that is waited for, until `answered` is set by its end or by whoever gives it up."""

    __slots__ = ("answered", "give_up_at", "hasty", "task")

    def __init__(self, task: asyncio.Task[Any], give_up_at: float, hasty: Callable[[], bool]) -> None:
        self.task = task
        self.give_up_at = give_up_at
        self.hasty = hasty
        self.answered: asyncio.Future[Any] = asyncio.Future()
        task.add_done_callback(self.answered.set_result)

    def give_up(self) -> None:
        if not self.answered.done():
            self.task.remove_done_callback(self.answered.set_result)
            self.answered.set_result(None)


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
        self._flights: set[_Flight] = set()
        self._timer: asyncio.TimerHandle | None = None
        """One for all that is under way: it looks at what is due, and is set anew."""
        self._asking: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        # Until it was seen to be fast, a store has the whole patience.
        self._slowest = seconds

    def silence_seconds(self) -> float:
        """How long the store may answer nobody."""
        return min(self.seconds, max(SILENCE_SHARE * self.seconds, SLOWEST_TIMES * self._slowest))

    def unsettled(self) -> set[Backlog]:
        """The lanes of abandoned work."""
        return set().union(*self.abandoned.values()) if self.abandoned else set()

    async def wait_for(
        self, work: Coroutine[Any, Any, Any], hasty: Callable[[], bool], backlogs: Callable[[], frozenset[Backlog]]
    ) -> bool:
        """Whether the work, which is about `backlogs`, was done in time; if not, it goes on by itself. It has the whole
        patience unless `hasty`."""
        began = monotonic()
        if not self._flights:
            self._heard_at = began
        task: asyncio.Task[Any] = asyncio.Task(work)
        flight = _Flight(task, began + self.seconds, hasty)
        self._flights.add(flight)
        if self._timer is None:
            self._set_timer(began)
        try:
            await flight.answered
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._flights.discard(flight)
        if task.done():
            self._heard_at = monotonic()
            self._slowest = max(self._heard_at - began, self._slowest * FORGET)
            task.result()
            return True
        self.abandoned[task] = backlogs()
        task.add_done_callback(self._end)
        return False

    def _set_timer(self, now: float) -> None:
        silent_at = self._heard_at + self.silence_seconds()
        due = min([now + SILENCE_SHARE * self.seconds, *[flight.give_up_at for flight in self._flights]])
        if silent_at > now:
            due = min(due, silent_at)
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._look, max(now, due))

    def _look(self, due: float) -> None:
        """Give up what had its time, and ask a store that is silent."""
        now, self._timer = monotonic(), None
        late = now - due
        waiting = [flight for flight in self._flights if not flight.task.done()]
        if late > LATE_SECONDS:
            self._heard_at += late
            for flight in waiting:
                flight.give_up_at += late
        for flight in waiting:
            if flight.give_up_at <= now:
                flight.give_up()
        waiting = [flight for flight in waiting if not flight.answered.done()]
        silent = self._heard_at + self.silence_seconds() <= now
        if silent and self._asking is None and any(flight.hasty() for flight in waiting):
            self._asking = asyncio.create_task(self._ask(), name="fairlane patience")
        if waiting:
            self._set_timer(now)

    async def _ask(self) -> None:
        """Whatever the store answered meanwhile is as good as an answer."""
        heard_at = self._heard_at
        if await self._watch.answers(self.silence_seconds()):
            self._heard_at = monotonic()
        elif self._heard_at == heard_at and any(not flight.task.done() for flight in self._flights):
            self._watch.lost("it is silent, and does not answer whether it is there")
        self._asking = None
        for flight in list(self._flights) if not self._watch.up else ():
            if not flight.task.done() and flight.hasty():
                flight.give_up()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if any(not flight.answered.done() for flight in self._flights):
            self._set_timer(monotonic())

    def _end(self, task: asyncio.Task[Any]) -> None:
        del self.abandoned[task]
        if not task.cancelled():
            task.exception()  # whoever waited for it was answered long ago
        self._ended()

    async def stop(self) -> None:
        """Work that nobody waits for has a moment more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
        if self.abandoned:
            await asyncio.wait(self.abandoned, timeout=1.0)
            for task in list(self.abandoned):
                task.cancel()
            if self.abandoned:
                await asyncio.wait(self.abandoned)
