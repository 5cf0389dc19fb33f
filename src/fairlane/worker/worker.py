"""A worker: the feeds of an app's handlers, from start to an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from fairlane.app.app import App, Every, Subscription
from fairlane.client.client import DEFAULT_SERVER, Client
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.names import check_count
from fairlane.runtime.backoff import backoff
from fairlane.worker.feed import Feed
from fairlane.worker.heartbeat import Heartbeat
from fairlane.worker.mapped import MappedFeeds
from fairlane.worker.stage import Stage

GRACE_SECONDS = 25.0
_CANCEL_SECONDS = 2.0

log = logging.getLogger("fairlane.worker")


class Worker:
    """A worker: runs an app until `stop`. Polls, acks and renewals live on the caller's loop, handlers on one of their
    own."""

    def __init__(
        self,
        app: App,
        servers: str | Sequence[str] = DEFAULT_SERVER,
        *,
        queues: list[str] | None = None,
        concurrency: int | None = None,
        grace_seconds: float = GRACE_SECONDS,
        own_loop: bool = True,
        token: str | None = None,
    ) -> None:
        if concurrency is not None:
            check_count("concurrency", concurrency, least=1, most=10_000)
        self.app = app
        self._subscriptions = app.subscriptions(queues)
        if not self._subscriptions:
            raise InvalidRequest(f"app {app.name!r} has no handlers")
        self._client = Client(servers, attempts=1, token=token)
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._stage = Stage(app, self._client, own_loop=own_loop)
        self._stopping = asyncio.Event()
        self.feeds: list[Feed] = []
        self._mapped: MappedFeeds | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self.stuck = False
        """Plain functions still ran when the worker ended: their threads live on."""

    def stop(self) -> None:
        """Take nothing new, finish what runs, give back the rest."""
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop`, or an error that waiting does not cure, which is raised after an orderly end."""
        await self._stage.start()
        try:
            running = [asyncio.create_task(feed.run()) for feed in [self._feed(one) for one in self._subscriptions]]
            commands = [one for each in self._subscriptions for one in each.handlers.values() if one.kind == "command"]
            if commands:
                self._mapped = MappedFeeds(self._client, commands, self._feed)
                running.append(asyncio.create_task(self._mapped.run(self._stopping)))
            if declared := [one for one in self.app.schedules if one.name in {feed.queue for feed in self.feeds}]:
                running.append(asyncio.create_task(self._declare(declared)))
            self._heartbeat = asyncio.create_task(
                Heartbeat(self.app.name, self._client, self.feeds).run(self._stopping)
            )
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                self._stopping.set()
                await self._wind_down(running)
            for task in running:
                if task.done() and not task.cancelled() and (error := task.exception()):
                    raise error
        finally:
            if self._heartbeat is not None:
                self._stopping.set()
                await asyncio.wait([self._heartbeat], timeout=1.0)
                self._heartbeat.cancel()
            await self._client.close()
            await self._stage.close()

    def _feed(self, subscription: Subscription) -> Feed:
        concurrency = subscription.concurrency(self._concurrency)
        feed = Feed(self.app, subscription, self._client, self._stage, concurrency)
        self.feeds.append(feed)
        return feed

    @property
    def ready(self) -> bool:
        """Whether it takes messages of all queues that it is to take them of."""
        return bool(self.feeds) and (self._mapped is None or self._mapped.looked)

    async def _declare(self, schedules: list[Every]) -> None:
        """Tell the broker of the app's schedules, as soon as it can be told; then wait for the end, like a feed."""
        for one in schedules:
            failures = 0
            while not self._stopping.is_set():
                try:
                    await self._client.define_schedule(
                        one.name,
                        one.name,
                        every=one.seconds,
                        cron=one.cron,
                        timezone=one.timezone,
                        missed=one.missed,
                    )
                    break
                except FairlaneError as error:
                    if not error.retryable:
                        raise
                    failures += 1
                    with contextlib.suppress(TimeoutError):
                        pause = backoff(failures, base=0.2, most=10.0)
                        await asyncio.wait_for(self._stopping.wait(), pause)
        await self._stopping.wait()

    async def _wind_down(self, running: list[asyncio.Task[None]]) -> None:
        for feed in self.feeds:
            feed.stop()
        _, left = await asyncio.wait(running, timeout=self._grace_seconds)
        if left:
            log.warning(
                "%d messages are not finished; releasing their leases", sum(feed.in_hand for feed in self.feeds)
            )
            for feed in self.feeds:
                feed.cancel()
            _, left = await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        for task in left:
            self.stuck = True
            task.cancel()
        if left:
            await asyncio.wait(left)
            await asyncio.gather(*(feed.give_back() for feed in self.feeds))
