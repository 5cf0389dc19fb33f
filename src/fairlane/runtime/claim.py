"""A claim: messages of one pop under one lease, on their way through a handler; and the renewer of such leases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from fairlane.errors import FairlaneError
from fairlane.model.outcome import AckItem, RenewOutcome

RENEW_SECONDS_MAX = 30.0
PARTS_AT_ONCE = 32
"""Handled by one task before others have their turn."""
_NEVER = float("inf")
Leave = Callable[[int], None]


class Claim:
    """Counts belong to the loop of the pops, tasks to that of the handlers."""

    def __init__(self, batch: Any, *, slot_each: bool = True, owner: asyncio.Task[Any] | None = None) -> None:
        self.batch = batch
        self._owner = owner
        """Task of the consumer. Once it is cancelled, so are the handlers."""
        self.lease: str = batch.lease
        self.ordered: bool = batch.ordered
        self.slot_each = slot_each
        """Each message takes a slot of the consumer's room, or all of them together one."""
        self.lost = False
        self._cancelled = False
        self.open = len(batch)
        """Messages of which the handlers have said nothing yet."""
        self.unacked = 0
        """Reports that the broker does not know yet."""
        self.left = 0
        """Messages that were not begun: given back at the end."""
        self.unhandled = 0
        """Messages without a verdict: they come again."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.parts: deque[deque[Any]] = deque()
        """Messages that no task has taken yet; those of a part are handled one after another."""
        self._hand_comes = False
        """A task was made that has not begun."""
        self._work: Callable[[Claim, deque[Any]], Awaitable[None]]
        self._leave: Leave
        self.beat = min(batch.lease_seconds / 8, RENEW_SECONDS_MAX / 2)
        """The lease is renewed after two of them, or after one if another is renewed then."""
        self.renew_at = _NEVER

    @property
    def cancelled(self) -> bool:
        """Its handlers were told to end: the lease is lost, or the time to stop is over."""
        return self._cancelled or (self._owner is not None and self._owner.cancelling() > 0)

    def failure(self, error: BaseException) -> BaseException:
        """Return what a handler raised, to be charged. Raises it if it comes from the end of its task instead."""
        if isinstance(error, asyncio.CancelledError) and self.cancelled:
            raise error
        if isinstance(error, GeneratorExit) and not self._runs():
            raise error
        return error

    def _runs(self) -> bool:
        """Return False in a coroutine that is closed from outside, without a task that runs it."""
        try:
            return asyncio.current_task() in self.tasks
        except RuntimeError:
            return False

    def begin(
        self, parts: Iterable[deque[Any]], work: Callable[[Claim, deque[Any]], Awaitable[None]], leave: Leave
    ) -> None:
        """Have the parts worked off; when nobody will take the rest, `leave` is told how many messages that are."""
        self.parts.extend(parts)
        self._work, self._leave = work, leave
        self._add_hand()

    def _add_hand(self) -> None:
        self._hand_comes = True
        task = asyncio.ensure_future(self._work_off())
        self.tasks.add(task)
        task.add_done_callback(self._hand_left)

    def _hand_left(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if self.parts and not self.tasks:
            left = sum(map(len, self.parts))
            self.parts.clear()
            self._leave(left)

    async def _work_off(self) -> None:
        """Take part after part. Who takes one makes sure that somebody comes for the next: a handler that waits holds
        up no other, and one that does not is called without a task of its own."""
        self._hand_comes, done = False, 0
        while self.parts:
            part = self.parts.popleft()
            if self.parts and not self._hand_comes:
                self._add_hand()
            await self._work(self, part)
            done += 1
            if done % PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn too

    def cancel(self) -> None:
        """End the handlers that run. A plain function cannot be ended: it may look at `cancelled`."""
        self._cancelled = True
        for task in self.tasks:
            task.cancel()


class Report(NamedTuple):
    """Verdicts on messages of a claim. `gone` messages are over by it, of which `left` are to be given back."""

    claim: Claim
    gone: int
    messages: Sequence[Any] = ()
    items: Sequence[AckItem] = ()
    pushed: Sequence[Any] = ()
    left: int = 0
    known: asyncio.Future[bool] | None = None
    """On the handlers' loop: told whether a transaction was committed."""

    def tell(self, committed: bool) -> None:
        if self.known is not None:
            self.known.get_loop().call_soon_threadsafe(_answer, self.known, committed)


def _answer(future: asyncio.Future[bool], answer: bool) -> None:
    if not future.done():
        future.set_result(answer)


class Renews(Protocol):
    async def renew(self, lease: str, seconds: int) -> RenewOutcome: ...


class Renewer:
    """The renewer: one heartbeat for all leases of a consumer. Each is renewed well before half its time has passed,
    for as long as it was given. `lost` is called for a claim whose lease went to somebody else."""

    def __init__(self, verbs: Renews, claims: set[Claim], lost: Callable[[Claim], None], log: logging.Logger) -> None:
        self._verbs = verbs
        self._claims = claims
        self._lost = lost
        self._log = log
        self._wakes_at = _NEVER
        self._earlier = asyncio.Event()

    def hold(self, claim: Claim, *, beats: int = 2) -> None:
        claim.renew_at = asyncio.get_running_loop().time() + beats * claim.beat
        if claim.renew_at < self._wakes_at:
            self._wakes_at = claim.renew_at
            self._earlier.set()

    def let_go(self, claim: Claim) -> None:
        claim.renew_at = _NEVER

    async def run(self) -> None:
        while True:
            self._wakes_at = min((claim.renew_at for claim in self._claims), default=_NEVER)
            self._earlier.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if self._wakes_at == _NEVER else self._wakes_at):
                    await self._earlier.wait()
            now = asyncio.get_running_loop().time()
            due = [claim for claim in self._claims if claim.renew_at - claim.beat <= now]
            await asyncio.gather(*[self._renew(claim) for claim in due])

    async def _renew(self, claim: Claim) -> None:
        try:
            async with asyncio.timeout(4 * claim.beat):  # all leases wait for this one, so that none may wait too long
                outcome = await self._verbs.renew(claim.lease, claim.batch.lease_seconds)
        except Exception as error:  # an unexpected one must not end the renewals of all leases
            defect = not isinstance(error, FairlaneError | TimeoutError)
            text = f"no answer within {4 * claim.beat:g} s" if isinstance(error, TimeoutError) else error
            fields = {"lease": claim.lease, "error": text}
            self._log.warning("cannot renew lease %(lease)s: %(error)s", fields, exc_info=defect)
            if claim.renew_at != _NEVER:
                self.hold(claim, beats=1)
            return
        if claim.renew_at == _NEVER:
            return  # its messages were finished meanwhile
        if outcome.renewed:
            self.hold(claim)
        else:
            self.let_go(claim)
            self._lost(claim)
