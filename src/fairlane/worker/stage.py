"""The stage on which handlers run: an event loop, threads for plain functions, processes for heavy ones."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AsyncExitStack
from typing import Any

from fairlane.app.app import App
from fairlane.app.binding import Binding
from fairlane.app.providers import provide
from fairlane.client.client import Client
from fairlane.client.outbound import Sender
from fairlane.worker.effects import Effects

_END_SECONDS = 5.0

log = logging.getLogger("fairlane.worker")


class Stage:
    """Its loop is one of its own in a thread, so that a handler that blocks it holds up neither polls nor renewals;
    or the caller's, for tests."""

    def __init__(self, app: App, client: Client, *, own_loop: bool = True) -> None:
        self.sender = Sender()
        self._client = client
        self.provided: dict[Any, Any] = {}
        self._app = app
        self._own_loop = own_loop
        self._stack = AsyncExitStack()
        self._thread: threading.Thread | None = None
        self._pools: dict[Binding, Executor] = {}
        self._processes: ProcessPoolExecutor | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def start(self) -> None:
        """Begin, and make what the app provides."""
        self.effects = Effects(self._client)
        self._loop = asyncio.get_running_loop()
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
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call it on the stage's loop, from any thread."""
        self._loop.call_soon_threadsafe(call, *arguments)

    async def call(self, binding: Binding, arguments: Sequence[Any], threads: int) -> Any:
        """What the handler returns."""
        function = binding.handler.function
        if binding.is_async:
            return await function(*arguments)
        if not binding.handler.processes:
            return await self._loop.run_in_executor(self._threads(binding, threads), function, *arguments)
        pool = self._processes = self._processes or ProcessPoolExecutor(
            os.cpu_count(), multiprocessing.get_context("spawn")
        )
        try:
            return await self._loop.run_in_executor(pool, function, *arguments)
        except BrokenProcessPool:
            if self._processes is pool:
                self._processes = None  # the next call begins with new ones
            raise

    def _threads(self, binding: Binding, count: int) -> Executor:
        pool = self._pools.get(binding)
        if pool is None:
            pool = self._pools[binding] = ThreadPoolExecutor(count, "fairlane-handler")
        return pool

    async def close(self) -> None:
        """End what the app provided, and the loop. Threads that still run a handler are left to it."""
        for pool in [*self._pools.values(), *([self._processes] if self._processes else [])]:
            pool.shutdown(wait=False, cancel_futures=True)
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
        await self.sender.close()
        await self._stack.aclose()
