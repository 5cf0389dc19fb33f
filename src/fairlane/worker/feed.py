"""The feed of one queue and group: takes messages for its handlers, as many as they can work on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any

from fairlane.app.app import App, Subscription
from fairlane.client.client import Client
from fairlane.client.keeper import Keeper
from fairlane.client.message import Batch
from fairlane.errors import FairlaneError, NotFound
from fairlane.runtime.backoff import backoff
from fairlane.worker.claim import Claim, Verdicts
from fairlane.worker.runner import HandlerRunner
from fairlane.worker.stage import Stage
from fairlane.worker.verdicts import VerdictSender

POLL_SECONDS = 30.0
POLLS_MAX = 4  # pops on their way at once: while one is answered, another is asked
LANE_SECONDS = 0.05
"""What one pop takes of an ordered queue should be handled in about this time: messages of one lane come one after
another, and while they wait in this worker no other can have them."""
LANES_LEAST = 16
ORDERING_SECONDS = 30.0
ANSWER_SECONDS = 0.5
"""A pop that was not answered by then waits for messages."""
_DRAIN_SECONDS = 2.0

log = logging.getLogger("fairlane.worker")


class Feed:
    """Pops, keeps the leases alive, and acks. What is in hand never exceeds the concurrency (times the size of a
    batch)."""

    def __init__(self, app: App, subscription: Subscription, client: Client, stage: Stage, concurrency: int) -> None:
        self.subscription = subscription
        self.concurrency = concurrency
        self.free = self.room = concurrency * subscription.size
        self.claims: set[Claim] = set()
        self.stopped = False
        self._client = client
        self._stage = stage
        self._runner = HandlerRunner(app, subscription, stage, concurrency, self._report)
        self._keeper = Keeper(client, self._lease_ended)
        self.verdict_sender = VerdictSender(client, subscription, self._lose, self._look)
        self._reported: deque[Verdicts] = deque()
        self._notified = False
        self._loop = asyncio.get_running_loop()
        self._polls: dict[asyncio.Task[Batch[Any]], float] = {}
        self._helpers: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self._failures = 0
        self._ordered = True
        self._ordering_at = 0.0
        self._per_lane = 0.0

    @property
    def queue(self) -> str:
        return self.subscription.queue

    @property
    def in_hand(self) -> int:
        return sum(claim.open for claim in self.claims)

    @property
    def mean_seconds(self) -> float:
        """That a message takes, about; 0.0 before the first."""
        return self._runner.seconds

    async def run(self) -> None:
        """Until `stop`. An error that waiting does not cure is raised."""
        keeping = asyncio.create_task(self._keeper.run())
        try:
            await self._scout()
        finally:
            self.stop()
            while self._helpers:
                await asyncio.wait(self._helpers)
            await self._idle.wait()
            keeping.cancel()
            await asyncio.wait([keeping])

    def stop(self) -> None:
        """Take nothing new, and begin nothing new of what is here."""
        self.stopped = True
        self._stopped.set()
        self._freed.set()
        for claim in self.claims:
            claim.stopped = True
        for poll, began_at in self._polls.items():
            # One that was sent a moment ago may be answered now: what it gives would be nobody's until its lease ends.
            self._loop.call_later(max(0.0, began_at + ANSWER_SECONDS - self._loop.time()), poll.cancel)

    def cancel(self) -> None:
        """End the handlers that run; what they had is given back."""
        for claim in list(self.claims):
            claim.stopped = True
            self._stage.soon(claim.cancel)

    async def give_back(self) -> None:
        """Release all leases that are left, whatever their handlers do."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self.verdict_sender.drain()
        await asyncio.gather(*(self._release(claim) for claim in self.claims if not claim.lost))

    async def _scout(self) -> None:
        """The one pop that waits when there is nothing: a worker that froze has no more than one to be answered."""
        while True:
            await self._learn_ordering()
            if self.stopped:
                return
            if self._size():  # the pops beside this one may have taken all places meanwhile
                await self._fetch(POLL_SECONDS)
            else:
                self._freed.clear()
                await self._freed.wait()

    async def _help(self) -> None:
        """Pops beside the one that waits, for as long as there is more than one pop can bring."""
        while not self.stopped and self._size():
            if not await self._fetch(0.0):
                return

    async def _fetch(self, wait: float) -> bool:
        """One pop; whether it brought all that it asked for, so that there may be more."""
        size = self._size()
        self.free -= size
        batch: Batch[Any] | None = None
        try:
            batch = await self._pop(size, wait)
        finally:
            self._give(size - len(batch or ()))
        if not batch:
            return False
        self._take(batch, full=len(batch) == size)
        if len(batch) == size and self._size() and len(self._helpers) < POLLS_MAX - 1 and not self.stopped:
            helper = asyncio.create_task(self._help())
            self._helpers.add(helper)
            helper.add_done_callback(self._helpers.discard)
        return len(batch) == size

    def _size(self) -> int:
        """How much to ask for."""
        if self.subscription.batched:
            return min(self.free, self.subscription.size)
        share = -(-self.room // min(self.concurrency, POLLS_MAX))
        if not self._ordered:
            return min(self.free, share)
        seconds = self._runner.seconds
        lane = 1 if not seconds else max(1, int(LANE_SECONDS / seconds))
        return min(self.free, share, lane)

    async def _learn_ordering(self) -> None:
        """Messages of an unordered queue are handled beside each other."""
        if self._loop.time() < self._ordering_at:
            return
        self._ordering_at = self._loop.time() + ORDERING_SECONDS
        with contextlib.suppress(FairlaneError):
            try:
                queue = await self._client.queue(self.subscription.queue, limit=1)
            except NotFound:
                self._ordering_at = 0.0  # it is made by the first push
                return
            self._ordered = queue.options.get("ordering") != "unordered"

    async def _pop(self, size: int, wait: float) -> Batch[Any] | None:
        """A pop that `stop` can end without ending the task that waits for it."""
        poll = asyncio.create_task(
            self._client.pop(
                self.subscription.queue,
                group=self.subscription.group,
                batch=size,
                partitions=breadth(size, self._per_lane),
                wait=wait,
                lease_seconds=self.subscription.lease_seconds,
            )
        )
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
            if not wait:
                return None  # the pop that waits meets it too
            if not error.retryable:
                raise
            await self._pause(error)
            return None
        if self._failures:
            log.info("pops from queue %r work again", self.subscription.queue)
        self._failures = 0
        return batch

    async def _pause(self, error: FairlaneError) -> None:
        self._failures += 1
        delay = backoff(self._failures, base=0.2, most=10.0)
        log.warning("cannot pop from queue %r, retrying in %.1f s: %s", self.subscription.queue, delay, error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), delay)

    def _take(self, batch: Batch[Any], *, full: bool) -> None:
        lanes = len({message.partition_id for message in batch})
        self._per_lane = len(batch) / lanes if full else 0.0
        claim = Claim(batch)
        claim.stopped = self.stopped
        self.claims.add(claim)
        self._idle.clear()
        self._keeper.hold(claim.lease, batch.lease_seconds)
        self._stage.soon(lambda: self._runner.begin(claim, ordered=batch.ordered or self._ordered))

    def _report(self, verdicts: Verdicts) -> None:
        """Called on the stage's loop; what comes in a burst crosses over together."""
        self._reported.append(verdicts)
        if not self._notified:
            self._notified = True
            self._loop.call_soon_threadsafe(self._listen)

    def _listen(self) -> None:
        self._notified = False  # before looking, so that what comes later is told again
        while self._reported:
            verdicts = self._reported.popleft()
            claim = verdicts.claim
            gone = len(verdicts.items) + verdicts.skipped + verdicts.left
            claim.open -= gone
            claim.left += verdicts.left
            self._give(gone)
            if verdicts.items and not claim.lost:
                self.verdict_sender.add(verdicts)
                continue
            for item in verdicts.items:
                self.verdict_sender.refused(item.transaction_id)
            self._look(claim)

    def _give(self, slots: int) -> None:
        if slots:
            self.free += slots
            self._freed.set()

    def _look(self, claim: Claim) -> None:
        """A claim of which everything is known is over."""
        if claim.open or claim.unacked or claim not in self.claims:
            return
        self._keeper.let_go(claim.lease)
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
        if not self.claims:
            self._idle.set()

    async def _release(self, claim: Claim) -> None:
        """At once instead of when the lease ends, and without a charge."""
        try:
            await self._client.release(claim.lease)
        except FairlaneError as error:
            log.warning("cannot release lease %s, it expires by itself: %s", claim.lease, error)

    def _lease_ended(self, lease: str) -> None:
        for claim in [claim for claim in self.claims if claim.lease == lease]:
            self._lose(claim)

    def _lose(self, claim: Claim) -> None:
        if claim.lost:
            return
        claim.lost = True
        log.warning(
            "lost lease %s: %d messages of queue %r are delivered again; their handlers are cancelled",
            claim.lease,
            claim.open,
            self.subscription.queue,
        )
        self._stage.soon(claim.cancel)


def breadth(size: int, per_lane: float) -> int:
    """From how many lanes to take so many messages, when each had so many lately; 0.0 when all are worth a look, for
    the last pop came short. A pop keeps others from the lanes that it looks at for a moment, so it asks for no more
    than it may need."""
    return size if not per_lane else min(size, max(LANES_LEAST, int(2 * size / per_lane)))
