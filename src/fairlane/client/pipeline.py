"""Request pipelining: up to four requests in flight at once, with each lane kept in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Any, Generic, NamedTuple, TypeVar, cast

REQUESTS_MAX = 4
ITEMS_MAX = 10_000
"""The broker's limit for one request."""
BYTES_MAX = 8 * 1024 * 1024
_SHARE_ITEMS = 32
"""Split waiting items over the free requests only above this count. Fewer items are faster in one request."""
_BLOCKED_CALLS_MAX = 1_000
"""Blocked calls to skip while searching the queue for calls that can be sent."""

Call = TypeVar("Call", bound=Sized)
Outcome = TypeVar("Outcome")
Lanes = set[Any]
_Entry = tuple[Call, Lanes, int, asyncio.Future[Outcome]]
"""A waiting call: its lanes, its size in bytes, and the future of its caller."""


class Resend(NamedTuple):
    """The outcome of a call that must be sent again, in whole or in part, after `seconds`."""

    call: Any
    lanes: Lanes
    size: int
    seconds: float


async def settle(send: Callable[[list[Any]], Awaitable[Sequence[Any]]], call: Any) -> Any:
    """Send one call alone, with retries, until its outcome is final. Returns or raises that outcome."""
    while True:
        [outcome] = await send([call])
        if isinstance(outcome, Exception):
            raise outcome
        if not isinstance(outcome, Resend):
            return outcome
        await asyncio.sleep(outcome.seconds)
        call = outcome.call


class RequestPipeline(Generic[Call, Outcome]):
    """Requests in flight, and the calls that wait for one.

    No two requests share a lane, so calls for a lane run in the order they were made. `send` makes one request from
    several calls and returns an outcome for each. A call whose outcome is `Resend` keeps its lanes blocked until it is
    sent again, but occupies no request.
    """

    def __init__(self, send: Callable[[list[Call]], Awaitable[Sequence[Outcome | Resend | Exception]]]) -> None:
        self._send = send
        self._waiting: deque[_Entry[Call, Outcome]] = deque()
        self._items = 0
        """Total length of the waiting calls."""
        self._lanes: Lanes = set()
        """Lanes of the requests in flight."""
        self._requests = 0
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks that have a request in flight or are about to send one."""
        self._delayed: Lanes = set()
        """Lanes of the calls that wait to be sent again."""
        self._delays: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._requests or self._delays)

    def put(self, call: Call, lanes: Lanes, size: int) -> asyncio.Future[Outcome]:
        """Queue a call of `size` bytes and return the future of its outcome.

        Cancelling the future before the call is sent withdraws the call.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, lanes, size, future))
        self._items += len(call)
        if len(self._tasks) < REQUESTS_MAX and self._lanes.isdisjoint(lanes) and self._delayed.isdisjoint(lanes):
            self._start()
        return future

    def _start(self) -> None:
        """Start a request task. It first runs after the current callbacks, so calls made together share a request."""
        self._tasks.add(asyncio.create_task(self._run()))

    async def _run(self) -> None:
        try:
            while calls := self._next_calls():
                await self._send_calls(calls)
                await asyncio.sleep(0)  # callers that were just answered may add more calls
        except asyncio.CancelledError:  # the loop is being torn down
            for *_, future in self._waiting:
                future.cancel()
            raise
        finally:
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _send_calls(self, calls: list[_Entry[Call, Outcome]]) -> None:
        lanes = set().union(*[mine for _, mine, _, _ in calls])
        self._lanes |= lanes
        self._requests += 1
        if self._waiting and len(self._tasks) < REQUESTS_MAX:
            self._start()
        outcomes: Sequence[Outcome | Resend | Exception]
        try:
            outcomes = await self._send([call for call, *_ in calls])
        except Exception as error:  # any failure of the request goes to its callers
            outcomes = [error] * len(calls)
        finally:
            self._requests -= 1
            self._lanes -= lanes
        again: list[_Entry[Call, Outcome]] = []
        seconds = 0.0
        for (*_, future), outcome in zip(calls, outcomes, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(outcome, Resend):
                again.append((outcome.call, outcome.lanes, outcome.size, future))
                seconds = max(seconds, outcome.seconds)
            elif isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if again:
            self._delayed.update(*[mine for _, mine, _, _ in again])
            self._delays.add(asyncio.create_task(self._delay(again, seconds)))

    async def _delay(self, entries: list[_Entry[Call, Outcome]], seconds: float) -> None:
        """Put the calls back at the front of the queue, in their order, after `seconds`."""
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:  # the loop is being torn down
            for *_, future in entries:
                future.cancel()
            raise
        finally:
            self._delayed.difference_update(*[lanes for _, lanes, _, _ in entries])
            self._delays.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        self._waiting.extendleft(reversed(entries))
        self._items += sum(len(call) for call, *_ in entries)
        if len(self._tasks) < REQUESTS_MAX:
            self._start()

    def _next_calls(self) -> list[_Entry[Call, Outcome]]:
        """Return the calls of the next request, oldest first.

        Skips a call if one of its lanes is in flight or delayed, or belongs to an earlier skipped call.
        """
        waiting, delayed, blocked = self._waiting, self._delayed, self._lanes | self._delayed
        share = -(-self._items // (REQUESTS_MAX - self._requests))
        most = min(ITEMS_MAX, max(_SHARE_ITEMS, share))
        taken: list[_Entry[Call, Outcome]] = []
        skipped: list[_Entry[Call, Outcome]] = []
        items = size = passed_over = 0
        while waiting and passed_over < _BLOCKED_CALLS_MAX:
            call, lanes, bytes, future = entry = waiting.popleft()
            if future.done():  # its caller was cancelled
                self._items -= len(call)
                continue
            if blocked and not blocked.isdisjoint(lanes):
                blocked.update(lanes)
                skipped.append(entry)
                passed_over += delayed.isdisjoint(
                    lanes
                )  # delays are long, so delayed calls do not count towards the limit
                continue
            size += bytes
            if taken and (items + len(call) > most or size > BYTES_MAX):
                skipped.append(entry)
                break
            items += len(call)
            taken.append(entry)
        waiting.extendleft(reversed(skipped))
        self._items -= items
        return taken

    async def drain(self) -> None:
        """Wait until every call has its outcome."""
        while self._tasks or self._delays:
            await asyncio.wait(self._tasks | self._delays)
