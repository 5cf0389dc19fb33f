"""The consumer: takes messages of a queue for one group, has them handled, keeps their leases alive, acks by the
verdicts, and gives back what was not begun. Clients, workers and the broker's own commands all consume by it; they
differ in whom they ask (`Verbs`) and in how a message is handled (`Handling`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from fairlane import tracing
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.limits import COUNT_MAX
from fairlane.model.verdict import comes_again
from fairlane.runtime.backoff import backoff
from fairlane.runtime.claim import Claim, Renewer, Report
from fairlane.runtime.handling import Handling, Verbs, charged
from fairlane.runtime.settler import Settler

POLL_SECONDS = 30.0
POLLS_MAX = 4
"""Pops on their way at once: while one is answered, another is asked."""
ANSWER_SECONDS = 0.5
"""A pop that was not answered by then waits for messages."""
CANCEL_SECONDS = 2.0
"""For handlers that were cancelled; after that their leases are given back, whatever they do."""


class Consumer:
    """A consumer. Run it with `await consumer.run()`, or beside something else with `async with consumer`, whose end
    stops it. Messages of one lane are handled one after another, in order; each is acked when its handler is done."""

    def __init__(
        self,
        verbs: Verbs,
        queue: str,
        handling: Handling,
        *,
        group: str,
        room: int,
        auto_renew: bool = True,
        limit: int | None = None,
        idle_seconds: float | None = None,
        **pops: Any,
    ) -> None:
        self.verbs, self.queue, self.group = verbs, queue, group
        self._names = {"queue": queue, "group": group}
        self.handling = handling
        self._handle = tracing.handling(handling.handle, handling.verb, handling.called or queue)
        self.handled = 0
        """Messages that the handler was done with, whatever came of them."""
        self.failed = 0
        """Those of them that failed, or are dead letters by their handler's word."""
        self.free = self.room = room
        self.claims: set[Claim] = set()
        self.stopped = False
        self.ordered: bool | None = None
        """As the last pop said; None before the first."""
        self.seconds = 0.0
        """That one message takes, about; 0.0 before the first."""
        self.per_lane = 0.0
        """Messages that the last pop found in a lane; 0.0 if it came short."""
        self._pops = pops
        self._auto_renew = auto_renew
        self._idle_seconds = idle_seconds
        self._left = COUNT_MAX if limit is None else limit
        self._renewer = Renewer(verbs, self.claims, self.lose, handling.log)
        self.settler = Settler(self)
        self._reported: deque[Report] = deque()
        self._notified = self._began = False
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[int] | None = None
        self._polls: dict[asyncio.Task[Any], float] = {}
        self._helpers: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[None]] = set()
        self._freed, self._idle, self._stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._failures = 0
        self._came_at = 0.0

    @property
    def in_hand(self) -> int:
        return sum(claim.open for claim in self.claims)

    async def run(self) -> int:
        """Consume until `stop()`, the limit or idleness; how many messages were handled.

        A broker that cannot be reached is waited for; an error that waiting does not cure is raised. When this is
        cancelled, so are the handlers, and what they held is given back without a charge.
        """
        if self._began:
            raise InvalidRequest("a consumer runs once; make another")
        self._loop, self._began, self._running = asyncio.get_running_loop(), True, asyncio.current_task()
        self._came_at = self._loop.time()
        renewing = asyncio.create_task(self._renewer.run())
        failed: FairlaneError | None = None
        try:
            try:
                await self._scout()
            except FairlaneError as error:
                failed = error  # raised after an orderly end
            self._stop()
            await self._over()
        except BaseException:
            self._stop()
            await self._give_up()
            raise
        finally:
            renewing.cancel()
            self.handling.close()
        if failed is not None:
            raise failed
        return self.handled

    def stop(self) -> None:
        """Take nothing new, let the handlers that run finish, ack what they did, give the rest back. May be called
        from any thread, and from a handler."""
        self.stopped = True
        if self._began and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    def start(self) -> None:
        """Run beside the caller, until `end`."""
        self._task = asyncio.create_task(self.run(), name=f"fairlane consumer of {self.queue}")

    async def end(self, *, grace_seconds: float | None = None) -> None:
        """Stop, and cancel the handlers that still run after so long. Raises what the run failed of."""
        assert self._task is not None
        self.stop()
        await asyncio.wait([self._task], timeout=grace_seconds)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def __aenter__(self) -> Consumer:
        self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.end()

    def _stop(self) -> None:
        self.stopped = True
        self._stopping.set()
        self._freed.set()
        for poll, began_at in self._polls.items():
            # One that was sent a moment ago may be answered now: what it gives would be nobody's until its lease ends.
            self._loop.call_later(max(0.0, began_at + ANSWER_SECONDS - self._loop.time()), poll.cancel)

    async def _over(self) -> None:
        while self._helpers:
            await asyncio.wait(self._helpers)
        await self._idle.wait()

    async def _give_up(self) -> None:
        """Cancel the handlers, and release all leases that are left, whatever those do."""
        for claim in self.claims:
            self._there(claim.cancel)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._over()
        if self.claims:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self.settler.drain()
            await asyncio.gather(*(self._release(claim) for claim in self.claims if not claim.lost))

    async def _scout(self) -> None:
        """The one pop that waits when there is nothing: a consumer that froze has no more than one to be answered."""
        while not self.stopped:
            if not await self._fetch(long=True):
                if not (self._left or self.claims or self._polls):
                    return  # the limit is reached
                self._freed.clear()
                await self._freed.wait()

    async def _help(self) -> None:
        """Pops beside the one that waits, for as long as there is more than one pop can bring."""
        while not self.stopped and await self._fetch(long=False):
            pass

    async def _fetch(self, *, long: bool) -> bool:
        """One pop. Whether it was worth while: for the one that waits, whether there was room to ask for something;
        for others, whether there may be more."""
        messages, lanes = self.handling.asks(self) if self.free > 0 else (0, 0)
        messages = min(messages, self._left)
        if not messages:
            return False
        slots = messages if self.handling.slot_each(ordered=self.ordered is not False) else 1
        self.free -= slots
        self._left -= messages
        lanes, batch = min(lanes, messages), None
        try:
            batch = await self._pop(messages, lanes, long=long)
        finally:
            self._left += messages - len(batch or ())
            self._give(slots)
        if not batch:
            self._check_idle()
            return long
        found = len({message.partition_id for message in batch})
        more = len(batch) == messages or found == lanes
        self.per_lane = len(batch) / found if more else 0.0
        self._take(batch)
        if more and not self.stopped and self.free > 0 and self._left and len(self._helpers) < POLLS_MAX - 1:
            helper = asyncio.create_task(self._help())
            self._helpers.add(helper)
            helper.add_done_callback(self._helpers.discard)
        return more or long

    async def _pop(self, messages: int, lanes: int, *, long: bool) -> Any:
        """A pop that `stop` can end without ending the task that waits for it."""
        idle = POLL_SECONDS if self._idle_seconds is None else self._idle_seconds
        wait = min(POLL_SECONDS, max(idle, 1.0) if self.claims else idle) if long else 0.0
        popping = self.verbs.pop(
            self.queue, group=self.group, batch=messages, partitions=lanes, wait=wait, **self._pops
        )
        poll = asyncio.ensure_future(popping)
        self._polls[poll] = self._loop.time()
        try:
            await asyncio.wait([poll])
        finally:
            poll.cancel()
            del self._polls[poll]
        if poll.cancelled():
            return None
        try:
            batch = poll.result()
        except FairlaneError as error:
            if not long:
                return None  # the pop that waits meets it too
            if not (error.retryable or self.handling.stubborn):
                raise
            await self._pause(error)
            return None
        if self._failures:
            self.handling.log.info("pops from queue %(queue)r work again", self._names)
        self._failures = 0
        return batch

    async def _pause(self, error: FairlaneError) -> None:
        """Wait for a broker that cannot be reached, or for the stop."""
        self._failures += 1
        delay = backoff(self._failures, base=0.2, most=10.0)
        text = "cannot pop from queue %(queue)r, retrying in %(seconds).1f s: %(error)s"
        self.handling.log.warning(text, {**self._names, "seconds": delay, "error": error})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), delay)

    def _check_idle(self) -> None:
        """Stop when nothing came for so long."""
        idle = self._idle_seconds
        if idle is None or self.claims or self._failures:
            return
        if self._loop.time() - self._came_at >= idle - 0.001:
            self._stop()

    def _take(self, batch: Any) -> None:
        self.ordered = bool(batch.ordered)
        claim = Claim(batch, slot_each=self.handling.slot_each(ordered=batch.ordered), owner=self._running)
        self.free -= len(batch) if claim.slot_each else 1
        self.claims.add(claim)
        self._came_at = self._loop.time()
        self._idle.clear()
        if self._auto_renew:
            self._renewer.hold(claim)
        self._there(self._begin, claim)

    def _there(self, call: Callable[..., None], *arguments: Any) -> None:
        if self.handling.loop is None:
            call(*arguments)
        else:
            self.handling.loop.call_soon_threadsafe(call, *arguments)

    def _begin(self, claim: Claim) -> None:
        parts = [deque(claim.batch)] if self.handling.whole else self.handling.parts(claim)
        claim.begin(parts, self._work, lambda left: self._report(Report(claim, left, left=left)))

    async def _work(self, claim: Claim, part: deque[Any]) -> None:
        """One after the other, until one of them comes again: then so do those behind it."""
        try:
            while part and not self.stopped and not claim.lost:
                await self._step(claim, part)
        finally:
            if part:
                self._report(Report(claim, len(part), left=len(part)))

    async def _step(self, claim: Claim, part: deque[Any]) -> None:
        """Handle the first message of a part, or all of it, and tell."""
        some = list(part) if self.handling.whole else [part[0]]
        began = perf_counter()
        try:
            done = await self._handle(claim, some)
        except BaseException as error:  # the handler's boundary: its failure is a verdict
            done = charged(some, self.handling.on_error(claim.failure(error), some))
        took = (perf_counter() - began) / len(some)
        self.seconds = self.seconds * 0.9 + took * 0.1 if self.seconds else took
        for _ in some:
            part.popleft()
        gone, lane = len(some), some[0].partition_id
        if claim.ordered and part and done.items and comes_again(done.items[0]):
            gone += _skip(part, lane)
        pushed = done.pushed if any(item.status == "completed" for item in done.items) else ()
        known = asyncio.get_running_loop().create_future() if pushed else None
        self._report(Report(claim, gone, some, done.items, pushed, done.left, known))
        if self.handling.exits:
            self.stop()
        # The ack of the next message would finish this one too, so that its own must be known before.
        if known is not None and not await known and part:
            self._report(Report(claim, _skip(part, lane)))

    def _report(self, report: Report) -> None:
        """Called on the handlers' loop; what comes in a burst crosses over together."""
        if self.handling.loop is None:
            self._hear(report)
            return
        self._reported.append(report)
        if not self._notified:
            self._notified = True
            self._loop.call_soon_threadsafe(self._listen)

    def _listen(self) -> None:
        self._notified = False  # before looking, so that what comes later is told again
        while self._reported:
            self._hear(self._reported.popleft())

    def _hear(self, report: Report) -> None:
        claim = report.claim
        claim.open -= report.gone
        claim.left += report.left
        claim.unhandled += report.gone - len(report.items)
        self.handled += len(report.items)
        self.failed += sum([item.status in ("failed", "dlq") for item in report.items])
        if claim.slot_each:
            self._give(report.gone)
        if report.items and not claim.lost:
            self.settler.add(report)
            return
        for item in report.items:
            self.settler.refused(item.transaction_id)
        report.tell(False)
        self.settled(claim)

    def _give(self, slots: int) -> None:
        self.free += slots
        self._freed.set()

    def settled(self, claim: Claim) -> None:
        """A claim of which everything is known is over."""
        if claim.open or claim.unacked or claim not in self.claims:
            return
        self._renewer.let_go(claim)
        if claim.left and not claim.lost:
            claim.unacked = -1  # until it is given back
            task = asyncio.create_task(self._release(claim))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)
            task.add_done_callback(lambda _: self._forget(claim))
        else:
            self._forget(claim)

    def _forget(self, claim: Claim) -> None:
        self.claims.discard(claim)
        self._came_at = self._loop.time()
        self._left += claim.unhandled
        self._give(0 if claim.slot_each else 1)
        if not self.claims:
            self._idle.set()

    async def _release(self, claim: Claim) -> None:
        """At once instead of when the lease ends, and without a charge."""
        try:
            await self.verbs.release(claim.lease)
        except FairlaneError as error:
            text = "cannot release lease %(lease)s, it expires by itself: %(error)s"
            self.handling.log.warning(text, {**self._names, "lease": claim.lease, "error": error})

    def lose(self, claim: Claim) -> None:
        """The lease went to somebody else: work under it is in vain."""
        if claim.lost:
            return
        claim.lost = True
        text = "lost lease %(lease)s: %(messages)d messages of queue %(queue)r are delivered again"
        self.handling.log.warning(text, {**self._names, "lease": claim.lease, "messages": claim.open})
        self.handling.lost(claim)


def _skip(part: deque[Any], lane: PartitionId) -> int:
    """Take the rest of a lane out of a part; how many they were."""
    before = len(part)
    others = [message for message in part if message.partition_id != lane]
    part.clear()
    part.extend(others)
    return before - len(others)
