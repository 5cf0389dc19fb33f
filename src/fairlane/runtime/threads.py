"""Calls in threads and processes, for callers on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


async def call_in(executor: Executor, function: Callable[..., T], *arguments: Any) -> T:
    """Call `function` in `executor`. On cancellation a running call continues."""
    running = executor.submit(function, *arguments)
    await ended(running)
    return running.result()


async def ended(running: Future[Any]) -> None:
    """Wait until a call in another thread has ended, by a result or an exception.

    `asyncio.wrap_future` and `run_in_executor` leave their caller waiting for ever if the call raises StopIteration,
    which an asyncio future refuses to hold. Cancelling this cancels the call if it has not begun.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def resolve_done(_: Future[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_done, done)

    running.add_done_callback(resolve_done)
    try:
        await done
    except asyncio.CancelledError:
        running.cancel()
        raise


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def call_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on another loop, which survives any exception of it.

    A CancelledError of its own is raised as RuntimeError, because nobody cancelled the caller.
    """
    running = asyncio.run_coroutine_threadsafe(outcome(work), loop)
    await ended(running)
    value, error = running.result()
    if isinstance(error, asyncio.CancelledError):
        raise RuntimeError(f"{type(error).__name__} was raised, though nothing was cancelled") from error
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


async def outcome(work: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """Return the result of `work` and None, or None and its exception.

    Catches BaseException too: a SystemExit or KeyboardInterrupt raised in a task would stop the event loop.
    """
    try:
        return await work, None
    except BaseException as error:
        return None, error
