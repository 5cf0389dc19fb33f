"""Test support for apps: a broker in the test process, workers that run until idle, and a clock that stands still.

    async with AppTest(app) as test:
        await test.push("orders", {"id": 1})
        await test.drain("orders")
        assert await test.pushed("invoices") == [{"order": 1}]

Needs the `server` extra. Everything runs on the event loop of the test, except plain handlers, which run in threads.
`BlockingAppTest` is for tests without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, Unpack

import msgspec

from fairlane import server_extra as _extra  # noqa: F401
from fairlane.blocking import Client as BlockingClient
from fairlane.blocking import Portal, in_portal
from fairlane.broker.broker import Broker
from fairlane.client import Client, DeadLetter, PushHandle
from fairlane.errors import FairlaneError, NotFound
from fairlane.http.app import HttpApp
from fairlane.http.server import open_sockets
from fairlane.model.group import LaneState, Subscription
from fairlane.model.message import PushOptions
from fairlane.runtime.clock import wall_clock
from fairlane.store.sqlite import store as _  # noqa: F401  # now: the loop of a test should not wait for it
from fairlane.worker import Worker
from fairlane.worker.app import App

__all__ = ["AppTest", "BlockingAppTest", "FrozenClock"]

DRAIN_SECONDS = 10.0
_READER = "fairlane.testing"


class FrozenClock:
    """A clock for the broker that only moves when the test moves it.

    Leases, delays, backoff and schedules depend on it.
    """

    def __init__(self, at: datetime | None = None) -> None:
        self.at = wall_clock() if at is None else int(at.timestamp() * 1_000_000)

    def __call__(self) -> int:
        return self.at

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at / 1_000_000, UTC)

    def advance(self, seconds: float) -> None:
        self.at += round(seconds * 1_000_000)


class AppTest:
    """An app with a broker on an empty store and a client. With a `clock` the test controls the time of the broker."""

    def __init__(self, app: App, *, clock: FrozenClock | None = None, store: str = "sqlite:///:memory:") -> None:
        self.app = app
        self.clock = clock
        self._store = store
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            self.broker = await self._stack.enter_async_context(Broker.open(self._store, clock=self.clock))
            self._sockets = open_sockets("127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{_port(self._sockets[0])}"
            server = HttpApp(self.broker).serve()
            await server.listen(self._sockets)
            self._stack.push_async_callback(server.close, grace_seconds=1.0)
            self._stack.push_async_callback(self.broker.stop)
            self.client = await self._stack.enter_async_context(Client(self.url, attempts=1))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    async def apply(self, file: str | Path) -> None:
        """Apply the spec in a file. Raises SpecError with the first mistake in it."""
        await self.client.specs.apply(await asyncio.to_thread(_compiled, str(file)), consent=True)

    async def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> PushHandle:
        """Push a message and return the outcome, as `Client.push` does."""
        return await self.client.push(queue, data, **options)

    async def drain(self, *queues: str, seconds: float = DRAIN_SECONDS) -> None:
        """Run the handlers of these queues, or of all queues, until every message is handled or waits for its time.

        A failed attempt waits only for the backoff that the handler or the queue names. Raises TimeoutError after
        `seconds`.
        """
        worker = Worker(
            self.app,
            self.url,
            queues=list(queues) or None,
            own_loop=False,
            grace_seconds=seconds,
            backoff_seconds=0.0,
        )
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(seconds):
                while not running.done() and not await self._idle(worker):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        finally:
            worker.stop()
            await running

    async def _idle(self, worker: Worker) -> bool:
        """Return True if no lane of the worker's queues is ready or leased."""
        known = {queue.name for queue in await self.broker.queues.all()}
        for consumer in worker.consumers:
            if consumer.queue not in known:
                continue
            try:
                lanes = await self.broker.groups.lanes(consumer.queue, consumer.group, limit=10_000)
            except NotFound:
                return False  # its first pop is in flight
            now = await self.broker.status.now()  # read after the lanes: a lane that just failed counts as ready
            if any(_busy(lane, now) for lane in lanes):
                return False
        return worker.ready and not any(consumer.claims for consumer in worker.consumers)

    async def pushed(self, queue: str, *, type: Any = Any) -> list[Any]:
        """Return the data of all messages in a queue, read or not, in order within each partition.

        The data is decoded as `type`, for example a pydantic model.
        """
        return [message.data for message in await self.messages(queue, type=type)]

    async def messages(self, queue: str, *, type: Any = Any) -> list[Any]:
        """Return all messages in a queue. They are read by a separate group, which does not disturb others."""
        with contextlib.suppress(FairlaneError):  # the group has not read this queue yet
            await self.client.groups.delete(queue, _READER)
        found: list[Any] = []
        asks: dict[str, Any] = {"group": _READER, "subscription": Subscription(look=True), "auto_ack": True}
        while batch := await self.client.pop(queue, type=type, batch=1000, partitions=1000, **asks):
            found += batch
        return found

    async def dead_letters(self, queue: str) -> list[DeadLetter]:
        return await self.client.dead_letters.page(queue)


class BlockingAppTest:
    """An `AppTest` whose methods block, on an event loop in a thread of its own. Its `client` blocks, too."""

    def __init__(self, app: App, *, clock: FrozenClock | None = None, store: str = "sqlite:///:memory:") -> None:
        self._asynchronous = AppTest(app, clock=clock, store=store)
        self.app, self.clock = app, clock
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal = Portal()
            stack.callback(self._portal.close)
            stack.enter_context(self._portal.within(self._asynchronous))
            self.url = self._asynchronous.url
            self.client = stack.enter_context(BlockingClient(self.url, attempts=1))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    apply = in_portal(AppTest.apply)
    push = in_portal(AppTest.push)
    drain = in_portal(AppTest.drain)
    pushed = in_portal(AppTest.pushed)
    messages = in_portal(AppTest.messages)
    dead_letters = in_portal(AppTest.dead_letters)


def _compiled(file: str) -> bytes:
    from fairlane.spec.check import problems
    from fairlane.spec.compile import compile_spec
    from fairlane.spec.text.source import SourceText

    def read(name: str) -> str:
        return Path(name).read_text(encoding="utf-8")

    compiled = compile_spec(SourceText(file, read(file)), read)
    for problem in problems(compiled):
        raise problem
    return msgspec.json.encode(compiled.spec)


def _busy(lane: LaneState, now: int) -> bool:
    """Return True if a lane is ready or leased. Decided from one snapshot, so that no change in between is missed."""
    leased = lane.leased_until is not None or lane.in_flight > 0
    return leased or (lane.ready_at is not None and lane.ready_at <= now and lane.head > lane.committed)


def _port(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])
