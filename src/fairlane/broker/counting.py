"""Counting: numbers of queues, each of which costs a look at every partition, shared by all who ask.

While a count is cheap, every answer is fresh. One that was not serves for twenty times as long as it took, and is then
made anew beside those who ask. Meanwhile a queue that something happened to here is counted again at once if that alone
is cheap. A count of few partitions is cheap however long a busy machine took for it. So dashboards that ask every
second do not keep the store busy, and numbers are old only where there are very many partitions; `age_seconds` says how
old."""

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
"""How much longer than it should a count serves while it is made anew; whoever asks later waits for the new one."""


def serves_seconds(seconds: float) -> float:
    """How long a count serves that took so long."""
    return 0.0 if seconds < CHEAP_SECONDS else _SHARE * seconds


class _Entry(NamedTuple, Generic[T]):
    """A queue's numbers: when their count began, until when they serve, and what of that count they cost."""

    value: T | None
    at: float
    until: float
    seconds: float
    turn: int


class _State(NamedTuple):
    """Queues that were not counted lately, those to be counted anew and how long that takes; of the others, when the
    oldest count began."""

    missing: list[int]
    due: list[int]
    seconds: float
    at: float
    turn: int


class Counting(Generic[T]):
    """`count` gives the numbers of queues by their id, `weigh` the partitions or lanes that were looked at for one."""

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
        """When the oldest count began that the last answer used."""
        self.looks = 0

    async def of(self, ids: Sequence[int]) -> dict[int, T]:
        """The numbers of these queues; one that is not there is left out."""
        asked_at = time.monotonic()
        while (state := self._state(ids, asked_at)).missing:
            if self._task is not None:  # others who ask meanwhile wait for the same count
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
        if due := [*due, *self._touched(ids, asked_at, state.turn, CHEAP_SECONDS - seconds)]:
            await self._look(due)
        self._at, entries = state.at, self._entries
        return {id: value for id in ids if (value := entries[id].value) is not None}

    def _state(self, ids: Sequence[int], asked_at: float) -> _State:
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
        return _State(missing, due, seconds, at, turn)

    def age_seconds(self) -> int:
        """Of the numbers that were last answered."""
        return int(time.monotonic() - self._at) if self._at else 0

    def forget(self, id: int) -> None:
        """A queue was changed otherwise than by messages that pass."""
        self._entries.pop(id, None)

    def forget_others(self, ids: Iterable[int]) -> None:
        """Only these queues are there."""
        if len(self._entries) > 2 * len(there := set(ids)) + 1000:
            self._entries = {id: entry for id, entry in self._entries.items() if id in there}

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _touched(self, ids: Sequence[int], asked_at: float, turn: int, seconds: float) -> list[int]:
        """Those of the queues that something happened to since they were counted, as many as take so long together."""
        found, turns = list[int](), self._telemetry.touched(turn)
        for id in turns.keys() & set(ids) if turns else ():
            entry = self._entries[id]
            if entry.at < asked_at < entry.until and turns[id] >= entry.turn and entry.seconds <= seconds:
                found.append(id)
                seconds -= entry.seconds
        return found

    def _begin(self, ids: Sequence[int]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._look(ids), name="fairlane counting")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        with contextlib.suppress(FairlaneError, asyncio.CancelledError):
            task.result()  # whoever waits for it is told; while nobody does, what is known serves a little longer

    async def _look(self, ids: Sequence[int]) -> None:
        began, turn = time.monotonic(), self._telemetry.turn
        found = await self._count(ids)
        now = time.monotonic()
        self.looks += 1
        weights = {id: 1 + (self._weigh(found[id]) if id in found else 0) for id in ids}
        rows = max(1, sum(weights.values()))
        cost = min(now - began, rows * _ROW_SECONDS)
        until = now + serves_seconds(cost) if cost >= CHEAP_SECONDS else began
        each = cost / rows
        for id in ids:
            old = self._entries.get(id)
            if old is None or old.at <= began:  # a count that began later may have ended sooner
                self._entries[id] = _Entry(found.get(id), began, until, each * weights[id], turn)
