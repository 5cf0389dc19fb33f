"""Fan-ins that handlers create, and their callbacks while workers and brokers die."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from fairlane import App, Client, Context, Dead, Done, FanInEnd
from fairlane.blocking import Client as BlockingClient
from fairlane.testing import AppTest
from tests.broker_process import BrokerProcess
from tests.until import until
from tests.worker.conftest import until_drained
from tests.worker.processes import Workshop, workshop

app = App()
attempts: list[int] = []


@app.handler("orders", max_attempts=3, backoff=0)
async def split(order: int, ctx: Context) -> None:
    attempts.append(ctx.attempt)
    pages = [("pages", page, {"partition": f"{order}"}) for page in range(3)]
    ctx.fan_in(pages, ("reports", {"order": order}), id=f"order {order}")
    if ctx.attempt == 1:
        raise ValueError("the first attempt pushes nothing")


@app.handler("pages")
async def page(number: int) -> Done | Dead:
    return Dead("torn") if number == 1 else Done({"page": number})


reports: list[FanInEnd] = []


@app.handler("reports")
async def report(end: FanInEnd) -> None:
    reports.append(end)


async def test_a_handler_fans_out_and_in(tmp_path: Path) -> None:
    attempts.clear()
    reports.clear()
    async with AppTest(app) as test:
        await test.push("orders", 7)
        await test.drain("orders")
        assert attempts == [1, 2]
        assert await test.pushed("pages") == [0, 1, 2]
        await test.drain("pages")
        [_] = await until(lambda: test.pushed("reports"))
        await test.drain("reports")
        [end] = reports
        assert (end.fan_in, end.data, end.results) == ("order 7", {"order": 7}, [{"page": 0}, None, {"page": 2}])
        assert [(one.part, one.status, one.error) for one in end.failures] == [(1, "dead_letter", "torn")]
        shown = await test.client.fan_ins.get("order 7")
        assert (shown.status, shown.completed, shown.failed) == ("ended", 2, 1)
        assert [one.id for one in await test.client.fan_ins.all()] == ["order 7"]


async def test_the_client_makes_and_deletes_fan_ins(client: Client, queue: str) -> None:
    id = await client.fan_in([(queue, n) for n in range(2)], (f"{queue}.then", None))
    assert (await client.fan_ins.get(id)).total == 2
    assert await client.fan_ins.delete(id)
    async with client.transaction() as transaction:
        transaction.ack(await client.pop(queue, batch=2))
        again = transaction.fan_in([], (f"{queue}.then", "at once"))
    [callback] = await client.pop(f"{queue}.then", wait=30)
    assert (callback.transaction_id, callback.data["data"]) == (again, "at once")


def test_the_blocking_client_makes_fan_ins(broker: BrokerProcess, queue: str) -> None:
    with BlockingClient(broker.url) as client:
        id = client.fan_in([(queue, 1)], (f"{queue}.then", None))
        client.ack(client.pop(queue), result="done")
        [callback] = client.pop(f"{queue}.then", wait=30)
        assert callback.data["results"] == ["done"]
        assert client.fan_ins.get(id).status == "ended"


@pytest.mark.may_block_loop
async def test_a_callback_is_pushed_once_though_workers_and_the_broker_are_killed(
    tmp_path: Path, queue: str, own_broker: BrokerProcess
) -> None:
    count, then = 20, f"{queue}.then"
    async with Client(own_broker.url) as client:
        with workshop(tmp_path, queue, own_broker.url) as shop:
            for fan_in in range(count):
                ids = range(10 * fan_in, 10 * fan_in + 10)
                parts = [(queue, {"id": id, "seconds": 0.01}, {"partition": f"p{id % 7}"}) for id in ids]
                await client.fan_in(parts, (then, fan_in, {"partition": f"p{fan_in}"}))
            first = shop.start(lease_seconds=2)
            await until(lambda: len(shop.done()) > 20)
            first.kill()
            shop.start(lease_seconds=2)
            for mark in (50, 90, 130):
                await until(partial(is_past, shop, mark))
                own_broker.kill()
                own_broker.start()
            await until(lambda: len(shop.done()) == 10 * count)
            await until_drained(client, queue)
            await until(lambda: ended(client, count))
        found = [message.data for message in await client.pop(then, batch=100, partitions=100, auto_ack=True)]
    assert sorted(one["data"] for one in found) == list(range(count))
    assert {(one["total"], one["failed"]) for one in found} == {(10, 0)}


def is_past(shop: Workshop, mark: int) -> bool:
    return len(shop.done()) > mark


async def ended(client: Client, count: int) -> bool:
    return [one.status for one in await client.fan_ins.all()] == ["ended"] * count
