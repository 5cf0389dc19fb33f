"""The consume loop: pop, handle, ack, until told to stop."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any

from fairlane.client.acks import Acks
from fairlane.client.handlers import Handling
from fairlane.client.keeper import Keeper
from fairlane.client.leases import Leases
from fairlane.client.message import Batch
from fairlane.client.poller import Consuming, Poller
from fairlane.client.pops import Pops
from fairlane.client.verdicts import comes_again
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.outcome import AckItem

log = logging.getLogger("fairlane.client")


class Verbs(Pops, Acks, Leases):
    """The verbs that a consumer needs of its client."""


class Consumer:
    """A consumer: takes messages of a queue and gives them to a handler.

    Run it with `await consumer.run()`, or beside something else with `async with consumer`, whose end stops it.
    Messages of one lane are handled one after another, in order; each is acked when its handler is done with it.
    """

    def __init__(self, verbs: Verbs, how: Consuming, handling: Handling) -> None:
        self.handled = 0
        """Messages that the handler was done with, whatever came of them."""
        self.failed = 0
        """Those of them that come again."""
        self._verbs = verbs
        self._how = how
        self._handling = handling
        self._poller = Poller(verbs, how)
        self._keeper = Keeper(verbs)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: asyncio.Task[int] | None = None

    async def run(self) -> int:
        """Consume until `stop()`, the limit or idleness; how many messages were handled.

        A broker that cannot be reached is waited for; an error that waiting does not cure is raised. When this is
        cancelled, so are the handlers, and what they held is given back without a charge.
        """
        if self._loop is not None:
            raise InvalidRequest("a consumer runs once; make another")
        self._loop = asyncio.get_running_loop()
        keeping = asyncio.create_task(self._keeper.run()) if self._how.auto_renew else None
        workers = [asyncio.create_task(self._work()) for _ in range(self._how.concurrency)]
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            self._poller.stop()
            await asyncio.wait(workers)
        finally:
            for worker in workers:
                worker.cancel()  # only those that a cancelled run leaves behind
            results = await asyncio.gather(*workers, return_exceptions=True)
            if keeping is not None:
                keeping.cancel()
                await asyncio.wait([keeping])
            self._handling.close()
        for result in results:
            if result is not None:
                raise result
        return self.handled

    def stop(self) -> None:
        """Take nothing new, let the handlers that run finish, ack what they did, give the rest back. May be called
        from any thread, and from a handler."""
        self._poller.stopped = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._poller.stop)

    async def __aenter__(self) -> Consumer:
        self._background = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._background is not None
        self.stop()
        await self._background

    async def _work(self) -> None:
        while (batch := await self._poller.next()) is not None:
            await self._handle(batch)

    async def _handle(self, batch: Batch[Any]) -> None:
        """Every message of a batch: handled and acked, or given back."""
        lease, unhandled = batch.lease, len(batch)
        self._keeper.hold(lease, batch.lease_seconds)
        acks: list[AckItem] = []
        acking: asyncio.Task[None] | None = None
        whole = False
        try:
            async for items in self._handling.verdicts(batch, lambda: self._goes_on(lease)):
                unhandled -= len(items)
                acks += items
                if acking is None or acking.done():
                    acking = asyncio.create_task(self._ack(batch, acks))
            whole = not self._poller.stopped
        finally:
            if acking is not None:
                await acking
            self._keeper.let_go(lease)
            if not whole:
                await self._give_back(lease)
            self._poller.done(unhandled)

    def _goes_on(self, lease: str) -> bool:
        return not self._poller.stopped and not self._keeper.lost(lease)

    async def _ack(self, batch: Batch[Any], acks: list[AckItem]) -> None:
        """Ack what the handler said so far, and then what it said meanwhile."""
        first = batch[0]
        while acks:
            items = acks.copy()
            acks.clear()
            self.handled += len(items)
            self.failed += sum(map(comes_again, items))
            try:
                outcomes = await self._verbs.ack_many(items, group=first.group, queue=first.queue)
            except FairlaneError as error:
                log.warning(
                    "cannot ack %d messages of queue %r, they are delivered again: %s", len(items), first.queue, error
                )
                continue
            if any(outcome.code == "lease_lost" for outcome in outcomes):
                self._keeper.lose(batch.lease)

    async def _give_back(self, lease: str) -> None:
        """What was not begun, at once instead of when the lease ends. There may be nothing left of it."""
        try:
            await self._verbs.release(lease)
        except FairlaneError as error:
            log.warning("cannot release lease %s, it expires by itself: %s", lease, error)
