"""The processes that run plain functions."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from fairlane.runtime.threads import ended


class ProcessPool:
    """Processes that run plain functions. Each has one call at a time, so that killing it ends no other call."""

    stuck = 0
    """Abandoned calls do not keep running: their process is killed."""
    abandoned: frozenset[Future[Any]] = frozenset()

    def __init__(self, processes: int) -> None:
        self._free: list[ProcessPoolExecutor] = []
        self._slots = asyncio.Semaphore(processes)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async with self._slots:
            context = multiprocessing.get_context("spawn")
            executor = self._free.pop() if self._free else ProcessPoolExecutor(1, context)
            running = executor.submit(function, *arguments)
            try:
                await ended(running)
                return running.result()
            finally:
                if running.done() and (running.cancelled() or not isinstance(running.exception(), BrokenProcessPool)):
                    self._free.append(executor)
                else:
                    _kill(executor)

    def close(self) -> None:
        while self._free:
            self._free.pop().shutdown(wait=False, cancel_futures=True)


def _kill(executor: ProcessPoolExecutor) -> None:
    processes = list((getattr(executor, "_processes", None) or {}).values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
