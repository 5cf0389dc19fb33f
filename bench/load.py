"""What every run has in common: how much to do, closed-loop callers, and the rate they reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fairlane.model.ids import uuid7

PAYLOAD = b'{"order":"2f1c9c4e-7d0b","customer":48213,"amount":"129.90","currency":"EUR","note":"at the door"}'
assert len(PAYLOAD) == 98, len(PAYLOAD)

BATCH = 100
PARTITIONS = 100

IDLE_SECONDS = 0.001  # before a caller that found nothing asks again: it must not spin on the CPU it is measured on


class Load(NamedTuple):
    """A run ends at `items` or `seconds`, whichever comes first."""

    tasks: int
    seconds: float
    items: int

    @property
    def backlog(self) -> int:
        """Messages to prepare for a run that takes `items`: a tenth more, so that no caller starves."""
        return -(-self.items * 11 // (10 * BATCH * PARTITIONS)) * BATCH * PARTITIONS


class Rate(NamedTuple):
    """Messages finished, in how long, and from how many claimed lanes where that was counted."""

    items: int
    seconds: float
    lanes: int = 0

    @property
    def per_second(self) -> float:
        return self.items / self.seconds

    @property
    def lanes_per_second(self) -> float:
        return self.lanes / self.seconds


Step = Callable[[int], Awaitable[int]]
"""One call of the caller with this number; returns how many items it finished."""
Run = Callable[[str, Load], Awaitable[Rate]]
"""Measures one thing on an empty store at a URL."""


class Progress:
    """Items finished so far and when to stop, shared by the callers of a run."""

    def __init__(self, load: Load) -> None:
        self.started = time.perf_counter()
        self._ends = self.started + load.seconds
        self._items = load.items
        self.done = 0

    def over(self) -> bool:
        return self.done >= self._items or time.perf_counter() >= self._ends

    def rate(self) -> Rate:
        return Rate(self.done, time.perf_counter() - self.started)


async def closed_loop(step: Step, load: Load) -> Rate:
    """`load.tasks` callers that each wait for an answer before they ask again."""
    progress = Progress(load)

    async def caller(number: int) -> None:
        while not progress.over():
            finished = await step(number)
            progress.done += finished
            if not finished:
                await asyncio.sleep(IDLE_SECONDS)

    async with asyncio.TaskGroup() as callers:
        for number in range(load.tasks):
            callers.create_task(caller(number))
    return progress.rate()


def fresh_ids(count: int) -> list[str]:
    """UUIDv7s made now, as a producer would make them."""
    return uuid7.many(count)[0]
