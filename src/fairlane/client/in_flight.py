"""Requests in flight: several at a time, so that client and broker work at once, each lane in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Any, Generic, NamedTuple, TypeVar, cast

REQUESTS_MAX = 4
ITEMS_MAX = 10_000
"""As many as a broker takes in one request."""
BYTES_MAX = 8 * 1024 * 1024
_SHARE_ITEMS = 32
"""From so many items on, what waits is shared out over the requests that are free. Fewer gain more from travelling
together."""
_LOOK_MAX = 1_000
"""So many that have to wait are looked past for others that may go."""

Call = TypeVar("Call", bound=Sized)
Outcome = TypeVar("Outcome")
Lanes = set[Any]
_Entry = tuple[Call, Lanes, int, asyncio.Future[Outcome]]
"""A call, its lanes, its size in bytes, and the future of its caller."""


class Again(NamedTuple):
    """The outcome of a call, or of the rest of it, that is to be sent again after `seconds`."""

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
        if not isinstance(outcome, Again):
            return outcome
        await asyncio.sleep(outcome.seconds)
        call = outcome.call


class InFlight(Generic[Call, Outcome]):
    """Requests in flight, and the calls that wait for one. No two requests have a lane in common: what was called first
    for a lane is carried out first. `send` makes one request of calls and returns the outcome of each. A call whose
    outcome is `Again` holds its lanes until it is sent again, but no request."""

    def __init__(self, send: Callable[[list[Call]], Awaitable[Sequence[Outcome | Again | Exception]]]) -> None:
        self._send = send
        self._waiting: deque[_Entry[Call, Outcome]] = deque()
        self._items = 0
        """Of the calls that wait."""
        self._lanes: Lanes = set()
        """Of the requests in flight."""
        self._requests = 0
        self._tasks: set[asyncio.Task[None]] = set()
        """Of the requests in flight, and of those that are about to be made."""
        self._delayed: Lanes = set()
        """Lanes of the calls that are sent again after a delay."""
        self._delays: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._requests or self._delays)

    def put(self, call: Call, lanes: Lanes, size: int) -> asyncio.Future[Outcome]:
        """What comes of a call, of so many bytes, which travels with whatever else waits. It is taken back if the
        future is cancelled before it left."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, lanes, size, future))
        self._items += len(call)
        if len(self._tasks) < REQUESTS_MAX and self._lanes.isdisjoint(lanes) and self._delayed.isdisjoint(lanes):
            self._start()
        return future

    def _start(self) -> None:
        """Make a request when everybody who is about to call has called."""
        self._tasks.add(asyncio.create_task(self._run()))

    async def _run(self) -> None:
        try:
            while calls := self._take():
                await self._fly(calls)
                await asyncio.sleep(0)  # those who were answered may have more
        except asyncio.CancelledError:  # the loop is being torn down
            for *_, future in self._waiting:
                future.cancel()
            raise
        finally:
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _fly(self, calls: list[_Entry[Call, Outcome]]) -> None:
        lanes = set().union(*[mine for _, mine, _, _ in calls])
        self._lanes |= lanes
        self._requests += 1
        if self._waiting and len(self._tasks) < REQUESTS_MAX:
            self._start()
        outcomes: Sequence[Outcome | Again | Exception]
        try:
            outcomes = await self._send([call for call, *_ in calls])
        except Exception as error:  # the boundary of a request: its callers get it
            outcomes = [error] * len(calls)
        finally:
            self._requests -= 1
            self._lanes -= lanes
        again: list[_Entry[Call, Outcome]] = []
        seconds = 0.0
        for (*_, future), outcome in zip(calls, outcomes, strict=True):
            if future.done():  # its caller has gone
                continue
            if isinstance(outcome, Again):
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
        """Put calls back in front of those that wait, in their order, after `seconds`."""
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

    def _take(self) -> list[_Entry[Call, Outcome]]:
        """Return the calls of the next request: those that wait longest, except those whose lanes are in a request or
        delayed, or behind a call whose lanes are."""
        waiting, delayed, blocked = self._waiting, self._delayed, self._lanes | self._delayed
        share = -(-self._items // (REQUESTS_MAX - self._requests))
        most = min(ITEMS_MAX, max(_SHARE_ITEMS, share))
        taken: list[_Entry[Call, Outcome]] = []
        left: list[_Entry[Call, Outcome]] = []
        items = size = looked = 0
        while waiting and looked < _LOOK_MAX:
            call, lanes, bytes, future = entry = waiting.popleft()
            if future.done():  # its caller has gone
                self._items -= len(call)
                continue
            if blocked and not blocked.isdisjoint(lanes):
                blocked.update(lanes)
                left.append(entry)
                looked += delayed.isdisjoint(lanes)  # delays are long: others are found behind all of these
                continue
            size += bytes
            if taken and (items + len(call) > most or size > BYTES_MAX):
                left.append(entry)
                break
            items += len(call)
            taken.append(entry)
        waiting.extendleft(reversed(left))
        self._items -= items
        return taken

    async def drain(self) -> None:
        """Return when everybody who waits was answered."""
        while self._tasks or self._delays:
            await asyncio.wait(self._tasks | self._delays)
