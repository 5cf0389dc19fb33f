"""Run a closed loop of callers on one system: `PEER.py URL NAME WORKLOAD TASKS SECONDS BATCH`, the payload on stdin.

Prints JSON: messages, seconds, microseconds of CPU of this process per message, and percentiles of the time of one
call. Every system implements `System`, and a workload means the same for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import uvloop

WARM_SECONDS = 0.5
FILLERS = 8
FILL_SECONDS_MAX = 5.0
FILL_RATE = 150_000


class Task(NamedTuple):
    """The queue to use, with the payload and batch size of its messages.

    With `ids` each message has an id of its producer, which the system deduplicates if it can.
    """

    name: str
    payload: bytes
    batch: int
    ids: bool


class System(Protocol):
    """A queue as a Python program uses it. Every method returns when its effect is durable, if possible."""

    version: str

    async def open(self, url: str, task: Task) -> None: ...

    async def push(self, task: int) -> int:
        """Push one message in one call, and return 1."""
        ...

    async def push_batch(self, task: int) -> int:
        """Push a batch in as few calls as the system allows, and return how many messages."""
        ...

    async def consume(self, task: int) -> int:
        """Consume up to a batch, ack it, and return how many messages."""
        ...

    async def close(self) -> None: ...


class Embedded(System, Protocol):
    """A system in the process of the program, which is also measured with one message per call."""

    async def consume_one(self, task: int) -> int:
        """Consume one message, ack it, and return 1, or 0 if there is none."""
        ...


Step = Callable[[int], Awaitable[int]]


class _Loop:
    def __init__(self, callers: int, seconds: float, items_max: int) -> None:
        self.items = 0
        self.by_caller = [0] * callers
        self.items_max = items_max
        self.took: list[float] = []
        self.began = time.perf_counter()
        self.ends = self.began + seconds

    async def caller(self, number: int, step: Step) -> None:
        while (began := time.perf_counter()) < self.ends and self.items < self.items_max:
            done = await step(number)
            self.items += done
            self.by_caller[number] += done
            if done:
                self.took.append(time.perf_counter() - began)
            else:
                await asyncio.sleep(0.001)


async def _run(steps: list[Step], seconds: float, items_max: int = sys.maxsize) -> _Loop:
    loop = _Loop(len(steps), seconds, items_max)
    async with asyncio.TaskGroup() as callers:
        for number, step in enumerate(steps):
            callers.create_task(loop.caller(number, step))
    return loop


async def _filled(system: System, seconds: float) -> int:
    """Push a backlog for the consumers and return its size. It takes a few seconds at most."""
    filling = await _run([system.push_batch] * FILLERS, FILL_SECONDS_MAX, int(FILL_RATE * seconds))
    return filling.items


async def _measure(
    system: System, url: str, name: str, workload: str, tasks: int, seconds: float, batch: int
) -> dict[str, object]:
    await system.open(url, Task(name, sys.stdin.buffer.readline().strip(), batch, ids=workload == "both"))
    step: Step | None = None if workload == "both" else getattr(system, workload)
    steps: list[Step] = [step] * tasks if step else [system.push_batch, system.consume] * (tasks // 2)
    consumes = workload.startswith("consume")
    backlog = await _filled(system, seconds) if consumes else sys.maxsize
    if not consumes:
        await _run(steps, min(WARM_SECONDS, seconds))
    _tell("begin")  # the parent measures the servers from here on
    cpu, began = time.process_time(), time.perf_counter()
    loop = await _run(steps, seconds, backlog)
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    _tell("end")
    await system.close()
    # When it pushes and consumes at once, the slower direction counts.
    items = loop.items if step else min(sum(loop.by_caller[0::2]), sum(loop.by_caller[1::2]))
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


def _tell(what: str) -> None:
    """Tell the parent, and wait until it has sampled the servers."""
    print(what, flush=True)
    sys.stdin.buffer.readline()


def main(system: System) -> None:
    url, name, workload, tasks, seconds, batch = sys.argv[1:]
    measuring = _measure(system, url, name, workload, int(tasks), float(seconds), int(batch))
    print(json.dumps(uvloop.run(measuring)), flush=True)
