"""The test support of `fairlane.testing`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from fairlane import App, Context, Retry
from fairlane.testing import AppTest, FrozenClock


class Order(msgspec.Struct):
    id: int


def shop() -> App:
    app = App("shop")

    @app.handler("orders", group="billing")
    async def bill(order: Order, ctx: Context) -> Retry | None:
        if order.id == 13 and closed:
            return Retry(after=60)
        ctx.push("invoices", {"order": order.id})
        return None

    @app.handler("invoices")
    def send(invoice: dict[str, int], ctx: Context) -> None:
        if invoice["order"] < 0:
            raise ValueError("no such order")

    return app


closed: list[str] = []


async def test_a_queue_is_drained_and_what_was_pushed_can_be_looked_at() -> None:
    async with AppTest(shop()) as test:
        for id in (1, 2, -3):
            await test.push("orders", {"id": id}, partition=str(id))
        await test.drain("orders")
        assert sorted(data["order"] for data in await test.pushed("invoices")) == [-3, 1, 2]
        assert not await test.dead_letters("invoices")
        await test.drain()
        [letter] = await test.dead_letters("invoices")
        assert (letter.data, letter.error) == ({"order": -3}, "ValueError: no such order")
        assert len(await test.pushed("invoices")) == 3


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = FrozenClock(datetime(2027, 1, 1, tzinfo=UTC))
    async with AppTest(shop(), clock=clock) as test:
        closed.append("today")
        await test.push("orders", {"id": 13})
        await test.drain("orders")
        assert await test.pushed("invoices") == []
        closed.clear()
        clock.advance(59)
        await test.drain("orders")
        assert await test.pushed("invoices") == []
        clock.advance(1)
        await test.drain("orders")
        assert await test.pushed("invoices") == [{"order": 13}]
        assert clock.now == datetime(2027, 1, 1, 0, 1, tzinfo=UTC)


async def test_a_handler_schedules_messages() -> None:
    app = App()

    @app.handler("orders")
    async def remind(order: Order, ctx: Context) -> None:
        ctx.push("reminders", order, delay_ms=timedelta(days=3))

    clock = FrozenClock(datetime(2027, 1, 1, tzinfo=UTC))
    async with AppTest(app, clock=clock) as test:
        await test.push("orders", {"id": 1})
        await test.drain("orders")
        assert await test.pushed("reminders") == []
        [reminder] = (await test.client.scheduled.page("reminders")).messages
        assert int(reminder.deliver_at) == datetime(2027, 1, 4, tzinfo=UTC).timestamp() * 1_000_000


async def test_a_queue_that_does_not_get_empty_is_an_error() -> None:
    app = App()

    @app.handler("loop")
    async def handle(number: int, ctx: Context) -> None:
        ctx.push("loop", number + 1)

    async with AppTest(app) as test:
        await test.push("loop", 1)
        with pytest.raises(TimeoutError):
            await test.drain("loop", seconds=0.5)
