"""The stage on which handlers run: an event loop, threads for plain functions, processes for heavy ones."""

from __future__ import annotations

import asyncio
import inspect
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AsyncExitStack
from contextvars import copy_context
from functools import partial
from typing import Any, Final

import msgspec

from fairlane import tracing
from fairlane.client.client import Client
from fairlane.errors import FairlaneError, NotFound
from fairlane.model.ids import PartitionId
from fairlane.outbound.caller import Caller
from fairlane.runtime.backoff import backoff
from fairlane.runtime.threads import call_on, ended
from fairlane.wire.effects import Effect, EffectBody, EffectQuery
from fairlane.worker.app import App
from fairlane.worker.binding import Binding, provide

CALL_SECONDS = 30.0
ANSWER_BYTES_MAX = 1 << 40
"""Of what handlers call: as much as they ask for."""
_END_SECONDS = 5.0
_EFFECT_ATTEMPTS = 5

log = logging.getLogger("fairlane.worker")


class Effects:
    """Effects: what handlers did once, stored by the broker. Asked from the loop of the handlers, on that of the
    client."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, key: str, partition: PartitionId) -> bytes | None:
        where = EffectQuery(partition_id=str(partition))
        try:
            return await self._there(lambda: self._client.effects.get(key, where))
        except NotFound:
            return None

    async def keep(self, key: str, partition: PartitionId, value: bytes) -> bytes:
        body = EffectBody(partition_id=str(partition), value=msgspec.Raw(value))
        return await self._there(lambda: self._client.effects.keep(key, body))

    async def _there(self, ask: Callable[[], Coroutine[Any, Any, Effect]]) -> bytes:
        return bytes((await call_on(self.loop, self._patiently(ask))).value)

    async def _patiently(self, ask: Callable[[], Coroutine[Any, Any, Effect]]) -> Effect:
        """An effect that is not saved is had again, so that a moment's outage is worth waiting for."""
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
"""Threads in which calls run on that nobody waits for. Nothing ends a thread but its process."""


class Pool:
    """Threads or processes that run plain functions. One in which a call runs on that nobody waits for takes no new
    ones: its thread or process may never be free again."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._awaited = 0
        self.left: set[Future[Any]] = set()
        """Calls that nobody waits for."""

    @property
    def stuck(self) -> int:
        """How many of them still run."""
        return sum(not call.done() for call in self.left)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        running = self._executor.submit(function, *arguments)
        self._awaited += 1
        try:
            await ended(running)
            return running.result()
        except asyncio.CancelledError:
            if not running.done():
                self.left.add(running)
            raise
        finally:
            self._awaited -= 1
            if self.left and not self._awaited:
                self.close()

    def close(self) -> None:
        """End what can be ended: a process can, a thread cannot."""
        processes = list((getattr(self._executor, "_processes", None) or {}).values()) if self.stuck else []
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


class Stage:
    """Its loop is one of its own in a thread, so that a handler that blocks it holds up neither polls nor renewals;
    or the caller's, for tests."""

    def __init__(self, app: App, client: Client, stopping: asyncio.Event, *, own_loop: bool = True) -> None:
        """`stopping` is set when too many threads are lost to go on."""
        self._stopping = stopping
        self.spent = False
        """So many were lost."""
        self.caller = Caller(seconds=CALL_SECONDS, bytes_max=ANSWER_BYTES_MAX, free=True)
        self.effects = Effects(client)
        self.provided: dict[Any, Any] = {}
        self._app = app
        self._traced = tracing.spans() is not None
        self._own_loop = own_loop
        self._stack = AsyncExitStack()
        self._thread: threading.Thread | None = None
        self._pools: dict[Binding | None, Pool] = {}
        """Threads by handler; None: processes, which all share."""
        self._all: list[Pool] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def start(self) -> None:
        """Begin, and make what the app provides."""
        self.effects.loop = self._loop = asyncio.get_running_loop()
        if self._own_loop:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, name="fairlane-handlers", daemon=True)
            self._thread.start()
        self.provided = await self._there(provide(self._app.providers, self._stack))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _there(self, work: Any) -> Any:
        """What `work` returns on the stage's loop."""
        if self._thread is None:
            return await work
        return await call_on(self._loop, work)

    async def call(self, binding: Binding, arguments: Sequence[Any], threads: int) -> Any:
        """Return what the handler returns, or the coroutine that it returns. On cancellation a thread or process keeps
        running in the background."""
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
        if pool is None or pool.left:
            if key is None:
                executor: Executor = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"))
            else:
                executor = ThreadPoolExecutor(threads, "fairlane-handler")
            pool = self._pools[key] = Pool(executor)
            self._all = [*(one for one in self._all if one.stuck or not one.left), pool]
        if self._traced and key is not None:  # a thread has a context of its own
            function = partial(copy_context().run, function)
        try:
            return await pool.call(function, *arguments)
        except asyncio.CancelledError:
            if key is not None and pool.stuck:
                self._lost(binding.handler.name)
            raise
        except BrokenProcessPool:
            if self._pools.get(key) is pool:
                del self._pools[key]  # the next call begins with new ones
            raise

    def _lost(self, handler: str) -> None:
        """A thread is left to what it runs. After too many the worker ends, for whoever supervises it to begin anew."""
        fields = {"handler": handler, "lost": self.stuck, "most": THREADS_LOST_MAX}
        if self._stopping.is_set() or not fields["lost"]:
            return
        log.warning("a call of %(handler)s runs on in its thread, %(lost)s of at most %(most)s that are lost", fields)
        if self.stuck >= THREADS_LOST_MAX:
            self.spent = True
            log.error("%(lost)s threads are lost to handlers that do not end: stopping, to be started anew", fields)
            self.effects.loop.call_soon_threadsafe(self._stopping.set)

    def exit(self, error: BaseException) -> None:
        """Stop the worker in order, because a handler asked for it by SystemExit or KeyboardInterrupt."""
        if not self._stopping.is_set():
            log.error("a handler raised %(error)s: stopping the worker", {"error": type(error).__name__})
            self.effects.loop.call_soon_threadsafe(self._stopping.set)

    @property
    def stuck(self) -> int:
        """Calls that run on and that nobody waits for."""
        return sum(pool.stuck for pool in self._all)

    async def close(self) -> None:
        """End what the app provided, and the loop. Threads that still run a handler are left to it."""
        for pool in self._all:
            pool.close()
        try:
            await asyncio.wait_for(self._there(self._end()), _END_SECONDS)
        except TimeoutError:
            log.error("shutdown: a handler blocks the event loop, so that the app's providers are not closed")
            return
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join)
            self._loop.close()

    async def _end(self) -> None:
        await self.caller.close()
        await self._stack.aclose()
