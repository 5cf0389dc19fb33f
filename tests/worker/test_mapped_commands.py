"""Commands that specs map messages to: only the command's name connects a function to a queue."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlane import App, Context
from fairlane.client import Client
from fairlane.commands.handling import ExecutorHandling
from fairlane.errors import CommandFailed
from fairlane.model.names import COMMANDS
from fairlane.spec.compiled_queue import CompiledQueue
from fairlane.telemetry import CommandCounts
from fairlane.testing import AppTest, FrozenClock
from fairlane.worker import Worker
from tests.spec.samples import compiled
from tests.until import until

SHOP = """
app Shop {
  queue Orders {
    delivery { max_attempts: 1 }
    map_to: command Order.Bill { order: id  who: customer.upperAscii() }
  }
  queue Elsewhere { map_to: command Order.Call { order: id } }
  command Order.Call { run: queue Orders }
}
"""


@pytest.fixture(scope="module", autouse=True)
def parser() -> None:
    """Build the parser in advance, because building it would block an event loop."""
    compiled(SHOP)


class Bill(msgspec.Struct):
    order: int
    who: str


def shop(billed: list[Any]) -> App:
    app = App("shop")

    @app.command("Order.Bill")
    async def bill(given: Bill, ctx: Context) -> dict[str, int]:
        billed.append((given.order, given.who, ctx.message.queue))
        return {"billed": given.order}

    @app.command("Order.Call")
    async def call(given: dict[str, Any]) -> None:
        billed.append("the broker's")

    return app


async def applied(client: Client, text: str) -> None:
    await client.specs.apply(msgspec.json.encode(compiled(text).spec), consent=True)


async def test_messages_of_a_mapped_queue_come_to_the_function_as_its_commands(tmp_path: Path) -> None:
    billed: list[Any] = []
    (tmp_path / "shop.fairlane").write_text(SHOP)
    async with AppTest(shop(billed)) as test:
        await test.apply(tmp_path / "shop.fairlane")
        await test.push("Orders", {"id": 1, "customer": "ann"})
        await test.push("Order.Bill", {"order": 2, "who": "by its own name"})
        await test.push("Elsewhere", {"id": 3})
        await test.drain()
        assert sorted(billed) == [(1, "ANN", "Orders"), (2, "by its own name", "Order.Bill")]
        queue = await test.broker._engine.store.queues.get(test.broker.tenant, "Orders")
        assert queue is not None
        group = await test.broker._engine.store.groups.get(queue.id, COMMANDS)
        assert group is not None
        [lane] = await test.broker.groups.lanes("Orders", COMMANDS)
        assert await test.broker._engine.store.groups.result(group.id, lane.partition, 0) == b'{"billed":1}'


async def test_a_message_that_cannot_be_mapped_fails_with_the_expressions_text() -> None:
    billed: list[Any] = []
    async with AppTest(shop(billed)) as test:
        await applied(test.client, SHOP)
        await test.push("Orders", {"id": 1})
        await test.push("Orders", {"id": 2, "customer": "bob"})
        await test.drain()
        assert billed == [(2, "BOB", "Orders")]
        [letter] = await test.dead_letters("Orders")
        assert "who: `customer.upperAscii()`: there is no `customer`" in str(letter.error)


async def test_a_worker_takes_up_what_is_mapped_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.worker.mapped_commands.REFRESH_SECONDS", 0.02)
    billed: list[Any] = []
    async with AppTest(shop(billed)) as test:
        worker = Worker(test.app, test.url, own_loop=False)
        running = asyncio.create_task(worker.run())
        try:
            await until(lambda: worker.ready)
            for text, customer in ((SHOP, "ann"), (SHOP.replace("upperAscii", "lowerAscii"), "BOB")):
                seen = len(billed)
                await applied(test.client, text)
                await asyncio.sleep(0.3 if seen else 0)  # or the old mapping would do
                await test.push("Orders", {"id": 1, "customer": customer})
                await until(lambda: len(billed) > seen)  # noqa: B023
            assert [who for _, who, _ in billed] == ["ANN", "bob"]
            assert sum(consumer.queue == "Orders" for consumer in worker.consumers) == 1
        finally:
            worker.stop()
            await running


async def test_a_worker_goes_on_when_a_queue_is_not_mapped_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.worker.mapped_commands.REFRESH_SECONDS", 0.02)
    billed: list[Any] = []
    async with AppTest(shop(billed)) as test:
        worker = Worker(test.app, test.url, own_loop=False)
        running = asyncio.create_task(worker.run())
        try:
            await applied(test.client, SHOP)
            await test.push("Orders", {"id": 1, "customer": "ann"})
            await until(lambda: len(billed) == 1)
            await applied(
                test.client, SHOP.replace("map_to: command Order.Bill { order: id  who: customer.upperAscii() }", "")
            )
            [consumer] = [consumer for consumer in worker.consumers if consumer.queue == "Orders"]
            await until(lambda: consumer.stopped)
            await test.push("Order.Bill", {"order": 2, "who": "bob"})
            await until(lambda: len(billed) == 2)
            assert await test.broker.groups.all("Orders") == [], "nobody made the group of commands again"
        finally:
            worker.stop()
            await running


class Failing:
    """Runs a command in the broker up to its idempotency key, then fails."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def run(self, command: str, input: bytes, *, idempotency_key: str) -> bytes:
        self.keys.append(idempotency_key)
        raise CommandFailed("not today", retryable=True)


@pytest.mark.parametrize("header", [None, "mine", "with.dots"])
async def test_a_worker_and_the_broker_send_one_idempotency_key(header: str | None) -> None:
    text = SHOP.replace("max_attempts: 1", "max_attempts: 2")
    app = App("shop")
    keys: list[str] = []

    @app.command("Order.Bill")
    async def bill(given: Bill, ctx: Context) -> None:
        keys.append(ctx.idempotency_key)

    clock = FrozenClock()
    async with AppTest(app, clock=clock) as test:
        await applied(test.client, text)
        headers = {"Idempotency-Key": header} if header else None
        await test.push("Orders", {"id": 1, "customer": "ann"}, headers=headers)
        failing = Failing()
        queue = CompiledQueue(compiled(text).spec, "Orders")
        runner = ExecutorHandling(test.broker, queue, failing, CommandCounts()).consumer(test.broker, "Orders")
        runner.start()
        try:
            await until(lambda: bool(failing.keys))
        finally:
            await runner.end(grace_seconds=10)
        clock.advance(60)  # after the backoff
        await test.drain()
    assert keys == failing.keys
    assert header != "mine" or keys == ["mine"]
