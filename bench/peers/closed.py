"""Callers in a closed loop over one system: `python PEER.py URL WORKLOAD TASKS SECONDS BATCH`, the payload on stdin.

Prints what was measured as JSON: messages, seconds, microseconds of CPU of this process per message, and percentiles of
the time that one call took. Every system implements `System`; a workload means the same for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import uvloop

WARM_SECONDS = 0.5
FILLERS = 8
FILL_SECONDS_MAX = 10.0
FILL_RATE = 200_000


class System(Protocol):
    """A queue as a Python program uses it. Every method returns when what it did is durable, as far as the system
    can tell."""

    version: str

    async def open(self, url: str, payload: bytes, batch: int) -> None: ...

    async def push(self, task: int) -> int:
        """One message in one call; 1."""
        ...

    async def push_batch(self, task: int) -> int:
        """A batch in the fewest calls the system has; how many."""
        ...

    async def consume(self, task: int) -> int:
        """Take up to a batch and finish it; how many."""
        ...

    async def close(self) -> None: ...


Step = Callable[[int], Awaitable[int]]


class _Loop:
    def __init__(self, seconds: float, items_max: int) -> None:
        self.items = 0
        self.items_max = items_max
        self.took: list[float] = []
        self.began = time.perf_counter()
        self.ends = self.began + seconds

    async def caller(self, number: int, step: Step) -> None:
        while (began := time.perf_counter()) < self.ends and self.items < self.items_max:
            done = await step(number)
            self.items += done
            if done:
                self.took.append(time.perf_counter() - began)
            else:
                await asyncio.sleep(0.001)


async def _run(steps: list[Step], seconds: float, items_max: int = sys.maxsize) -> _Loop:
    loop = _Loop(seconds, items_max)
    async with asyncio.TaskGroup() as callers:
        for number, step in enumerate(steps):
            callers.create_task(loop.caller(number, step))
    return loop


async def _filled(system: System, seconds: float) -> int:
    """Leave a backlog for consumers, as much as the fastest would take or as fits into some seconds; how much."""
    filling = await _run([system.push_batch] * FILLERS, FILL_SECONDS_MAX, int(FILL_RATE * seconds))
    return filling.items


async def _measure(
    system: System, url: str, workload: str, tasks: int, seconds: float, batch: int
) -> dict[str, object]:
    await system.open(url, sys.stdin.buffer.readline().strip(), batch)
    step = {"push": system.push, "push_batch": system.push_batch, "consume": system.consume}.get(workload)
    steps: list[Step] = [step] * tasks if step else [system.push_batch, system.consume] * (tasks // 2)
    backlog = await _filled(system, seconds) if workload == "consume" else sys.maxsize
    if workload != "consume":
        await _run(steps, min(WARM_SECONDS, seconds))
    print("begin", flush=True)  # from here on the parent counts what the servers use
    cpu, began = time.process_time(), time.perf_counter()
    loop = await _run(steps, seconds, backlog)
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    print("end", flush=True)
    sys.stdin.buffer.readline()  # it has counted
    await system.close()
    items = loop.items if step else loop.items / 2  # each message went in and came out
    took = sorted(loop.took) or [0.0]
    return {
        "version": system.version,
        "items": items,
        "seconds": taken,
        "cpu": cpu / max(1, items) * 1e6,
        **{
            f"p{share}": took[min(len(took) - 1, int(len(took) * float(share) / 100))] for share in ("50", "99", "99.9")
        },
    }


def main(system: System) -> None:
    url, workload, tasks, seconds, batch = sys.argv[1:]
    print(json.dumps(uvloop.run(_measure(system, url, workload, int(tasks), float(seconds), int(batch)))), flush=True)
