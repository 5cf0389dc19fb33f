"""The time until a parked poll gets a new message, at the same broker and at another one. `-rP` prints it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable

import pytest

from tests.e2e.conftest import StartBroker, connected
from tests.http.wire import Wire
from tests.metrics import sample, samples
from tests.until import SECONDS_MAX

ROUNDS = 40
SERIES_MAX = 3
"""A busy machine only adds to the time, so one series of several within the limit is enough."""
PUSH_MS = 4.0
"""Limit in milliseconds for a push that wakes no poll. If a push takes longer, so may a wake, which follows it."""


async def waiting(wire: Wire) -> None:
    """Wait until a poll waits at this broker."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            if samples((await wire.get("/metrics")).body)[sample("polls_waiting")] == 1:
                return
            await asyncio.sleep(0.002)


async def seconds_of(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


async def series(pusher: Wire, poller: Wire, queue: str) -> tuple[list[float], float]:
    """Return the milliseconds from each push to the poll's answer, sorted, and the median of pushes without a poll."""
    took, alone = [], []
    for n in range(ROUNDS):
        poll = asyncio.create_task(poller.pop(queue, wait="true", autoAck="true"))
        await waiting(poller)
        alone.append(await seconds_of(pusher.push(f"{queue} of nobody", n)))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pusher.push(queue, n))
            took.append(await seconds_of(poll))
        assert [message["data"] for message in poll.result()] == [n]
    return sorted(took), statistics.median(alone)


async def check(pusher: Wire, poller: Wire, *, bound_ms: float) -> None:
    await poller.configure("wakes")
    found = []
    for _ in range(SERIES_MAX):
        took, alone = await series(pusher, poller, "wakes")
        median = statistics.median(took)
        found.append(f"p50 {median:.1f} ms, p99 {took[int(ROUNDS * 0.99)]:.1f} ms, a push alone {alone:.1f} ms")
        print(found[-1])  # noqa: T201  # the figures are wanted
        if median <= bound_ms * max(1.0, alone / PUSH_MS):
            return
    pytest.fail("; ".join(found))


@pytest.mark.timeout(100)
async def test_a_push_wakes_a_poll_of_its_broker_within_10_ms(start: StartBroker, store_url: str) -> None:
    broker = await start(store_url)
    async with connected(broker) as pusher, connected(broker) as poller:
        await check(pusher, poller, bound_ms=10)


@pytest.mark.timeout(100)
async def test_a_push_wakes_a_poll_of_another_broker_within_50_ms(start: StartBroker, database_url: str) -> None:
    one, other = await start(database_url), await start(database_url)
    async with connected(one) as pusher, connected(other) as poller:
        await check(pusher, poller, bound_ms=50)
