"""A worker: the consumers of an app's handlers, from start to an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Sequence
from typing import Any

from fairlane.client.client import Client
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.ids import uuid7
from fairlane.model.names import DEFAULT_SERVER, check_count
from fairlane.runtime.backoff import backoff
from fairlane.runtime.consumer import Consumer
from fairlane.wire.workers import WorkerQueue, WorkerReport
from fairlane.worker.app import App, Every, Subscription
from fairlane.worker.binding import check_parameters
from fairlane.worker.handlers import BACKOFF_SECONDS, Handlers
from fairlane.worker.mapped import MappedConsumers
from fairlane.worker.stage import Stage

GRACE_SECONDS = 25.0
BEAT_SECONDS = 10.0
_CURRENT_MAX = 20

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
        backoff_seconds: float = BACKOFF_SECONDS,
    ) -> None:
        """`backoff_seconds` is the wait after the first failed attempt where neither handler nor queue has one."""
        if concurrency is not None:
            check_count("concurrency", concurrency, least=1, most=10_000)
        self.app = app
        self._subscriptions = app.subscriptions(queues)
        if not self._subscriptions:
            raise InvalidRequest(f"app {app.name!r} has no handlers")
        check_parameters(app, self._subscriptions)
        self._client = Client(servers, attempts=1, token=token)
        self._concurrency = concurrency
        self._backoff_seconds = backoff_seconds
        self._grace_seconds = grace_seconds
        self._stopping = asyncio.Event()
        self._stage = Stage(app, self._client, self._stopping, own_loop=own_loop)
        self.consumers: list[Consumer] = []
        self._mapped: MappedConsumers | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def stuck(self) -> bool:
        """Handlers still ran when the worker ended: their threads live on."""
        return self._stage.stuck > 0 or any(consumer.claims for consumer in self.consumers)

    @property
    def spent(self) -> bool:
        """It ended because too many threads were lost to handlers that did not end within their time limit."""
        return self._stage.spent

    @property
    def ready(self) -> bool:
        """Whether it takes messages of all queues that it is to take them of."""
        return bool(self.consumers) and (self._mapped is None or self._mapped.looked)

    def stop(self) -> None:
        """Take nothing new, finish what runs, give back the rest."""
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop`, or an error that waiting does not cure, which is raised after an orderly end."""
        await self._stage.start()
        try:
            consumers = [self._consumer(subscription) for subscription in self._subscriptions]
            self._log_handlers()
            running: list[asyncio.Task[Any]] = [asyncio.create_task(consumer.run()) for consumer in consumers]
            commands = [one for each in self._subscriptions for one in each.handlers.values() if one.kind == "command"]
            if commands:
                self._mapped = MappedConsumers(self._client, commands, self._consumer)
                running.append(asyncio.create_task(self._mapped.run(self._stopping)))
            if declared := [one for one in self.app.schedules if one.name in {each.queue for each in consumers}]:
                running.append(asyncio.create_task(self._declare(declared)))
            self._beating = asyncio.create_task(self._beat())
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
            if self._beating is not None:
                self._stopping.set()
                await asyncio.wait([self._beating], timeout=1.0)
                self._beating.cancel()
            await self._client.close()
            await self._stage.close()

    def _consumer(self, subscription: Subscription) -> Consumer:
        concurrency = subscription.concurrency(self._concurrency)
        consumer = Consumer(
            self._client,
            subscription.queue,
            Handlers(self.app, subscription, self._client, self._stage, concurrency, self._backoff_seconds),
            group=subscription.group,
            room=concurrency * subscription.size,
            lease_seconds=subscription.lease_seconds,
        )
        self.consumers.append(consumer)
        return consumer

    def _log_handlers(self) -> None:
        for each in self._subscriptions:
            for one in each.handlers.values():
                text = one.described(each.concurrency(self._concurrency))
                fields = {"queue": one.queue, "handler": one.name, "text": text}
                log.info("handling queue %(queue)r with %(handler)s: %(text)s", fields)

    async def _wind_down(self, running: list[asyncio.Task[Any]]) -> None:
        for consumer in self.consumers:
            consumer.stop()
        _, left = await asyncio.wait(running, timeout=self._grace_seconds)
        if left:
            count = sum(consumer.in_hand for consumer in self.consumers)
            log.warning("%(count)d messages are not finished; releasing their leases", {"count": count})
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    async def _declare(self, schedules: list[Every]) -> None:
        """Tell the broker of the app's schedules, as soon as it can be told; then wait for the end, like a consumer."""
        for one in schedules:
            failures = 0
            while not self._stopping.is_set():
                try:
                    await self._client.schedules.define(
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
                    await self._rest(backoff(failures, base=0.2, most=10.0))
        await self._stopping.wait()

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _beat(self) -> None:
        """Tell the broker that this worker is alive, and what it does. A beat that does not get through is one less."""
        id = uuid7()
        while not self._stopping.is_set():
            try:
                await self._client.workers.report(id, self._report())
            except Exception as error:  # the next beat may get through
                level = logging.DEBUG if isinstance(error, FairlaneError) else logging.ERROR
                log.log(level, "cannot send the heartbeat: %(error)s", {"error": error}, exc_info=error)
            await self._rest(BEAT_SECONDS)
        with contextlib.suppress(FairlaneError):
            await self._client.workers.leave(id)

    def _report(self) -> WorkerReport:
        claims = [claim for consumer in self.consumers for claim in consumer.claims]
        current = (message.transaction_id for claim in claims for message in claim.batch)
        queues = [
            WorkerQueue(
                queue=consumer.queue,
                group=consumer.group,
                concurrency=consumer.handling.concurrency,
                in_hand=consumer.in_hand,
                handled=max(0, consumer.handled),
                failed=consumer.failed,
                mean_ms=round(consumer.seconds * 1000, 3),
            )
            for consumer in self.consumers
        ]
        return WorkerReport(
            app=self.app.name,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            queues=queues,
            current=list(itertools.islice(current, _CURRENT_MAX)),
        )
