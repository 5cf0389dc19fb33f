"""The pops of a consumer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec

from fairlane.client.message import Batch
from fairlane.client.pops import Pops
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.group import Subscription
from fairlane.model.limits import BATCH_ITEMS_MAX, COUNT_MAX, LEASE_SECONDS_MAX
from fairlane.model.names import QUEUE_MODE, check_count
from fairlane.runtime.backoff import backoff

log = logging.getLogger("fairlane.client")

POLL_SECONDS = 30.0
POLLS_MAX = 4  # waiting pops of one consumer: an idle one with many workers does not park one for each


class Consuming(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a consumer."""

    queue: str
    type: Any = Any
    group: str = QUEUE_MODE
    partition: str | None = None
    batch: int = 1
    """Messages of one pop."""
    partitions: int = 1
    """Lanes of one pop. Their messages are handled by one worker, one after another."""
    concurrency: int = 1
    """Workers: batches that are handled at the same time. Two are never of the same lane."""
    lease_seconds: int | None = None
    """How long a lease is, and each renewal; None: as long as the queue says."""
    auto_renew: bool = True
    """Keep leases while a handler runs, however long."""
    subscription: Subscription = Subscription()
    limit: int | None = None
    """Stop after so many messages."""
    idle_seconds: float | None = None
    """Stop when nothing came for so long."""

    def check(self) -> Consuming:
        check_count("batch", self.batch, least=1, most=BATCH_ITEMS_MAX)
        check_count("concurrency", self.concurrency, least=1, most=BATCH_ITEMS_MAX)
        if self.lease_seconds is not None:
            check_count("lease_seconds", self.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        if self.limit is not None:
            check_count("limit", self.limit, least=0, most=COUNT_MAX)
        if self.idle_seconds is not None and self.idle_seconds < 0:
            raise InvalidRequest(f"idle_seconds is {self.idle_seconds}; it must not be negative")
        return self


class Poller:
    """Pops for the workers of a consumer, until it is stopped, the limit is reached or nothing comes any more."""

    def __init__(self, verbs: Pops, how: Consuming) -> None:
        self.stopped = False
        self._verbs = verbs
        self._how = how
        self._left = COUNT_MAX if how.limit is None else how.limit
        self._busy = 0
        self._failures = 0
        self._came_at = 0.0
        self._polls: set[asyncio.Task[Batch[Any]]] = set()
        self._slots = asyncio.Semaphore(min(how.concurrency, POLLS_MAX))
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped = True
        self._stopped.set()
        for poll in self._polls:
            poll.cancel()

    async def next(self) -> Batch[Any] | None:
        """The next batch, followed by a call of `done`; None when there is none to come for this worker."""
        loop = asyncio.get_running_loop()
        self._came_at = self._came_at or loop.time()
        while not self.stopped:
            async with self._slots:
                wanted = min(self._how.batch, self._left)
                if self.stopped or not wanted:
                    return None  # what the others have in hand is all, or they go on with what is left of it
                self._left -= wanted
                batch = await self._poll(wanted)
                self._left += wanted - len(batch or ())
            if batch:
                self._busy += 1
                self._came_at = loop.time()
                return batch
            if self._idle(loop.time()):
                self.stop()
        return None

    def done(self, unhandled: int) -> None:
        """A batch is finished, but for so many messages that come again without having been looked at."""
        self._left += unhandled
        self._busy -= 1
        self._came_at = asyncio.get_running_loop().time()

    def _idle(self, now: float) -> bool:
        idle = self._how.idle_seconds
        return idle is not None and not self._busy and not self._failures and now - self._came_at >= idle - 0.001

    def _wait(self) -> float:
        idle = self._how.idle_seconds
        if idle is None:
            return POLL_SECONDS
        return min(POLL_SECONDS, max(idle, 1.0) if self._busy else idle)

    async def _poll(self, wanted: int) -> Batch[Any] | None:
        """A pop that `stop` can end without ending the worker that waits for it."""
        how = self._how
        poll = asyncio.create_task(
            self._verbs.pop(
                how.queue,
                type=how.type,
                group=how.group,
                batch=wanted,
                partitions=how.partitions,
                partition=how.partition,
                wait=self._wait(),
                lease_seconds=how.lease_seconds,
                subscription=how.subscription,
            )
        )
        self._polls.add(poll)
        try:
            await asyncio.wait([poll])
        finally:
            poll.cancel()  # in case that it is the worker who was cancelled
            self._polls.discard(poll)
        if poll.cancelled():
            return None
        try:
            batch = poll.result()
        except FairlaneError as error:
            if not error.retryable:
                raise
            await self._pause(error)
            return None
        self._failures = 0
        return batch

    async def _pause(self, error: FairlaneError) -> None:
        """Wait for a broker that cannot be reached, or for the stop."""
        self._failures += 1
        delay = backoff(self._failures, base=1.0, most=POLL_SECONDS)
        log.warning("cannot pop from queue %r, retrying in %.1f s: %s", self._how.queue, delay, error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), delay)
