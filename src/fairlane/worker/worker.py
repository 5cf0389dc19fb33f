"""A worker: runs the consumers of an app until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Sequence
from typing import Any, Self

from fairlane.client.client import Client
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.ids import uuid7
from fairlane.model.names import DEFAULT_SERVER, count_or_none
from fairlane.runtime.backoff import backoff
from fairlane.runtime.consumer import Consumer
from fairlane.wire.workers import WorkerQueue, WorkerReport
from fairlane.worker.app import App, Every, HandlerGroup
from fairlane.worker.binding import check_parameters
from fairlane.worker.executor import HandlerExecutor
from fairlane.worker.handlers import BACKOFF_SECONDS, Handlers
from fairlane.worker.mapped_commands import MappedConsumers

GRACE_SECONDS = 25.0
HEARTBEAT_SECONDS = 10.0
_CURRENT_MAX = 20

log = logging.getLogger("fairlane.worker")


class Worker:
    """Runs an app until `stop`, or for as long as an `async with` block of another program.

    Polls, acks and renewals run on the caller's loop, handlers on a loop of their own.
    """

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
        """Create a worker. `backoff_seconds` is the first backoff where neither handler nor queue has one."""
        count_or_none("concurrency", concurrency, least=1, most=10_000)
        self.app = app
        self._groups = app.handler_groups(queues)
        if not self._groups:
            raise InvalidRequest(f"app {app.name!r} has no handlers")
        check_parameters(app, self._groups)
        self._client = Client(servers, attempts=1, token=token)
        self._concurrency = concurrency
        self._backoff_seconds = backoff_seconds
        self._grace_seconds = grace_seconds
        self._stopping = asyncio.Event()
        self._executor = HandlerExecutor(app, self._client, self._stopping, own_loop=own_loop)
        self.consumers: list[Consumer] = []
        self._mapped: MappedConsumers | None = None
        self._heartbeats: asyncio.Task[None] | None = None

    @property
    def stuck(self) -> bool:
        """True if handlers were still running when the worker ended. Their threads keep running."""
        return self._executor.stuck > 0 or any(consumer.claims for consumer in self.consumers)

    @property
    def threads_exhausted(self) -> bool:
        """True if the worker ended because too many threads were lost to handlers that exceeded their time limit."""
        return self._executor.threads_exhausted

    @property
    def ready(self) -> bool:
        """True once the worker takes messages from all its queues."""
        return bool(self.consumers) and (self._mapped is None or self._mapped.loaded)

    def stop(self) -> None:
        """Stop gracefully: pop nothing more, finish running handlers, and release the remaining leases."""
        self._stopping.set()

    async def __aenter__(self) -> Self:
        """Start the worker in the background of the running loop."""
        self._running = asyncio.create_task(self.run())
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Stop gracefully. Raises the error that ended the worker before, if there is one."""
        self.stop()
        await self._running

    async def run(self) -> None:
        """Run until `stop`, or until a permanent error, which is raised after a graceful stop."""
        await self._executor.start()
        try:
            consumers = [self._consumer(group) for group in self._groups]
            self._log_handlers()
            running: list[asyncio.Task[Any]] = [asyncio.create_task(consumer.run()) for consumer in consumers]
            commands = [one for each in self._groups for one in each.handlers.values() if one.kind == "command"]
            if commands:
                self._mapped = MappedConsumers(self._client, commands, self._consumer)
                running.append(asyncio.create_task(self._mapped.run(self._stopping)))
            if declared := [one for one in self.app.schedules if one.name in {each.queue for each in consumers}]:
                running.append(asyncio.create_task(self._define_schedules(declared)))
            self._heartbeats = asyncio.create_task(self._send_heartbeats())
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
            if self._heartbeats is not None:
                self._stopping.set()
                await asyncio.wait([self._heartbeats], timeout=1.0)
                self._heartbeats.cancel()
            await self._client.close()
            await self._executor.close()

    def _consumer(self, group: HandlerGroup) -> Consumer:
        concurrency = group.concurrency(self._concurrency)
        consumer = Consumer(
            self._client,
            group.queue,
            Handlers(self.app, group, self._client, self._executor, concurrency, self._backoff_seconds),
            group=group.group,
            slots=concurrency * group.size,
            lease_seconds=group.lease_seconds,
        )
        self.consumers.append(consumer)
        return consumer

    def _log_handlers(self) -> None:
        for each in self._groups:
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

    async def _define_schedules(self, schedules: list[Every]) -> None:
        """Define the app's schedules at the broker, with retries, then wait until the worker stops."""
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
                        unique=one.unique,
                    )
                    break
                except FairlaneError as error:
                    if not error.retryable:
                        raise
                    failures += 1
                    await self._sleep(backoff(failures, base=0.2, most=10.0))
        await self._stopping.wait()

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _send_heartbeats(self) -> None:
        """Send a heartbeat with the worker's state at an interval. A lost heartbeat is not repeated."""
        id = uuid7()
        while not self._stopping.is_set():
            try:
                await self._client.workers.report(id, self._report())
            except Exception as error:  # the next heartbeat may succeed
                level = logging.DEBUG if isinstance(error, FairlaneError) else logging.ERROR
                log.log(level, "cannot send the heartbeat: %(error)s", {"error": error}, exc_info=error)
            await self._sleep(HEARTBEAT_SECONDS)
        with contextlib.suppress(FairlaneError):
            await self._client.workers.deregister(id)

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
