"""A worker inside another program, beside its broker or far from it, and results by the handle of a push."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

import fairlane
from fairlane import App, Broker, Client, Done, blocking
from fairlane.embedded import local_url
from fairlane.errors import CommandFailed, InvalidRequest, Unavailable
from fairlane.testing import AppTest
from fairlane.worker import Worker
from tests.broker_process import BrokerProcess

SLOW = 60.0


def prices(queue: str) -> App:
    app = App()

    @app.command(queue)
    async def price(items: int) -> dict[str, int]:
        if items < 0:
            raise ValueError("no items")
        return {"total": 42 * items}

    return app


async def test_a_worker_runs_for_as_long_as_a_block(broker: BrokerProcess, client: Client, queue: str) -> None:
    async with Worker(prices(queue), broker.url) as worker:
        pushed = await client.push(queue, 7, partition="customer-7")
        assert await pushed.result(timeout=SLOW) == {"total": 294}
        assert worker.ready
    later = await client.push(queue, 8)
    with pytest.raises(Unavailable, match="is still pending after"):
        await later.result(timeout=0.05)


async def test_a_worker_serves_a_broker_of_the_same_program() -> None:
    async with (
        Broker.open("sqlite:///:memory:") as broker,
        local_url(broker) as url,
        Worker(prices("price"), url),
        Client(url) as client,
    ):
        path = Path(url.removeprefix("unix:"))
        assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
        await broker.push("price", 1, transaction_id="first")
        assert await client.result("price", "first", timeout=SLOW) == {"total": 42}
        assert await (await client.push("price", 2)).result(timeout=SLOW) == {"total": 84}
    assert not os.path.exists(path.parent)  # noqa: ASYNC240


async def test_a_handle_waits_for_scheduled_messages_and_decodes_results(
    broker: BrokerProcess, client: Client, queue: str
) -> None:
    async with Worker(prices(queue), broker.url):
        scheduled = await client.push(queue, 3, delay_ms=200)
        assert scheduled.status == "scheduled"
        assert await scheduled.result(type=dict[str, int], timeout=SLOW) == {"total": 126}
        failed = await client.push(queue, -1, max_attempts=1)
        with pytest.raises(CommandFailed, match="ValueError: no items"):
            await failed.result(timeout=SLOW)
        with pytest.raises(InvalidRequest, match="cannot be decoded"):
            await failed.result(type=complex)
    far = await client.push(queue, 4, delay_ms=3_600_000)
    with pytest.raises(Unavailable, match=r"still waits after 0.05 s"):
        await far.result(timeout=0.05)


async def test_a_blocking_client_gets_results_by_the_handle_too(broker: BrokerProcess, queue: str) -> None:
    def ask() -> object:
        with blocking.Client(broker.url) as client:
            pushed = client.push(queue, 5)
            assert repr(pushed) == f"<push {pushed.transaction_id}: queued>"
            result = pushed.result(timeout=SLOW)
            assert pushed.progress() is None
            return result

    async with Worker(prices(queue), broker.url):
        assert await asyncio.to_thread(ask) == {"total": 210}


async def test_the_outcome_of_a_test_has_the_result() -> None:
    app = App()

    @app.handler("q")
    async def handle(number: int) -> Done:
        return Done(number + 1)

    async with AppTest(app) as test:
        pushed = await test.push("q", 1)
        await test.drain()
        assert await pushed.result() == 2


def test_completion_in_a_shell_shows_the_public_names() -> None:
    assert {"App", "Broker", "Client", "Context", "DeadLetter", "Retry"} <= {*dir(fairlane)}
    assert {*fairlane.__all__} <= {*dir(fairlane)}
