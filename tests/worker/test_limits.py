"""Time limits, attempts and backoff of handlers, and options that they declare."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from fairlane import App, Client, Context, Fail, InvalidRequest
from fairlane.testing import AppTest, FrozenClock
from fairlane.worker import queue_plan
from tests.until import until
from tests.worker.conftest import Running, until_drained


async def test_a_coroutine_past_its_time_limit_is_cancelled_and_frees_its_lane(
    client: Client, queue: str, running: Running
) -> None:
    app, ended, seen = App(), [], []

    @app.handler(queue, timeout=0.2, max_attempts=1)
    async def work(n: int) -> None:
        seen.append(n)
        if n == 0:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(n)

    for n in range(2):
        await client.push(queue, n)
    async with running(app):
        await until_drained(client, queue)
    assert (seen, ended) == ([0, 1], [0])
    [letter] = await client.dead_letters.page(queue)
    assert letter.attempts == 1
    assert "work took longer than its time limit of 0.2 s" in letter.error


async def test_a_coroutine_that_will_not_be_cancelled_is_left_to_itself(
    client: Client, queue: str, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.worker.handlers.CANCEL_SECONDS", 0.1)
    app, over = App(), asyncio.Event()

    @app.handler(queue, timeout=0.1, max_attempts=1)
    async def work(n: int) -> None:
        while not over.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    await client.push(queue, 0)
    async with running(app, own_loop=False):
        await until_drained(client, queue)
        over.set()
        await asyncio.sleep(0.05)
    assert len(await client.dead_letters.page(queue)) == 1


async def test_a_thread_past_its_time_limit_keeps_nobody_from_working(
    client: Client, queue: str, running: Running
) -> None:
    app, over, told, done = App(), threading.Event(), threading.Event(), []

    @app.handler(queue, timeout=0.2, max_attempts=1, concurrency=1)
    def work(n: int, ctx: Context) -> None:
        if n == 0:
            while not ctx.cancelled:
                time.sleep(0.01)
            told.set()
            over.wait(60)
        done.append(n)

    for n in range(3):
        await client.push(queue, n)
    try:
        async with running(app) as worker:
            await until_drained(client, queue)
            assert done == [1, 2], "in a thread of their own, though the only one hangs"
            assert told.is_set()
        assert worker.stuck, "so that the process knows that a thread would keep it"
    finally:
        over.set()
    [letter] = await client.dead_letters.page(queue)
    assert "time limit" in letter.error


async def test_a_worker_that_loses_too_many_threads_ends_for_its_supervisor_to_begin_anew(
    client: Client, queue: str, running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairlane.worker.executor.THREADS_LOST_MAX", 2)
    app, over = App(), threading.Event()

    @app.handler(queue, timeout=0.1, max_attempts=1, concurrency=1)
    def hang(n: int) -> None:
        over.wait(60)

    for n in range(5):
        await client.push(queue, n)
    try:
        async with running(app) as worker:
            await until(lambda: worker.threads_exhausted)
    finally:
        over.set()
    assert worker.threads_exhausted
    assert "hang did not end, and its thread is lost (1 of at most 2)" in caplog.text
    assert "2 threads are lost to handlers that do not end: stopping the worker" in caplog.messages
    left = (await client.queues.show(queue)).totals
    assert left.pending >= 2, "what it did not begin is there for others"


async def test_a_batch_past_its_time_limit_charges_the_first_of_each_lane(
    client: Client, queue: str, running: Running
) -> None:
    app, sizes = App(), []

    @app.batch(queue, size=10, timeout=0.2, max_attempts=1)
    async def work(some: list[int]) -> None:
        sizes.append(len(some))
        if 0 in some:
            await asyncio.sleep(3600)

    for n in range(2):
        await client.push(queue, n)
    async with running(app):
        await until_drained(client, queue)
    assert [letter.data for letter in await client.dead_letters.page(queue)] == [0]


async def test_attempts_and_backoff_are_as_the_handler_says() -> None:
    app, clock = App(), FrozenClock()
    attempts: list[int] = []

    @app.handler("q", max_attempts=3, backoff=10, backoff_max=15)
    async def work(_: Any, ctx: Context) -> Fail:
        attempts.append(ctx.attempt)
        return Fail("not yet")

    async with AppTest(app, clock=clock) as test:
        await test.push("q", 1)
        await test.drain()
        assert attempts == [1]
        for seconds, expected in ((9.9, [1]), (0.2, [1, 2]), (14.8, [1, 2]), (0.3, [1, 2, 3])):
            clock.advance(seconds)
            await test.drain()
            assert attempts == expected
        [letter] = await test.dead_letters("q")
        assert (letter.error, letter.attempts) == ("not yet", 3)


@pytest.mark.parametrize(("options", "least"), [({}, 1.0), ({"retry_delay_ms": 20}, 0.02)])
async def test_a_queue_without_a_backoff_waits_a_moment_between_attempts_of_a_worker(
    client: Client, queue: str, running: Running, options: dict[str, Any], least: float
) -> None:
    app, times = App(), []

    @app.handler(queue)
    async def work(_: Any) -> None:
        times.append(time.monotonic())
        if len(times) < 2:
            raise ValueError("broken")

    await client.queues.configure(queue, **options)
    await client.push(queue, 1)
    async with running(app):
        await until(lambda: len(times) == 2)
    assert times[1] - times[0] >= least - 0.01


async def test_declared_options_are_shown_and_set_only_if_asked_for(client: Client, queue: str) -> None:
    app = App()

    @app.handler(queue, max_attempts=10, options={"max_size": 5, "lease_seconds": 300})
    async def work(_: Any) -> None: ...

    @app.handler(f"{queue}.new", max_attempts=2)
    async def other(_: Any) -> None: ...

    await client.queues.configure(queue, max_size=7, retry_delay_ms=3)
    found = await queue_plan.option_changes(app, client)
    assert found == [
        queue_plan.OptionChange(queue, "retry_limit", 3, 9),
        queue_plan.OptionChange(queue, "max_size", 7, 5),
    ]
    await queue_plan.apply_option_changes(client, found)
    assert await queue_plan.option_changes(app, client) == []
    assert (await client.queues.show(queue)).options["retryDelay"] == 3, "the others stay"
    wanted = [queue_plan.OptionChange(f"{queue}.made", "max_size", 0, 1)]
    await queue_plan.apply_option_changes(client, wanted)
    assert (await client.queues.show(f"{queue}.made")).options["maxSize"] == 1


def test_what_cannot_be_meant_is_refused() -> None:
    app = App()
    for options in ({"timeout": 0}, {"timeout": -1.0}, {"max_attempts": 0}, {"backoff": -1}, {"options": {"size": 1}}):
        with pytest.raises(InvalidRequest):
            app.handler("q", **options)(print)
    app.handler("q", type="a", options={"max_size": 1})(lambda n: None)
    app.handler("q", type="b", options={"max_size": 2})(lambda n: None)
    with pytest.raises(InvalidRequest, match="declare max_size as 1 and 2"):
        app.declared()
