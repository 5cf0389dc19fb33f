"""A closed loop of concurrent callers, and the payload that every workload uses."""

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
CALLERS = 64
IDLE_SECONDS = 0.001
"""Pause of a caller that found nothing, so that it does not spin on the CPU that is being measured."""


class Load(NamedTuple):
    """The length of a run, which ends after `items` or `seconds`, whichever comes first."""

    seconds: float
    items: int
    callers: int = CALLERS

    @property
    def backlog(self) -> int:
        """Messages to prepare for a run that takes `items`. A tenth more, so that no caller starves."""
        return -(-self.items * 11 // (10 * BATCH * PARTITIONS)) * BATCH * PARTITIONS


class Rate(NamedTuple):
    """Items that were finished in this many seconds, with this many seconds of CPU of the process."""

    items: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.items / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per item."""
        return self.cpu_seconds / max(1, self.items) * 1e6


Step = Callable[[int], Awaitable[int]]
"""One call of the caller with this number. Returns how many items it finished."""
Workload = Callable[[str, Load], Awaitable[Rate]]
"""Measures one thing on an empty store at a URL."""


async def closed_loop(step: Step, load: Load) -> Rate:
    """Run `load.callers` callers that each wait for an answer before they call again."""
    began, cpu, done = time.perf_counter(), time.process_time(), 0

    async def caller(number: int) -> None:
        nonlocal done
        while done < load.items and time.perf_counter() < began + load.seconds:
            finished = await step(number)
            done += finished
            if not finished:
                await asyncio.sleep(IDLE_SECONDS)

    async with asyncio.TaskGroup() as callers:
        for number in range(load.callers):
            callers.create_task(caller(number))
    return Rate(done, time.perf_counter() - began, time.process_time() - cpu)


def fresh_ids(count: int) -> list[str]:
    """Return new UUIDv7 ids, as a producer makes them."""
    return uuid7.many(count)[0]
