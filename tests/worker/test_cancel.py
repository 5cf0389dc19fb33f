"""Cancelled messages: their handlers end within a second, and others of the same lease go on."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fairlane import App, Client, Context
from fairlane.errors import MessageCancelled
from fairlane.testing import AppTest
from tests.until import until
from tests.worker import jobs
from tests.worker.conftest import Running, until_drained


async def test_a_coroutine_is_cancelled_and_its_lane_goes_on(client: Client, queue: str, running: Running) -> None:
    app, events = App(), []

    @app.handler(queue)
    async def work(n: int, ctx: Context) -> None:
        events.append(("began", n))
        if n == 0:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                events.append(("cancelled", ctx.cancelled))
                raise
        events.append(("done", n))

    for n in range(2):
        await client.push(queue, n, transaction_id=f"m{n}")
    async with running(app):
        await until(lambda: ("began", 0) in events)
        cancelled = await client.cancel(queue, "m0")
        assert cancelled.before == "processing"
        await until_drained(client, queue)
        await until(lambda: len(events) == 4)
    assert events[0] == ("began", 0)
    assert sorted(events) == [("began", 0), ("began", 1), ("cancelled", True), ("done", 1)]
    assert await client.dead_letters.page(queue) == []
    with pytest.raises(MessageCancelled):
        await client.result(queue, "m0")


async def test_a_handler_that_hides_its_cancellation_pushes_and_acks_nothing(
    client: Client, queue: str, running: Running
) -> None:
    app, ended = App(), []

    @app.handler(queue)
    async def work(n: int, ctx: Context) -> None:
        ctx.push(f"{queue}.next", n)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append(n)

    await client.push(queue, 0, transaction_id="m0")
    async with running(app) as worker:
        await until(lambda: bool(worker.consumers) and worker.consumers[0].in_hand == 1)
        await client.cancel(queue, "m0")
        await until_drained(client, queue)
        await until(lambda: ended == [0] and worker.consumers[0].in_hand == 0)
    assert (await client.results.get(queue, "m0")).status == "cancelled"
    assert not await client.pop(f"{queue}.next")


async def test_a_message_that_waits_in_the_worker_is_not_handled(client: Client, queue: str, running: Running) -> None:
    """The worker popped both messages of the lane at once."""
    app, seen = App(), []
    go_on = asyncio.Event()

    @app.handler(queue, concurrency=2)
    async def work(n: int) -> None:
        seen.append(n)
        if n == 1:
            await go_on.wait()

    async with running(app, own_loop=False) as worker:
        for n in range(40):  # quick handlers let the worker pop more than one message of the lane
            await client.push(queue, n + 10)
        await until_drained(client, queue)
        for n in range(1, 4):
            await client.push(queue, n, transaction_id=f"m{n}")
        await until(lambda: 1 in seen)
        await client.cancel(queue, "m2")
        await asyncio.sleep(0)
        assert worker.consumers[0].in_hand > 0
        go_on.set()
        await until_drained(client, queue)
    assert seen[40:] == [1, 3]


async def test_a_plain_function_sees_that_its_message_was_cancelled(
    client: Client, queue: str, running: Running
) -> None:
    app, seen = App(), threading.Event()

    @app.handler(queue)
    def work(n: int, ctx: Context) -> None:
        ends_at = time.monotonic() + 60
        while not ctx.cancelled and time.monotonic() < ends_at:
            time.sleep(0.01)
        if ctx.cancelled:
            seen.set()

    await client.push(queue, 0, transaction_id="m0")
    async with running(app) as worker:
        await until(lambda: bool(worker.consumers) and worker.consumers[0].in_hand == 1)
        await client.cancel(queue, "m0")
        await until(seen.is_set)
        await until_drained(client, queue)


@pytest.mark.may_block_loop
async def test_the_process_of_a_cancelled_message_is_killed_and_others_go_on(
    client: Client, queue: str, running: Running, tmp_path: Path
) -> None:
    app = App()
    app.handler(queue, processes=True, concurrency=2)(jobs.note_and_wait)
    for n in range(2):
        data = {"began": str(tmp_path / f"began{n}"), "go_on": str(tmp_path / f"go{n}")}
        await client.push(queue, data, partition=f"p{n}", transaction_id=f"m{n}")
    began = [tmp_path / f"began{n}" for n in range(2 if (os.cpu_count() or 1) > 1 else 1)]
    async with running(app):
        await until(lambda: all(one.exists() and one.read_text() for one in began), seconds=60)
        await client.cancel(queue, "m0", partition="p0")
        await until(lambda: not _runs(int(began[0].read_text())), seconds=60)
        (tmp_path / "go1").touch()
        await until_drained(client, queue)
    assert [(await client.results.get(queue, f"m{n}", partition=f"p{n}")).status for n in range(2)] == [
        "cancelled",
        "completed",
    ]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended before or while its file was read
        return False


async def test_the_other_messages_of_a_batch_are_handled(client: Client, queue: str, running: Running) -> None:
    app, calls, cancelled = App(), [], asyncio.Event()

    @app.batch(queue, size=3)
    async def work(batch: list[int], ctx: Context) -> None:
        calls.append(list(batch))
        await cancelled.wait()
        assert not ctx.cancelled

    for n in range(3):
        await client.push(queue, n, transaction_id=f"m{n}")
    async with running(app, own_loop=False):
        await until(lambda: bool(calls))
        await client.cancel(queue, "m1")
        cancelled.set()
        await until_drained(client, queue)
    statuses = [(await client.results.get(queue, f"m{n}")).status for n in range(3)]
    assert [n for call in calls for n in call if n != 1] == [0, 2]
    assert statuses == ["completed", "cancelled", "completed"]


async def test_a_batch_whose_messages_are_all_cancelled_ends(client: Client, queue: str, running: Running) -> None:
    app, ended = App(), []

    @app.batch(queue, size=2)
    async def work(batch: list[int]) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.extend(batch)

    for n in range(2):
        await client.push(queue, n, transaction_id=f"m{n}")
    async with running(app, own_loop=False) as worker:
        await until(lambda: bool(worker.consumers) and worker.consumers[0].in_hand > 0)
        for n in range(2):
            await client.cancel(queue, f"m{n}")
        await until_drained(client, queue)
        await until(lambda: worker.consumers[0].in_hand == 0)
    assert set(ended) <= {0, 1}


async def test_a_consumer_of_a_client_ends_a_cancelled_handler(client: Client, queue: str) -> None:
    events: list[Any] = []

    async def handle(message: Any) -> None:
        events.append(message.data)
        if message.data == 0:
            await asyncio.sleep(3600)

    for n in range(2):
        await client.push(queue, n, transaction_id=f"m{n}")
    async with client.consumer(queue, handle, batch=2):
        await until(lambda: events == [0])
        await client.cancel(queue, "m0")
        await until(lambda: events == [0, 1])
        await until_drained(client, queue)


async def test_a_job_is_cancelled_in_a_test_of_an_app() -> None:
    app, began = App(), asyncio.Event()

    @app.handler("jobs")
    async def work(n: int) -> None:
        began.set()
        await asyncio.sleep(3600)

    async with AppTest(app) as test:
        await test.push("jobs", 1, transaction_id="m1")
        await test.push("jobs", 2, transaction_id="m2")
        await test.client.cancel("jobs", "m2")
        draining = asyncio.create_task(test.drain("jobs", seconds=60))
        await began.wait()
        await test.client.cancel("jobs", "m1")
        await draining
        assert (await test.client.results.get("jobs", "m1")).status == "cancelled"
        assert await test.dead_letters("jobs") == []
