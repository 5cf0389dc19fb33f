"""Handlers that raise a BaseException such as SystemExit: each is a failed attempt, and none blocks its worker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlane import App, Client, Context
from fairlane.worker import Worker
from tests.broker_process import BrokerProcess
from tests.worker.conftest import Running, until_drained

Declare = Callable[[App, str, BaseException], None]


def plain(app: App, queue: str, error: BaseException) -> None:
    @app.handler(queue, max_attempts=2, backoff=0.0)
    def work(data: Any) -> None:
        raise error


def coroutine(app: App, queue: str, error: BaseException) -> None:
    @app.handler(queue, max_attempts=2, backoff=0.0)
    async def work(data: Any) -> None:
        raise error


def limited(app: App, queue: str, error: BaseException) -> None:
    @app.handler(queue, max_attempts=2, backoff=0.0, timeout=60.0)
    async def work(data: Any) -> None:
        raise error


def batch(app: App, queue: str, error: BaseException) -> None:
    @app.batch(queue, max_attempts=2, backoff=0.0)
    def work(data: list[Any]) -> None:
        raise error


def command(app: App, queue: str, error: BaseException) -> None:
    @app.command(queue, max_attempts=2, backoff=0.0)
    def work(data: Any) -> None:
        raise error


def middleware(app: App, queue: str, error: BaseException) -> None:
    @app.handler(queue, max_attempts=2, backoff=0.0)
    async def work(data: Any) -> None: ...

    @app.middleware
    async def around(ctx: Context, call: Any) -> None:
        raise error


def failing(data: Any) -> None:
    raise StopIteration


def once(app: App, queue: str, error: BaseException) -> None:
    @app.handler(queue, max_attempts=2, backoff=0.0)
    def work(data: Any, ctx: Context) -> None:
        def effect() -> None:
            raise error

        ctx.once_blocking("effect", effect)


KINDS = [plain, coroutine, limited, batch, command, middleware, once]


@pytest.mark.parametrize("declare", KINDS)
@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), GeneratorExit()], ids=repr)
async def test_whatever_leaves_a_handler_is_a_failed_attempt(
    client: Client,
    queue: str,
    running: Running,
    caplog: pytest.LogCaptureFixture,
    declare: Declare,
    error: BaseException,
) -> None:
    app = App()
    declare(app, queue, error)
    await client.push(queue, 1)
    async with running(app):
        await until_drained(client, queue)
    [letter] = await client.dead_letters.page(queue)
    assert letter.attempts == 2
    assert type(error).__name__ in letter.error
    assert [one.exc_info is not None for one in caplog.records if "handler failed" in one.getMessage()] == [True, True]


@pytest.mark.parametrize("declare", KINDS)
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_a_handler_that_exits_is_charged_and_stops_its_worker(
    client: Client, queue: str, broker: BrokerProcess, declare: Declare, error: BaseException
) -> None:
    app = App()
    declare(app, queue, error)
    await client.queues.configure(queue, lease_seconds=3600)
    await client.push(queue, 1)
    for _ in range(2):
        async with asyncio.timeout(60):
            await Worker(app, broker.url).run()
    [letter] = await client.dead_letters.page(queue)
    assert letter.attempts == 2
    assert type(error).__name__ in letter.error


async def test_a_worker_that_a_handler_stops_finishes_what_runs_and_releases_the_rest(
    client: Client, queue: str, broker: BrokerProcess
) -> None:
    app, begun, exited, done = App(), asyncio.Event(), asyncio.Event(), []

    @app.handler(queue, lease_seconds=3600, concurrency=2)
    async def work(name: str) -> None:
        if name == "exits":
            await begun.wait()
            exited.set()
            sys.exit(3)
        begun.set()
        await exited.wait()
        await asyncio.sleep(0.2)
        done.append(name)

    for name in ("exits", "runs"):
        await client.push(queue, name, partition=name)
        await client.push(queue, "waits", partition=name)
    async with asyncio.timeout(60):
        await Worker(app, broker.url, own_loop=False).run()
    assert done == ["runs"]
    async with asyncio.timeout(30):
        batch = await client.pop(queue, partition="runs", wait=30)
    assert [message.data for message in batch] == ["waits"], "its lease was released"


async def test_a_process_that_exits_is_a_failed_attempt(client: Client, queue: str, running: Running) -> None:
    app = App()
    app.handler(queue, processes=True, max_attempts=2, backoff=0.0)(failing)
    await client.push(queue, 1)
    async with running(app):
        await until_drained(client, queue)
    [letter] = await client.dead_letters.page(queue)
    assert letter.attempts == 2
    assert "StopIteration" in letter.error


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), SystemExit(3)], ids=repr)
async def test_a_provider_that_ends_by_any_exception_ends_the_worker(
    queue: str, broker: BrokerProcess, error: BaseException
) -> None:
    app = App()
    plain(app, queue, error)

    @app.provide
    async def resource() -> AsyncIterator[int]:
        raise error
        yield 1

    async with asyncio.timeout(30):
        with pytest.raises((RuntimeError, SystemExit), match=type(error).__name__ if error.args == () else "3"):
            await Worker(app, broker.url).run()


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("threaded", [True, False])
async def test_a_handler_of_a_client_that_ends_by_any_exception_is_a_failed_attempt(
    client: Client, queue: str, error: BaseException, *, threaded: bool
) -> None:
    def work(message: Any) -> None:
        raise error

    async def work_async(message: Any) -> None:
        raise error

    await client.queues.configure(queue, retry_limit=0, lease_seconds=3600)
    await client.push(queue, 1)
    async with asyncio.timeout(30):
        await client.consume(queue, work if threaded else work_async, limit=1)
    [letter] = await client.dead_letters.page(queue)
    assert letter.attempts == 1
    assert type(error).__name__ in letter.error
