"""The watch of the store, whether it answers, and the patience with it, how long an answer is waited for.

The store is away only if it was asked and did not answer: a locked lane, a slow flush or a statement that fails is the
trouble of one lane or one request.

One slow flush has the whole patience. A store that was given work and has answered nobody for a good while is asked
whether it is there; if it does not even answer that, nobody waits for it any longer: who does, and who comes, is
answered from the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import msgspec

from fairlane.errors import FairlaneError
from fairlane.store.contract.journal import Backlog
from fairlane.store.contract.store import Store

ASK_SECONDS = 1.0
"""Between two questions while it is away."""
LATE_SECONDS = 0.05
"""A timer that fires later than this tells of a stall of this process, in which it could hear nobody."""
PATIENCE_SECONDS = 2.0
SILENCE_SHARE = 0.25
"""Of the patience: a silence of the whole store that is shorter says nothing."""
SLOWEST_TIMES = 4.0
"""Nor one that is shorter than so many times what the store took lately."""
FORGET = 0.9
"""What is left of the slowest answer with each that comes after it."""


log = logging.getLogger(__name__)


class StoreWatch:
    """The store watch: `up` until a question got no answer; away until one did."""

    def __init__(self, store: Store) -> None:
        self.up = True
        self.why = ""
        """The last error of the store while it is away."""
        self.outages = 0
        self._store = store
        self._error = ""
        """Error of the last question; empty if it was answered."""
        self._asking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._lost_at = self._answered_at = 0.0
        self._back = asyncio.Event()
        self._back.set()

    async def check(self, why: str, seconds: float) -> bool:
        """Ask because of `why`; whether the store is there. It is away if there is no answer within `seconds`."""
        if self.up and not await self.answers(seconds):
            self.lost(why)
        return self.up

    async def healthy(self, seconds: float, *, journalled: bool) -> bool:
        """Return True if the store committed a write lately, at most a second ago. With a journal, a store that does
        not answer is away from now on: pushes and acks need not find out by themselves."""
        if not self.up:
            return False
        if monotonic() - self._answered_at < ASK_SECONDS:
            return True
        if journalled:
            return await self.check("it did not commit a write in time", seconds)
        return await self.answers(seconds)

    async def answers(self, seconds: float) -> bool:
        """Whether the store answers in time. Of many that ask at once, one does."""
        give_up_at = monotonic() + seconds
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._asked())
            self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        asking = self._asking
        while not asking.done() and (left := give_up_at - monotonic()) > 0:
            await asyncio.wait([asking], timeout=left)
            late = monotonic() - give_up_at
            give_up_at += late if late > LATE_SECONDS else 0.0
        return asking.done() and not asking.cancelled() and asking.exception() is None

    async def _asked(self) -> None:
        try:
            await self._store.answer()
        except FairlaneError as error:
            self._error = self.why = str(error)
            raise
        self._error = ""
        self._answered_at = monotonic()

    def lost(self, why: str) -> None:
        """A question got no answer."""
        if not self.up:
            return
        self.up = False
        self.why = self._error or why
        self.outages += 1
        self._lost_at = monotonic()
        self._back.clear()
        log.warning("store unavailable, pushes and acks go to the journal: %(error)s", {"error": self.why})
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
            log.warning("store available again after %(seconds).1f s", {"seconds": self.away_seconds()})
            self._back.set()

    def away_seconds(self) -> float:
        return monotonic() - self._lost_at if self.outages else 0.0

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


class _Flight(msgspec.Struct, eq=False):
    """Work that is waited for, until `answered` is set by its end or by whoever gives it up."""

    task: asyncio.Task[Any]
    answered: asyncio.Future[None]
    give_up_at: float
    hasty: Callable[[], bool]

    def answer(self, _: object = None) -> None:
        if not self.answered.done():
            self.answered.set_result(None)


class Patience:
    def __init__(self, watch: StoreWatch, seconds: float = PATIENCE_SECONDS, news: asyncio.Event | None = None) -> None:
        """`news` is set when work that was not waited for came to its end."""
        self.seconds = seconds
        self.abandoned: dict[asyncio.Task[Any], frozenset[Backlog]] = {}
        """Work that was not waited for, and the lanes it may yet change. Nothing of these is applied from the journal
        before it ended: what comes twice is known only to who comes second."""
        self._watch = watch
        self._news = news or asyncio.Event()
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
    ) -> asyncio.Task[Any] | None:
        """The work, which is about `backlogs`, when it is done; None if it was not in time, and goes on by itself. It
        has the whole patience unless `hasty`."""
        began = monotonic()
        if not self._flights:
            self._heard_at = began
        task: asyncio.Task[Any] = asyncio.Task(work)
        answered: asyncio.Future[None] = asyncio.Future()
        flight = _Flight(task, answered, began + self.seconds, hasty)
        task.add_done_callback(flight.answer)
        self._flights.add(flight)
        if self._timer is None:
            self._set_timer(began)
        try:
            await answered
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._flights.discard(flight)
        if task.done():
            self._heard_at = monotonic()
            self._slowest = max(self._heard_at - began, self._slowest * FORGET)
            task.result()
            return task
        self.abandoned[task] = backlogs()
        task.add_done_callback(self._end)
        return None

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
                flight.answer()
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
                flight.answer()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if any(not flight.answered.done() for flight in self._flights):
            self._set_timer(monotonic())

    def _end(self, task: asyncio.Task[Any]) -> None:
        del self.abandoned[task]
        if not task.cancelled():
            task.exception()  # whoever waited for it was answered long ago
        self._news.set()

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
