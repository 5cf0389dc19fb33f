"""A test fails if it blocked its event loop, left a task behind, or an error went to the loop's handler.

Warnings, un-awaited coroutines and exceptions in threads or finalizers fail a test too; pytest sees to
those itself under `filterwarnings = error`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import pytest_asyncio

# The longest time that a loop may be blocked. Far above a fsync, far below what a client would notice.
BLOCKED_SECONDS_MAX = 0.5

TICK_SECONDS = 0.05

# BacklogRotation of the loop in which a task that is already cancelled may still finish.
GRACE_TURNS = 5

# Tests after which what the run keeps of them is set aside: each collection would look at all of it.
FREEZE_EVERY = 100
_tests = count(1)


@dataclass
class _Watched:
    """A running loop: the expected beat, and since when it is overdue."""

    loop: asyncio.AbstractEventLoop
    thread_id: int
    native_id: int
    beat_pending: bool = False
    cpu_seconds: float = 0.0
    blocked_seconds: float = 0.0
    reported: bool = False

    def beat(self) -> None:
        self.beat_pending = False

    def spent(self, passed: float) -> float:
        """Return the part of the time for which the thread is responsible.

        While the thread was ready to run and the machine was busy elsewhere, only its CPU time counts. While it waited
        in a call, all of the time counts.
        """
        task, before = f"/proc/self/task/{self.native_id}", self.cpu_seconds
        with contextlib.suppress(OSError, IndexError):  # its thread ended meanwhile, or this system has no such files
            with open(f"{task}/schedstat") as schedstat, open(f"{task}/stat") as stat:
                self.cpu_seconds = int(schedstat.read().split()[0]) / 1e9
                state = stat.read().rpartition(")")[2].split()[0]
            if state == "R":
                return min(passed, self.cpu_seconds - before)
        return passed


class LoopWatch:
    """A thread that asks every running asyncio loop for a beat and notes those that do not answer.

    It hooks `run_forever`, so loops made by the code under test are watched too, in any thread.
    """

    def __init__(self, *, blocked_seconds_max: float = BLOCKED_SECONDS_MAX) -> None:
        self.blocked_seconds_max = blocked_seconds_max
        self._stalls: list[str] = []
        self._watched: list[_Watched] = []
        self._stopped = threading.Event()
        self.collecting = False
        """True while a guard itself collects garbage, which no test is responsible for."""

    def take_stalls(self) -> list[str]:
        stalls, self._stalls = self._stalls, []
        return stalls

    @contextlib.contextmanager
    def installed(self) -> Iterator[LoopWatch]:
        run_forever = asyncio.BaseEventLoop.run_forever

        def watched_run_forever(loop: asyncio.BaseEventLoop) -> None:
            watched = _Watched(loop, threading.get_ident(), threading.get_native_id())
            self._watched.append(watched)
            try:
                run_forever(loop)
            finally:
                self._watched.remove(watched)

        thread = threading.Thread(target=self._run, name="loop-watch", daemon=True)
        asyncio.BaseEventLoop.run_forever = watched_run_forever  # type: ignore[method-assign, assignment]
        thread.start()
        try:
            yield self
        finally:
            asyncio.BaseEventLoop.run_forever = run_forever  # type: ignore[method-assign]
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        wall, cpu = time.monotonic(), time.process_time()
        while not self._stopped.wait(TICK_SECONDS):
            wall_before, wall = wall, time.monotonic()
            cpu_before, cpu = cpu, time.process_time()
            passed = wall - wall_before
            if passed > 3 * TICK_SECONDS:
                # This thread was delayed as well. Either something held the GIL, which shows as CPU time of this
                # process, or the machine was busy elsewhere, which no test is responsible for.
                passed = min(passed, cpu - cpu_before)
            for watched in list(self._watched):
                self._tick(watched, passed)

    def _tick(self, watched: _Watched, passed: float) -> None:
        passed = watched.spent(passed)
        if watched.beat_pending:
            watched.blocked_seconds += 0.0 if self.collecting else passed
            if watched.blocked_seconds > self.blocked_seconds_max and not watched.reported:
                watched.reported = True
                frame = sys._current_frames().get(watched.thread_id)
                stack = "".join(traceback.format_stack(frame)[-12:]) if frame else ""
                self._stalls.append(f"the event loop was blocked for {watched.blocked_seconds:.2f} s in\n{stack}")
            return
        watched.blocked_seconds, watched.reported, watched.beat_pending = 0.0, False, True
        with contextlib.suppress(RuntimeError):  # closed since the last check
            watched.loop.call_soon_threadsafe(watched.beat)


@pytest.fixture(scope="session", autouse=True)
def loop_watch() -> Iterator[LoopWatch]:
    with LoopWatch().installed() as watch:
        yield watch


@pytest.fixture(autouse=True)
def never_blocked(request: pytest.FixtureRequest, loop_watch: LoopWatch) -> Iterator[None]:
    loop_watch.take_stalls()
    yield
    stalls = loop_watch.take_stalls()
    if stalls and request.node.get_closest_marker("may_block_loop") is None:
        pytest.fail("\n".join(stalls), pytrace=False)


@pytest.fixture
async def loop_guard(loop_watch: LoopWatch) -> AsyncIterator[None]:
    async with guarded_loop(loop_watch):
        yield


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, never_blocked: None) -> None:
    """Set up the guard of the test's loop before all its other fixtures, so that they clean up before it looks.

    A test without a loop needs no guard and should not pay for one.
    """
    if _uses_a_loop(request.node):
        request.getfixturevalue("loop_guard")


def _uses_a_loop(item: pytest.Item) -> bool:
    """Return whether the test or one of its fixtures is asynchronous."""
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return pytest_asyncio.is_async_test(item) or any(
        inspect.iscoroutinefunction(fixture.func) or inspect.isasyncgenfunction(fixture.func)
        for definitions in fixtures
        for fixture in definitions
    )


@contextlib.asynccontextmanager
async def guarded_loop(loop_watch: LoopWatch) -> AsyncIterator[None]:
    """Fail the test if a task is left on the running loop, or an error was reported to the loop.

    Tasks that already ran before the block are allowed: a browser's live as long as the session.
    """
    loop, before = asyncio.get_running_loop(), asyncio.all_tasks()
    problems: list[str] = []
    loop.set_exception_handler(lambda _, context: problems.append(_describe(context)))
    yield
    for _ in range(GRACE_TURNS):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    problems += [f"task still pending: {task!r}" for task in left]
    # An exception that was never retrieved is only reported when its task is collected.
    loop_watch.collecting = True
    gc.collect()
    loop_watch.collecting = False
    if next(_tests) % FREEZE_EVERY == 0:
        gc.freeze()
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def _describe(context: dict[str, Any]) -> str:
    exception = context.get("exception")
    trace = "".join(traceback.format_exception(exception)) if exception else repr(context)
    return f"reported to the event loop: {context['message']}\n{trace}"


def pytest_collection_finish() -> None:
    # Freeze everything that imports created, which makes a collection after each test cheap.
    gc.collect()
    gc.freeze()
