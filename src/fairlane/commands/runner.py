"""The command runner of one queue: takes its messages and has them carried out, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from fairlane.broker.broker import Broker
from fairlane.broker.delivery import Batch, Delivery
from fairlane.commands.claim import Carrier, Claim
from fairlane.errors import FairlaneError, ShuttingDown
from fairlane.model.names import COMMANDS
from fairlane.runtime.backoff import backoff

CONCURRENCY = 32
"""Of one queue in one broker."""
POLL_SECONDS = 30.0

log = logging.getLogger(__name__)


class Runner:
    """Leases make it safe beside the runners of other brokers: none leads."""

    def __init__(self, broker: Broker, queue: str, carrier: Carrier, *, concurrency: int = CONCURRENCY) -> None:
        self.queue = queue
        self._broker = broker
        self._carrier = carrier
        self._free = concurrency
        self._freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._claims: set[Claim] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._polling: asyncio.Task[Batch] | None = None
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"fairlane commands of {self.queue}")

    async def stop(self, *, grace_seconds: float) -> None:
        """Begin nothing new, let what is under way end, and give back the rest; what is not over by then comes again
        when its lease ends."""
        self._stopping.set()
        self._freed.set()
        if self._polling is not None:
            self._polling.cancel()
        for claim in self._claims:
            claim.stopped = True
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._working:
            await asyncio.wait(self._working, timeout=grace_seconds)
        left = list(self._working)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            if self._free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            try:
                await self._turn()
                self._failures = 0
            except ShuttingDown:
                return
            except FairlaneError as error:
                self._failures += 1
                if self._failures == 1:
                    log.warning("cannot run commands of queue %r, retrying: %s", self.queue, error)
                with contextlib.suppress(TimeoutError):
                    pause = backoff(self._failures, base=0.2, most=5.0)
                    await asyncio.wait_for(self._stopping.wait(), pause)

    async def _turn(self) -> None:
        """One pop, and the work of what it brought begun."""
        queue = await self._broker.catalogue.queue(self._broker.tenant, self.queue, make=False)
        unordered = queue is not None and queue.options.ordering == "unordered"
        messages, lanes = self._carrier.asks(self._free, unordered=unordered)
        popping = self._broker.pop(
            self.queue,
            group=COMMANDS,
            batch=messages,
            partitions=lanes,
            wait=POLL_SECONDS,
        )
        self._polling = asyncio.create_task(popping)
        await asyncio.wait([self._polling])
        polled, self._polling = self._polling, None
        if polled.cancelled():
            return
        batch = polled.result()
        if batch:
            self._begin(Claim(self._broker, batch, unordered=unordered))

    def _begin(self, claim: Claim) -> None:
        claim.stopped = self._stopping.is_set()
        parts = self._carrier.parts(claim.batch, unordered=claim.unordered)
        self._free -= len(parts)
        self._claims.add(claim)
        task = asyncio.create_task(self._work(claim, parts))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self, claim: Claim, parts: list[Sequence[Delivery]]) -> None:
        keeping = asyncio.create_task(claim.keep())
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self._part(claim, part))
        except* FairlaneError as errors:
            claim.left += 1
            log.warning(
                "cannot ack commands of queue %r, they are delivered again: %s", self.queue, errors.exceptions[0]
            )
        except* asyncio.CancelledError:
            claim.left += 1
        finally:
            keeping.cancel()
            self._claims.discard(claim)
            with contextlib.suppress(FairlaneError):  # then the lease ends by itself
                await claim.give_back()

    async def _part(self, claim: Claim, part: Sequence[Delivery]) -> None:
        try:
            await self._carrier.carry(claim, part)
        finally:
            self._free += 1
            self._freed.set()
