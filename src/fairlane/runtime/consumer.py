"""The consumer loop: pops messages, calls handlers, renews leases, acks by the verdicts and releases the rest.

Clients, workers and the broker's own commands share it. They differ in the verbs they call (`Verbs`) and in how a
message is handled (`Handling`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.limits import COUNT_MAX
from fairlane.model.verdict import is_redelivered
from fairlane.otel import tracing
from fairlane.runtime.cancel_watch import CancelWatch
from fairlane.runtime.claim import Claim, Renewer, Report, take_rest_of_lane
from fairlane.runtime.handling import Handling, Verbs, call_handler
from fairlane.runtime.polls import Polls
from fairlane.runtime.progress import ProgressReporter
from fairlane.runtime.settler import Settler

POLLS_MAX = 4
"""Maximum number of concurrent pops."""
CANCEL_SECONDS = 2.0
"""Time for cancelled handlers to end. After it their leases are released anyway."""


class Consumer:
    """A consumer of one queue and group. It handles the messages of a lane in order, and acks each one."""

    def __init__(
        self,
        verbs: Verbs,
        queue: str,
        handling: Handling,
        *,
        group: str,
        slots: int,
        auto_renew: bool = True,
        limit: int | None = None,
        idle_seconds: float | None = None,
        **pops: Any,
    ) -> None:
        self.verbs, self.queue, self.group = verbs, queue, group
        self.names = {"queue": queue, "group": group}
        self.handling = handling
        self._handle = tracing.traced_handler(handling.handle, handling.verb, handling.span_name or queue)
        self.handled = 0
        """Messages that were handled, whatever their verdict."""
        self.failed = 0
        """Handled messages that failed, or became dead letters."""
        self.free_slots = self.slots = slots
        self.claims: set[Claim] = set()
        self.stopped = False
        self.ordered: bool | None = None
        """True if the queue was ordered at the last pop. None before the first pop."""
        self.seconds = 0.0
        """Average handling time of a message. 0.0 before the first."""
        self.per_lane = 0.0
        """Messages per lane in the last pop. 0.0 if it returned less than requested."""
        self.renews = auto_renew
        self._idle_seconds = idle_seconds
        self._remaining = COUNT_MAX if limit is None else limit
        self._watch, self._progress = CancelWatch(self), ProgressReporter(self)
        self.renewer = Renewer(verbs, self.claims, self.lose_lease, self._watch.apply, handling.log)
        self.settler = Settler(self)
        self._reported: deque[Report] = deque()
        self._notified = self._began = False
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[int] | None = None
        self._polls = Polls(self, idle_seconds, **pops)
        self._extra_pollers: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[None]] = set()
        self._freed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.awaits_slot = False
        """True while the next pop waits for a slot."""
        self._last_message_at = 0.0

    @property
    def in_hand(self) -> int:
        return sum(claim.open for claim in self.claims)

    async def run(self) -> int:
        """Consume until `stop()`, the limit or idleness. Returns the number of handled messages.

        Retries while the broker cannot be reached, and raises errors that a retry does not cure. Cancelling it cancels
        the handlers and releases their messages without counting an attempt.
        """
        if self._began:
            raise InvalidRequest("a consumer runs only once; create another")
        self._loop, self._began, self._running = asyncio.get_running_loop(), True, asyncio.current_task()
        self._last_message_at = self._loop.time()
        background = [asyncio.create_task(one.run()) for one in (self.renewer, self._watch, self._progress)]
        failed: FairlaneError | None = None
        try:
            try:
                await self._poll_loop()
            except FairlaneError as error:
                failed = error  # raised after an orderly end
            self._stop()
            await self._wait_until_idle()
        except BaseException:
            self._stop()
            await self._abort()
            raise
        finally:
            for task in background:
                task.cancel()
            self.handling.close()
        if failed is not None:
            raise failed
        return self.handled

    def stop(self) -> None:
        """Pop no more messages, let running handlers finish, and release the rest. May be called from any thread."""
        self.stopped = True
        if self._began and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop)

    def start(self) -> None:
        """Run in the background, until `end`."""
        self._task = asyncio.create_task(self.run(), name=f"fairlane consumer of {self.queue}")

    async def end(self, *, grace_seconds: float | None = None) -> None:
        """Stop, and cancel the handlers that still run after `grace_seconds`. Raises the error of `run`."""
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
        self._freed.set()
        self._polls.stop()

    async def _wait_until_idle(self) -> None:
        while self._extra_pollers:
            await asyncio.wait(self._extra_pollers)
        await self._idle.wait()

    async def _abort(self) -> None:
        """Cancel the handlers, and release all remaining leases."""
        for claim in self.claims:
            self.on_handler_loop(claim.cancel)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._wait_until_idle()
        if self.claims:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self.settler.drain()
            await asyncio.gather(*(self._release(claim) for claim in self.claims if not claim.lost))

    async def _poll_loop(self) -> None:
        """Pop until stopped. Only this poll waits for messages, so a frozen consumer holds one pop at most."""
        while not self.stopped:
            if not await self._fetch(long=True):
                if not (self._remaining or self.claims or self._polls):
                    return  # the limit is reached
                self._freed.clear()
                self.awaits_slot = True
                await self._freed.wait()
                self.awaits_slot = False

    def poll_more(self) -> None:
        """Pop while a poll is waiting, if there are free slots."""
        pollers = self._extra_pollers
        if not self.stopped and self.free_slots > 0 and self._remaining and len(pollers) < POLLS_MAX - 1:
            poller = asyncio.create_task(self._extra_polls())
            pollers.add(poller)
            poller.add_done_callback(pollers.discard)

    async def _extra_polls(self) -> None:
        """Pop without waiting, for as long as there may be more messages than one pop returns."""
        while not self.stopped and await self._fetch(long=False):
            pass

    async def _fetch(self, *, long: bool) -> bool:
        """Pop once and start the handlers. Returns False if no slot is free, or if not `long` and nothing is left."""
        messages, lanes = self.handling.next_pop_size(self) if self.free_slots > 0 else (0, 0)
        messages = min(messages, self._remaining)
        if not messages:
            return False
        slots = messages if self.handling.slot_each(ordered=self.ordered is not False) else 1
        self.free_slots -= slots
        self._remaining -= messages
        lanes, batch = min(lanes, messages), None
        try:
            batch = await self._polls.pop(messages, lanes, long=long)
        finally:
            self._remaining += messages - len(batch or ())
            self._free(slots)
        if not batch:
            self._check_idle()
            return long
        found = len({message.partition_id for message in batch})
        more = len(batch) == messages or found == lanes
        self.per_lane = len(batch) / found if more else 0.0
        self._claim_batch(batch)
        if more:
            self.poll_more()
        return more or long

    def _check_idle(self) -> None:
        """Stop if no message came for `idle_seconds`."""
        idle = self._idle_seconds
        if idle is None or self.claims or self._polls.failures:
            return
        if self._loop.time() - self._last_message_at >= idle - 0.001:
            self._stop()

    def _claim_batch(self, batch: Any) -> None:
        self.ordered = bool(batch.ordered)
        claim = Claim(batch, slot_each=self.handling.slot_each(ordered=batch.ordered), owner=self._running)
        self.free_slots -= len(batch) if claim.slot_each else 1
        self.claims.add(claim)
        self._last_message_at = self._loop.time()
        self._idle.clear()
        self._watch.wake()
        claim.on_progress = self._progress.report
        if self.renews:
            self.renewer.schedule(claim)
        self.on_handler_loop(self._start_claim, claim)

    def on_handler_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        if self.handling.loop is None:
            call(*arguments)
        else:
            self.handling.loop.call_soon_threadsafe(call, *arguments)

    def _start_claim(self, claim: Claim) -> None:
        parts = [deque(claim.batch)] if self.handling.whole_batches else self.handling.parts(claim)
        claim.start(parts, self._handle_part, lambda count: self._report(Report(claim, count, unstarted=count)))

    async def _handle_part(self, claim: Claim, part: deque[Any]) -> None:
        """Handle the messages of a part in order. After a failed one, the rest of its lane is delivered again too."""
        try:
            while part and not self.stopped and not claim.lost:
                await self._handle_next(claim, part)
        finally:
            if part:
                self._report(Report(claim, len(part), unstarted=len(part)))

    async def _handle_next(self, claim: Claim, part: deque[Any]) -> None:
        """Handle the first message of a part, or the whole part, and report the verdicts."""
        if dropped := claim.drop_cancelled(part):
            self._report(Report(claim, dropped))
            return
        some, began = list(part) if self.handling.whole_batches else [part[0]], perf_counter()
        done = await call_handler(self.handling, self._handle, claim, some)
        took = (perf_counter() - began) / len(some)
        self.seconds = self.seconds * 0.9 + took * 0.1 if self.seconds else took
        for _ in some:
            part.popleft()
        finished, lane = len(some), some[0].partition_id
        if claim.ordered and part and done.items and is_redelivered(done.items[0]):
            finished += take_rest_of_lane(part, lane)
        pushed = done.pushed if any(item.status == "completed" for item in done.items) else ()
        known = asyncio.get_running_loop().create_future() if pushed else None
        kept = claim.without_cancelled(some)
        self._report(Report(claim, finished, kept, done.items, pushed, done.unstarted, done.completed, known))
        if self.handling.exits:
            self.stop()
        # The ack of the next message would ack this one too, so its transaction must be finished first.
        if known is not None and not await known and part:
            self._report(Report(claim, take_rest_of_lane(part, lane)))

    def _report(self, report: Report) -> None:
        """Pass a report from the handlers' loop to the loop of the pops. A burst of reports wakes it once."""
        if self.handling.loop is None:
            self._on_report(report)
            return
        self._reported.append(report)
        if not self._notified:
            self._notified = True
            self._loop.call_soon_threadsafe(self._drain_reports)

    def _drain_reports(self) -> None:
        self._notified = False  # before the loop, so that later reports wake it again
        while self._reported:
            self._on_report(self._reported.popleft())

    def _on_report(self, report: Report) -> None:
        claim = report.claim
        claim.open -= report.finished
        claim.unstarted += report.unstarted
        handled = len(report.items) + report.completed
        claim.unhandled += report.finished - handled
        self.handled += handled
        self.failed += sum([item.status in ("failed", "dlq") for item in report.items])
        self._last_message_at = self._loop.time()
        if claim.slot_each:
            self._free(report.finished)
        if report.items and not claim.lost:
            self.settler.add(report)
            return
        for item in report.items:
            self.settler.refused(item.transaction_id)
        report.resolve(False)
        self.finish_if_settled(claim)

    def _free(self, slots: int) -> None:
        self.free_slots += slots
        self._freed.set()

    def free_slot_of(self, claim: Claim) -> None:
        """Free the slot of a claim, unless its messages have a slot each or it is free already."""
        self._free(claim.holds_slot)
        claim.holds_slot = False

    def finish_if_settled(self, claim: Claim) -> None:
        """Remove a claim whose messages are all reported and acked. Releases its unstarted messages first."""
        if claim.open or claim.unacked or claim not in self.claims:
            return
        self.renewer.unschedule(claim)
        if claim.unstarted and not claim.lost:
            claim.unacked = -1  # until it is released
            task = asyncio.create_task(self._release(claim))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)
            task.add_done_callback(lambda _: self._remove(claim))
        else:
            self._remove(claim)

    def _remove(self, claim: Claim) -> None:
        self.claims.discard(claim)
        self._remaining += claim.unhandled
        self.free_slot_of(claim)
        if not self.claims:
            self._idle.set()

    async def _release(self, claim: Claim) -> None:
        """Release a lease, so that its messages are delivered at once, without counting an attempt."""
        try:
            await self.verbs.release(claim.lease)
        except FairlaneError as error:
            text = "cannot release lease %(lease)s, it expires by itself: %(error)s"
            self.handling.log.warning(text, {**self.names, "lease": claim.lease, "error": error})

    def lose_lease(self, claim: Claim) -> None:
        """Mark a lease as lost. Work under it is in vain."""
        if claim.lost:
            return
        claim.lost = True
        text = "lost lease %(lease)s: %(messages)d messages of queue %(queue)r are delivered again"
        self.handling.log.warning(text, {**self.names, "lease": claim.lease, "messages": claim.open})
        self.handling.lost(claim)
