"""Claims of a consumer: the messages of one pop under one lease, and the renewer of these leases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, NamedTuple, Protocol

from fairlane.errors import FairlaneError
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, RenewOutcome

RENEW_SECONDS_MAX = 30.0
PARTS_AT_ONCE = 32
"""Parts that one task handles before it yields to other tasks."""
_NEVER = float("inf")
OnUnstarted = Callable[[int], None]
MessagePosition = tuple[PartitionId, int]


class Claim:
    """The messages of one pop, under one lease.

    The counts are used on the loop of the pops, the tasks on the loop of the handlers.
    """

    def __init__(self, batch: Any, *, slot_each: bool = True, owner: asyncio.Task[Any] | None = None) -> None:
        self.batch = batch
        self._owner = owner
        """The task of the consumer. Cancelling it cancels the handlers."""
        self.lease: str = batch.lease
        self.ordered: bool = batch.ordered
        self.slot_each = slot_each
        """True if each message takes a slot of the consumer, False if the claim takes one."""
        self.holds_slot = not slot_each
        self.acked_alone = False
        """True after a pop failed to deliver its acks, so that they need their own request."""
        self.lost = False
        self.began_at = monotonic()
        self._cancelled = False
        self.open = len(batch)
        """Messages that the handlers have not reported yet."""
        self.unacked = 0
        """Reports that are not acked at the broker yet."""
        self.unstarted = 0
        """Messages that no handler was called for. They are released at the end."""
        self.exact = False
        """True if a handler finished a message itself, so that an ack must not cover others with it."""
        self.unhandled = 0
        """Messages without a verdict. They are delivered again."""
        self.on_progress: Callable[[Claim, Sequence[Any], float, str], None] | None = None
        """Function that sends the progress of messages, from any thread."""
        self.cancelled_messages: set[MessagePosition] = set()
        """Messages that were cancelled at the broker."""
        self._calls: dict[asyncio.Task[Any], Sequence[Any]] = {}
        """The messages of each running handler call, by its task."""
        self._cancelled_calls: set[asyncio.Task[Any]] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.parts: deque[deque[Any]] = deque()
        """Parts that no task has taken yet. Messages of a part are handled one after another."""
        self._task_pending = False
        """True if a task was created and has not started yet."""
        self._work: Callable[[Claim, deque[Any]], Awaitable[None]]
        self._on_unstarted: OnUnstarted
        self.beat = min(batch.lease_seconds / 8, RENEW_SECONDS_MAX / 2)
        """Seconds of a beat. The lease is renewed after two beats, or after one together with another lease."""
        self.renew_at = _NEVER

    @property
    def cancelled(self) -> bool:
        """True once its handlers were cancelled, because the lease is lost or the consumer gave up waiting for them."""
        return self._cancelled or (self._owner is not None and self._owner.cancelling() > 0)

    def failure(self, error: BaseException) -> BaseException:
        """Return the exception of a handler. Raises it if the handler was cancelled or closed from outside."""
        if isinstance(error, asyncio.CancelledError) and (
            self.cancelled or asyncio.current_task() in self._cancelled_calls
        ):
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

    def start(
        self,
        parts: Iterable[deque[Any]],
        work: Callable[[Claim, deque[Any]], Awaitable[None]],
        on_unstarted: OnUnstarted,
    ) -> None:
        """Call `work` for each part. Calls `on_unstarted` with the number of messages that no task will take."""
        self.parts.extend(parts)
        self._work, self._on_unstarted = work, on_unstarted
        self._spawn_task()

    def _spawn_task(self) -> None:
        self._task_pending = True
        task = asyncio.ensure_future(self._run_parts())
        self.tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if self.parts and not self.tasks:
            unstarted = sum(map(len, self.parts))
            self.parts.clear()
            self._on_unstarted(unstarted)

    async def _run_parts(self) -> None:
        """Handle part after part. Before each part, start a task for the next one.

        So a handler that waits blocks no other part, and handlers that do not wait share a task.
        """
        self._task_pending, done = False, 0
        while self.parts:
            part = self.parts.popleft()
            if self.parts and not self._task_pending:
                self._spawn_task()
            await self._work(self, part)
            done += 1
            if done % PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)  # yields to other tasks

    def has_cancelled(self, message: Any) -> bool:
        """Return True if the message was cancelled at the broker."""
        return (message.partition_id, message.position) in self.cancelled_messages

    def cancel_messages(self, cancelled: Iterable[MessagePosition]) -> None:
        """Cancel the handler calls whose messages were all cancelled. Messages without a call get none."""
        self.cancelled_messages.update(cancelled)
        for task, messages in self._calls.items():
            if task not in self._cancelled_calls and all(map(self.has_cancelled, messages)):
                self._cancelled_calls.add(task)
                task.cancel()

    def drop_cancelled(self, part: deque[Any]) -> int:
        """Remove cancelled messages from a part. Returns their number."""
        before = len(part)
        if self.cancelled_messages:
            kept = self.without_cancelled(part)
            part.clear()
            part.extend(kept)
        return before - len(part)

    def without_cancelled(self, messages: Sequence[Any]) -> Sequence[Any]:
        if not self.cancelled_messages:
            return messages
        return [message for message in messages if not self.has_cancelled(message)]

    @contextlib.contextmanager
    def calling(self, messages: Sequence[Any]) -> Iterator[None]:
        """Allow `cancel_messages` to cancel the current task while a handler runs in it."""
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = messages
        try:
            yield
        finally:
            del self._calls[task]
            if task in self._cancelled_calls:
                self._cancelled_calls.remove(task)
                task.uncancel()

    def cancel(self) -> None:
        """Cancel the running handlers. A plain function cannot be cancelled, but can check `cancelled`."""
        self._cancelled = True
        for task in self.tasks:
            task.cancel()


class Report(NamedTuple):
    """Verdicts on messages of a claim. `finished` counts its messages, including `unstarted` ones to release."""

    claim: Claim
    finished: int
    messages: Sequence[Any] = ()
    items: Sequence[AckItem] = ()
    pushed: Sequence[Any] = ()
    unstarted: int = 0
    completed: int = 0
    """Messages that the handler finished in its own transaction."""
    known: asyncio.Future[bool] | None = None
    """Future on the handlers' loop. Its result is True if the transaction was committed."""

    def resolve(self, committed: bool) -> None:
        if self.known is not None:
            self.known.get_loop().call_soon_threadsafe(_set_result, self.known, committed)


def _set_result(future: asyncio.Future[bool], answer: bool) -> None:
    if not future.done():
        future.set_result(answer)


def take_rest_of_lane(part: deque[Any], lane: PartitionId) -> int:
    """Remove the rest of a lane from a part. Returns the number of messages removed."""
    before = len(part)
    others = [message for message in part if message.partition_id != lane]
    part.clear()
    part.extend(others)
    return before - len(others)


class Renews(Protocol):
    async def renew(self, lease: str, seconds: int) -> RenewOutcome: ...


OnCancelled = Callable[[Claim, Sequence[MessagePosition]], None]


class Renewer:
    """Renews all leases of a consumer. Each is renewed well before half its time has passed.

    `lost` is called with a claim whose lease is lost.
    """

    def __init__(
        self,
        verbs: Renews,
        claims: set[Claim],
        lost: Callable[[Claim], None],
        cancelled: OnCancelled,
        log: logging.Logger,
    ) -> None:
        self._verbs = verbs
        self._claims = claims
        self._lost = lost
        self._cancelled = cancelled
        self._log = log
        self._wakes_at = _NEVER
        self._rescheduled = asyncio.Event()

    def schedule(self, claim: Claim, *, beats: int = 2) -> None:
        claim.renew_at = asyncio.get_running_loop().time() + beats * claim.beat
        if claim.renew_at < self._wakes_at:
            self._wakes_at = claim.renew_at
            self._rescheduled.set()

    def unschedule(self, claim: Claim) -> None:
        claim.renew_at = _NEVER

    async def run(self) -> None:
        while True:
            self._wakes_at = min((claim.renew_at for claim in self._claims), default=_NEVER)
            self._rescheduled.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if self._wakes_at == _NEVER else self._wakes_at):
                    await self._rescheduled.wait()
            now = asyncio.get_running_loop().time()
            due = [claim for claim in self._claims if claim.renew_at - claim.beat <= now]
            await asyncio.gather(*[self._renew(claim) for claim in due])

    async def _renew(self, claim: Claim) -> None:
        try:
            async with asyncio.timeout(4 * claim.beat):  # the other leases wait for this renewal
                outcome = await self._verbs.renew(claim.lease, claim.batch.lease_seconds)
        except Exception as error:  # must not end the renewals of other leases
            defect = not isinstance(error, FairlaneError | TimeoutError)
            text = f"no answer within {4 * claim.beat:g} s" if isinstance(error, TimeoutError) else error
            fields = {"lease": claim.lease, "error": text}
            self._log.warning("cannot renew lease %(lease)s: %(error)s", fields, exc_info=defect)
            if claim.renew_at != _NEVER:
                self.schedule(claim, beats=1)
            return
        if claim.renew_at == _NEVER:
            return  # its messages were finished meanwhile
        new = set(outcome.cancelled) - claim.cancelled_messages
        if new:
            self._cancelled(claim, outcome.cancelled)
        if outcome.renewed:
            self.schedule(claim)
        elif claim.open <= len(new):
            self.schedule(claim, beats=1)  # the lease ended with its last messages, which end soon
        else:
            self.unschedule(claim)
            self._lost(claim)
