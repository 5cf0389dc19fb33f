"""Leases of handlers: renewed while they run, even if they block; a lost lease ends its handler."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from fairlane import App, Client, Context
from tests.until import until
from tests.worker.conftest import Running, until_drained


@pytest.mark.may_block_loop
async def test_a_handler_that_blocks_its_loop_keeps_its_lease(client: Client, queue: str, running: Running) -> None:
    """The handler blocks for more than twice the length of the lease."""
    app = App()
    attempts: list[int] = []

    @app.handler(queue, lease_seconds=1)
    async def handle(number: int, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        time.sleep(2.3)  # noqa: ASYNC251

    await client.push(queue, 1)
    async with running(app):
        await until(lambda: bool(attempts))
        assert not await client.pop(queue, wait=2)
        await until_drained(client, queue)
    assert attempts == [1]


async def test_a_queues_lease_time_rules_unless_a_handler_names_one(
    client: Client, queue: str, running: Running
) -> None:
    """The lanes of a killed worker are then free when the queue says so. Renewals have the same length."""
    app = App()
    go_on = threading.Event()

    @app.handler(queue)
    def handle(number: int) -> None:
        go_on.wait(30)

    @app.handler(f"{queue}.named", lease_seconds=500)
    def handle_long(number: int) -> None:
        go_on.wait(30)

    for name in (queue, f"{queue}.named"):
        await client.queues.configure(name, lease_seconds=3)
        await client.push(name, 1)
    async with running(app) as worker:
        await until(lambda: bool(worker.consumers) and all(consumer.in_hand for consumer in worker.consumers))
        [lease] = await client.queues.leases(queue)
        assert lease.seconds_remaining <= 3
        async with asyncio.timeout(30):
            while (renewed := await client.queues.leases(queue))[0].expires_at == lease.expires_at:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert 0 < renewed[0].seconds_remaining <= 3
        assert (await client.queues.leases(f"{queue}.named"))[0].seconds_remaining > 300
        go_on.set()
        await until_drained(client, queue)
        await until_drained(client, f"{queue}.named")


async def test_a_lost_lease_cancels_the_handler_and_says_so(
    client: Client, queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    begun = threading.Event()
    cancelled = threading.Event()
    plain_told = threading.Event()

    @app.handler(queue, lease_seconds=1)
    async def handle(number: int, ctx: Context) -> None:
        if ctx.attempt > 1 or begun.is_set():
            return
        begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            assert ctx.cancelled
            cancelled.set()
            raise

    @app.handler(f"{queue}.plain", lease_seconds=1)
    def plain(number: int, ctx: Context) -> None:
        ends_at = time.monotonic() + 20
        while not (ctx.cancelled or plain_told.is_set()) and time.monotonic() < ends_at:
            time.sleep(0.01)
        if ctx.cancelled:
            plain_told.set()

    await client.push(queue, 1)
    await client.push(f"{queue}.plain", 1)
    async with running(app) as worker:
        await until(begun.is_set)
        await until(lambda: all(consumer.in_hand for consumer in worker.consumers))
        for consumer in worker.consumers:
            for claim in consumer.claims:
                await client.release(claim.lease)
        await until(cancelled.is_set)
        await until(plain_told.is_set)
        await until_drained(client, queue)
        worker.stop()
    assert "lost lease" in caplog.text


async def test_no_more_is_in_hand_than_the_concurrency(client: Client, queue: str, running: Running) -> None:
    app = App()
    go_on = threading.Event()

    @app.handler(queue, concurrency=3)
    def handle(number: int) -> None:
        go_on.wait(20)

    for number in range(12):
        await client.push(queue, number, partition=f"p{number}")
    async with running(app) as worker:
        await until(lambda: bool(worker.consumers) and worker.consumers[0].in_hand == 3)
        await asyncio.sleep(0.1)
        assert worker.consumers[0].in_hand == 3
        assert len(await client.queues.leases(queue)) == 3
        go_on.set()
        await until_drained(client, queue)
        assert worker.consumers[0].in_hand == 0


async def test_a_broker_that_cannot_be_reached_is_waited_for(
    queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()

    @app.handler(queue)
    async def handle(number: int) -> None: ...

    with caplog.at_level(logging.WARNING):
        async with running(app, server="http://127.0.0.1:9"):
            await until(lambda: "retrying in" in caplog.text)


async def test_a_worker_is_listed_with_its_queues_while_it_lives(client: Client, queue: str, running: Running) -> None:
    app = App("listed")

    @app.handler(queue, concurrency=3)
    async def handle(number: int) -> None: ...

    async with running(app):
        async with asyncio.timeout(20):
            while not (found := [one for one in await client.workers.all() if one.app == "listed"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        [worker] = found
        assert [(part.queue, part.concurrency) for part in worker.queues] == [(queue, 3)]
    assert not [one for one in await client.workers.all() if one.app == "listed"]
