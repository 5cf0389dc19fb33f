"""The executor of handlers: coroutines on an event loop, plain functions in threads or in processes."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlane.client.client import Client
from fairlane.errors import FairlaneError, NotFound
from fairlane.model.ids import PartitionId
from fairlane.model.tracebacks import call_with_frames
from fairlane.otel import tracing
from fairlane.runtime.backoff import backoff
from fairlane.runtime.threads import call_on, ended
from fairlane.wire.workers import Effect, EffectBody, EffectQuery
from fairlane.worker.app import App
from fairlane.worker.binding import Binding, provide

if TYPE_CHECKING:
    from fairlane.outbound.client import OutboundClient
    from fairlane.worker.process_pool import ProcessPool

CALL_SECONDS = 30.0
ANSWER_BYTES_MAX = 1 << 40
"""No practical limit on the answers to a handler's HTTP calls."""
_END_SECONDS = 5.0
_EFFECT_ATTEMPTS = 5

log = logging.getLogger("fairlane.worker")


class WorkerEffects:
    """Stored results of `Context.once`. Handlers call it from their own loop; the requests run on the client's loop."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, client: Client) -> None:
        self._client = client

    def start(self) -> None:
        """Use the running loop, which is the client's, for all requests from now on."""
        self.loop = asyncio.get_running_loop()

    async def get(self, key: str, partition: PartitionId) -> bytes | None:
        where = EffectQuery(partition_id=str(partition))
        try:
            return await self._on_client_loop(lambda: self._client.effects.get(key, where))
        except NotFound:
            return None

    async def keep(self, key: str, partition: PartitionId, value: bytes) -> bytes:
        body = EffectBody(partition_id=str(partition), value=msgspec.Raw(value))
        return await self._on_client_loop(lambda: self._client.effects.keep(key, body))

    async def _on_client_loop(self, ask: Callable[[], Coroutine[Any, Any, Effect]]) -> bytes:
        return bytes((await call_on(self.loop, self._with_retries(ask))).value)

    async def _with_retries(self, ask: Callable[[], Coroutine[Any, Any, Effect]]) -> Effect:
        """Retry through short outages: an effect that is not saved would run again."""
        failures = 0
        while True:
            try:
                return await ask()
            except FairlaneError as error:
                failures += 1
                if not error.retryable or failures >= _EFFECT_ATTEMPTS:
                    raise
                await asyncio.sleep(backoff(failures, base=0.2, most=5.0))


THREADS_LOST_MAX: Final = 32
"""Lost threads after which the worker stops. A thread can only be ended with its process."""


class HandlerPool:
    """Threads that run plain functions.

    A pool with an abandoned call takes no new calls: the thread of that call may never be free again.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._awaited = 0
        self.abandoned: set[Future[Any]] = set()
        """Calls whose caller was cancelled while they ran."""

    @property
    def stuck(self) -> int:
        """The number of abandoned calls that still run."""
        return sum(not call.done() for call in self.abandoned)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        running = self._executor.submit(function, *arguments)
        self._awaited += 1
        try:
            await ended(running)
            return running.result()
        except asyncio.CancelledError:
            if not running.done():
                self.abandoned.add(running)
            raise
        finally:
            self._awaited -= 1
            if self.abandoned and not self._awaited:
                self.close()

    def close(self) -> None:
        """Shut the pool down. Threads that still run a call cannot be ended."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class HandlerExecutor:
    """Runs the handlers of an app.

    Handlers get an event loop in a thread of its own, so that a handler that blocks it delays neither polls nor lease
    renewals. With `own_loop=False` they run on the caller's loop, for tests.
    """

    def __init__(self, app: App, client: Client, stopping: asyncio.Event, *, own_loop: bool = True) -> None:
        """Create an executor. It sets `stopping` when too many threads are lost or a handler asks to stop."""
        self._stopping = stopping
        self.threads_exhausted = False
        """True once `THREADS_LOST_MAX` threads were lost to handlers that do not return."""
        self._outbound: OutboundClient | None = None
        self.effects = WorkerEffects(client)
        self.provided: dict[Any, Any] = {}
        self._app = app
        self._traced = tracing.spans() is not None
        self._own_loop = own_loop
        self._stack = AsyncExitStack()
        self._thread: threading.Thread | None = None
        self._pools: dict[Binding | None, HandlerPool | ProcessPool] = {}
        """Thread pools by handler. The key None is the process pool, which all handlers share."""
        self._all: list[HandlerPool | ProcessPool] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def outbound(self) -> OutboundClient:
        """The HTTP client of the handlers. Raises MissingExtra if aiohttp is not installed."""
        if self._outbound is None:
            from fairlane.outbound.client import OutboundClient  # only for handlers that call other services

            self._outbound = OutboundClient(seconds=CALL_SECONDS, bytes_max=ANSWER_BYTES_MAX, unrestricted=True)
        return self._outbound

    async def start(self) -> None:
        """Start the loop and run the app's providers."""
        self.effects.start()
        self._loop = asyncio.get_running_loop()
        if self._own_loop:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="fairlane-handlers", daemon=True)
            self._thread.start()
        self.provided = await self._on_handler_loop(provide(self._app.providers, self._stack))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _on_handler_loop(self, work: Any) -> Any:
        """Run `work` on the handlers' loop and return its result."""
        if self._thread is None:
            return await work
        return await call_on(self._loop, work)

    async def call(self, binding: Binding, arguments: Sequence[Any], threads: int) -> Any:
        """Call a handler and return its result.

        On cancellation a thread keeps running in the background, and a process is killed.
        """
        function = binding.handler.function
        if binding.is_async:
            returned = await function(*arguments)
        else:
            returned = await self._call_plain(binding, function, arguments, threads)
        return returned if returned is None or not inspect.isawaitable(returned) else await returned

    async def _call_plain(
        self, binding: Binding, function: Callable[..., Any], arguments: Sequence[Any], threads: int
    ) -> Any:
        key = None if binding.handler.processes else binding
        pool = self._pools.get(key)
        if pool is None or pool.abandoned:
            if key is None:
                from fairlane.worker.process_pool import ProcessPool  # here, because few workers need its imports

                pool = ProcessPool(os.cpu_count() or 1)
            else:
                pool = HandlerPool(ThreadPoolExecutor(threads, "fairlane-handler"))
            self._pools[key] = pool
            self._all = [*(one for one in self._all if one.stuck or not one.abandoned), pool]
        if self._traced and key is not None:  # a thread starts with an empty context
            function = partial(copy_context().run, function)
        try:
            if key is None:
                return await pool.call(call_with_frames, function, *arguments)
            return await pool.call(function, *arguments)
        except asyncio.CancelledError:
            if key is not None and pool.stuck:
                self._on_lost_thread(binding.handler.name)
            raise

    def _on_lost_thread(self, handler: str) -> None:
        """Log a lost thread. After too many, stop the worker so that its supervisor restarts it."""
        fields = {"handler": handler, "lost": self.stuck, "most": THREADS_LOST_MAX}
        if self._stopping.is_set() or not fields["lost"]:
            return
        log.warning("a call of %(handler)s did not end, and its thread is lost (%(lost)s of at most %(most)s)", fields)
        if self.stuck >= THREADS_LOST_MAX:
            self.threads_exhausted = True
            log.error(
                "%(lost)s threads are lost to handlers that do not end: stopping the worker",
                fields,
            )
            self.effects.loop.call_soon_threadsafe(self._stopping.set)

    def stop_worker(self, error: BaseException) -> None:
        """Stop the worker gracefully because a handler raised SystemExit or KeyboardInterrupt."""
        if not self._stopping.is_set():
            log.error("a handler raised %(error)s: stopping the worker", {"error": type(error).__name__})
            self.effects.loop.call_soon_threadsafe(self._stopping.set)

    @property
    def stuck(self) -> int:
        """The number of abandoned calls that still run."""
        return sum(pool.stuck for pool in self._all)

    async def close(self) -> None:
        """Close the app's providers and stop the loop. Threads that still run a handler are left running."""
        for pool in self._all:
            pool.close()
        try:
            await asyncio.wait_for(self._on_handler_loop(self._end()), _END_SECONDS)
        except TimeoutError:
            log.error("shutdown: a handler blocks the event loop, so the app's providers are not closed")
            return
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join)
            self._loop.close()

    async def _end(self) -> None:
        if self._outbound is not None:
            await self._outbound.close()
        await self._stack.aclose()
