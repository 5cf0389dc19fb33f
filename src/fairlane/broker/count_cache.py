"""A cache of counts of queues. Each count reads every partition, so all callers use the same one.

While a count is cheap, every answer is fresh. An expensive one is used for twenty times as long as it took, and is
then refreshed in the background. Meanwhile a queue that changed here is counted again at once if that alone is cheap.
A count of few partitions is cheap however long a busy machine took for it. So dashboards that poll every second do not
keep the store busy, and counts are old only where there are very many partitions. `age_seconds` says how old.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from fairlane.errors import FairlaneError, ShuttingDown
from fairlane.telemetry import Telemetry

T = TypeVar("T")
CHEAP_SECONDS: Final = 0.02
_SHARE: Final = 20
_ROW_SECONDS: Final = 50e-6
"""Upper bound on the cost of one partition or lane. A count that took longer waited for the machine or the store."""
_STALE_SECONDS: Final = 10.0
"""Additional time that a count is used while it is refreshed. Later callers wait for the new one."""


def cache_seconds(seconds: float) -> float:
    """Return how long a count is cached that took `seconds`."""
    return 0.0 if seconds < CHEAP_SECONDS else _SHARE * seconds


class _Entry(NamedTuple, Generic[T]):
    """The count of one queue, the times when it began and expires, and its share of the cost."""

    value: T | None
    at: float
    until: float
    seconds: float
    turn: int


class _Freshness(NamedTuple):
    """Queues without a cached count, queues to count again with their cost, and the start of the oldest other count."""

    missing: list[int]
    due: list[int]
    seconds: float
    at: float
    turn: int


class CountCache(Generic[T]):
    """A cache of counts. `count` returns them by queue id, `weigh` the number of partitions or lanes read for one."""

    def __init__(
        self,
        telemetry: Telemetry,
        count: Callable[[Sequence[int]], Awaitable[Mapping[int, T]]],
        weigh: Callable[[T], int],
    ) -> None:
        self._telemetry = telemetry
        self._count = count
        self._weigh = weigh
        self._entries: dict[int, _Entry[T]] = {}
        self._task: asyncio.Task[None] | None = None
        self._at = 0.0
        """Start of the oldest count that the last answer used."""
        self.refreshes = 0

    async def of(self, ids: Sequence[int]) -> dict[int, T]:
        """Return the numbers of these queues, without queues that do not exist."""
        asked_at = time.monotonic()
        while (state := self._freshness(ids, asked_at)).missing:
            if self._task is not None:  # concurrent callers share one count
                await asyncio.wait([self._task])
                continue
            self._task = task = self._begin(state.missing)
            await asyncio.wait([task])
            if task.cancelled():
                raise ShuttingDown("the broker is stopping")
            task.result()
        due, seconds = state.due, state.seconds
        if seconds > CHEAP_SECONDS:
            if self._task is None:
                self._task = self._begin(due)
            due, seconds = [], 0.0
        if due := [*due, *self._changed(ids, asked_at, state.turn, CHEAP_SECONDS - seconds)]:
            await self._refresh(due)
        self._at, entries = state.at, self._entries
        return {id: value for id in ids if (value := entries[id].value) is not None}

    def _freshness(self, ids: Sequence[int], asked_at: float) -> _Freshness:
        entries, missing, due = self._entries, list[int](), list[int]()
        seconds, at, turn, stale = 0.0, asked_at, 2**62, asked_at - _STALE_SECONDS
        for id in ids:
            entry = entries.get(id)
            if entry is None or entry.until < stale:
                missing.append(id)
            elif entry.until <= asked_at and entry.at < asked_at:
                due.append(id)
                seconds += entry.seconds
            elif entry.at < at:
                at, turn = entry.at, min(turn, entry.turn)
        return _Freshness(missing, due, seconds, at, turn)

    def age_seconds(self) -> int:
        """Return the age of the numbers in the last answer."""
        return int(time.monotonic() - self._at) if self._at else 0

    def forget(self, id: int) -> None:
        """Drop the numbers of a queue that was changed by other means than its messages."""
        self._entries.pop(id, None)

    def forget_others(self, ids: Iterable[int]) -> None:
        """Drop the numbers of all queues except these."""
        if len(self._entries) > 2 * len(there := set(ids)) + 1000:
            self._entries = {id: entry for id, entry in self._entries.items() if id in there}

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _changed(self, ids: Sequence[int], asked_at: float, turn: int, seconds: float) -> list[int]:
        """Return the queues with activity since their count, as many as can be counted in `seconds`."""
        found, turns = list[int](), self._telemetry.active_queues(turn)
        for id in turns.keys() & set(ids) if turns else ():
            entry = self._entries[id]
            if entry.at < asked_at < entry.until and turns[id] >= entry.turn and entry.seconds <= seconds:
                found.append(id)
                seconds -= entry.seconds
        return found

    def _begin(self, ids: Sequence[int]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._refresh(ids), name="fairlane counting")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        with contextlib.suppress(FairlaneError, asyncio.CancelledError):
            task.result()  # waiting callers get the error; without any, the previous count is used a little longer

    async def _refresh(self, ids: Sequence[int]) -> None:
        began, turn = time.monotonic(), self._telemetry.bin_at
        found = await self._count(ids)
        now = time.monotonic()
        self.refreshes += 1
        weights = {id: 1 + (self._weigh(found[id]) if id in found else 0) for id in ids}
        rows = max(1, sum(weights.values()))
        cost = min(now - began, rows * _ROW_SECONDS)
        until = now + cache_seconds(cost) if cost >= CHEAP_SECONDS else began
        each = cost / rows
        for id in ids:
            old = self._entries.get(id)
            if old is None or old.at <= began:  # a count that started later may have ended sooner
                self._entries[id] = _Entry(found.get(id), began, until, each * weights[id], turn)
