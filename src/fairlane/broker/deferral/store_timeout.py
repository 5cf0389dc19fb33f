"""The store timeout: how long pushes and acks wait for the store before they go to the journal.

One slow flush may take the whole timeout. If the store has calls in flight and has answered none of them for a while,
it gets a health check. If it does not answer that either, calls in flight and new ones are answered from the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import msgspec

from fairlane.broker.deferral.store_health import LATE_SECONDS, StoreHealth
from fairlane.store.contract.journal import Backlog

STORE_TIMEOUT_SECONDS = 2.0
SILENCE_SHARE = 0.25
"""Minimum silence before a health check, as a share of the timeout."""
SLOWEST_TIMES = 4.0
"""Minimum silence before a health check, as a multiple of the slowest recent answer."""
FORGET = 0.9
"""Decay of the slowest recent answer with each later one."""


class _Call(msgspec.Struct, eq=False):
    """A call of the store in flight, until `answered` is set by its end or by the timeout."""

    task: asyncio.Task[Any]
    answered: asyncio.Future[None]
    give_up_at: float
    may_abandon: Callable[[], bool]

    def answer(self, _: object = None) -> None:
        if not self.answered.done():
            self.answered.set_result(None)


class StoreTimeout:
    def __init__(
        self, health: StoreHealth, seconds: float = STORE_TIMEOUT_SECONDS, journal_changed: asyncio.Event | None = None
    ) -> None:
        """Create the timeout. It sets `journal_changed` when an abandoned call ends."""
        self.seconds = seconds
        self.abandoned: dict[asyncio.Task[Any], frozenset[Backlog]] = {}
        """Abandoned calls, and the backlogs that each may still change. No journal entry of these backlogs is applied
        before the call has ended: a repeat is detected only by the write that comes second."""
        self._health = health
        self._journal_changed = journal_changed or asyncio.Event()
        self._calls: set[_Call] = set()
        self._timer: asyncio.TimerHandle | None = None
        """One timer for all calls in flight."""
        self._asking: asyncio.Task[None] | None = None
        self._last_answer_at = 0.0
        # Until it was seen to be fast, a store has the whole timeout.
        self._slowest = seconds

    def silence_seconds(self) -> float:
        """Return how long the store may be silent before it gets a health check."""
        return min(self.seconds, max(SILENCE_SHARE * self.seconds, SLOWEST_TIMES * self._slowest))

    def abandoned_backlogs(self) -> set[Backlog]:
        """Return the backlogs of abandoned calls."""
        return set().union(*self.abandoned.values()) if self.abandoned else set()

    async def wait_for(
        self,
        work: Coroutine[Any, Any, Any],
        may_abandon: Callable[[], bool],
        backlogs: Callable[[], frozenset[Backlog]],
    ) -> asyncio.Task[Any] | None:
        """Run `work`, which concerns `backlogs`, with a timeout. Returns the finished task, or None on timeout.

        The task then continues in the background. If the store turns out to be unavailable, only work that
        `may_abandon` is given up before the timeout.
        """
        began = monotonic()
        if not self._calls:
            self._last_answer_at = began
        task: asyncio.Task[Any] = asyncio.Task(work)
        answered: asyncio.Future[None] = asyncio.Future()
        call = _Call(task, answered, began + self.seconds, may_abandon)
        task.add_done_callback(call.answer)
        self._calls.add(call)
        if self._timer is None:
            self._set_timer(began)
        try:
            await answered
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._calls.discard(call)
        if task.done():
            self._last_answer_at = monotonic()
            self._slowest = max(self._last_answer_at - began, self._slowest * FORGET)
            task.result()
            return task
        self.abandoned[task] = backlogs()
        task.add_done_callback(self._end)
        return None

    def _set_timer(self, now: float) -> None:
        silent_at = self._last_answer_at + self.silence_seconds()
        due = min([now + SILENCE_SHARE * self.seconds, *[call.give_up_at for call in self._calls]])
        if silent_at > now:
            due = min(due, silent_at)
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._on_timer, max(now, due))

    def _on_timer(self, due: float) -> None:
        """Abandon calls that timed out, and check the health of a silent store."""
        now, self._timer = monotonic(), None
        late = now - due
        waiting = [call for call in self._calls if not call.task.done()]
        if late > LATE_SECONDS:
            self._last_answer_at += late
            for call in waiting:
                call.give_up_at += late
        for call in waiting:
            if call.give_up_at <= now:
                call.answer()
        waiting = [call for call in waiting if not call.answered.done()]
        silent = self._last_answer_at + self.silence_seconds() <= now
        if silent and self._asking is None and any(call.may_abandon() for call in waiting):
            self._asking = asyncio.create_task(self._probe(), name="fairlane store health check")
        if waiting:
            self._set_timer(now)

    async def _probe(self) -> None:
        """Check the health of the store. Any answer that arrives meanwhile counts as well."""
        last_answer_at = self._last_answer_at
        if await self._health.answers(self.silence_seconds()):
            self._last_answer_at = monotonic()
        elif self._last_answer_at == last_answer_at and any(not call.task.done() for call in self._calls):
            self._health.mark_unavailable("it answers neither requests nor a health check")
        self._asking = None
        for call in list(self._calls) if not self._health.up else ():
            if not call.task.done() and call.may_abandon():
                call.answer()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if any(not call.answered.done() for call in self._calls):
            self._set_timer(monotonic())

    def _end(self, task: asyncio.Task[Any]) -> None:
        del self.abandoned[task]
        if not task.cancelled():
            task.exception()  # its caller was answered long ago
        self._journal_changed.set()

    async def stop(self) -> None:
        """Stop. Abandoned calls get one more second."""
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
