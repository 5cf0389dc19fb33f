"""Arguments of handlers, and the effect of their return values."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from fairlane import AckItem, App, Client, Context, Dead, Done, InvalidRequest, PushItem, Retry
from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.worker import Worker
from tests.broker_process import BrokerProcess
from tests.client.rogue import Answer, Rogue
from tests.until import until
from tests.worker.conftest import Running, until_drained


class Order(msgspec.Struct):
    id: int
    total: float = 0.0


class Clock:
    """An object that a provider creates."""


def in_a_process(number: int) -> None:
    if os.getpid() == number:
        raise AssertionError("a heavy handler runs in a process of its own")


async def test_a_handler_gets_its_payload_as_its_annotation_says(client: Client, queue: str, running: Running) -> None:
    app = App()
    seen: list[Order] = []

    @app.handler(queue, group="billing")
    async def bill(order: Order, ctx: Context) -> None:
        assert (ctx.attempt, ctx.message.group) == (1, "billing")
        assert ctx.lease
        seen.append(order)

    await client.push(queue, {"id": 7, "total": 4.5})
    async with running(app):
        await until_drained(client, queue, group="billing")
    assert seen == [Order(7, 4.5)]


async def test_a_payload_that_does_not_fit_is_a_dead_letter_that_says_where(
    client: Client, queue: str, running: Running
) -> None:
    app = App()
    seen: list[int] = []

    @app.handler(queue)
    async def handle(order: Order) -> None:
        seen.append(order.id)

    await client.push_many([PushItem(queue=queue, payload=text) for text in (b'{"id":1}', b'{"id":"x"}', b'{"id":3}')])
    async with running(app):
        await until_drained(client, queue)
    assert seen == [1, 3]
    [letter] = await client.dead_letters.page(queue)
    assert "Expected `int`, got `str` - at `$.id`" in (letter.error or "")
    assert letter.attempts <= 1


async def test_a_worker_whose_places_are_taken_waits_for_one_and_stops_at_once(
    client: Client, queue: str, running: Running
) -> None:
    app = App()

    @app.handler(queue, concurrency=4)
    async def handle(_: int) -> None:
        await asyncio.sleep(0.001)

    items = [PushItem(queue=queue, payload=b"1", partition=f"p{number % 40}") for number in range(300)]
    await client.push_many(items)
    async with running(app) as worker:
        await until_drained(client, queue)
        assert sum(one.handled for one in worker.consumers) == 300
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 5, "nor does it begin to wait for messages after it was told to stop"


async def test_a_worker_outlives_a_broker_that_fails(
    broker: BrokerProcess, client: Client, queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    seen: list[int] = []

    @app.handler(queue)
    async def handle(number: int) -> None:
        seen.append(number)

    async with Rogue(broker.url) as rogue, running(app, server=rogue.url):
        await client.push(queue, 1)
        await until_drained(client, queue)
        rogue.do(*[Answer(500, {"error": "it fell", "code": "internal_error"})] * 4)
        for number in (2, 3, 4):
            await client.push(queue, number)
        await until_drained(client, queue)
    assert seen == [1, 2, 3, 4]
    assert "it fell" in caplog.text, "and says so"


async def test_lanes_are_handled_in_order_each_and_beside_each_other(
    client: Client, queue: str, running: Running
) -> None:
    app = App()
    seen: dict[str, list[int]] = {}
    now, most = 0, 0

    @app.handler(queue, concurrency=20)
    async def handle(number: int, ctx: Context) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        seen.setdefault(ctx.message.partition, []).append(number)

    await client.push_many([PushItem(queue=queue, payload=b"%d" % n, partition=f"p{n % 7}") for n in range(300)])
    async with running(app):
        await until_drained(client, queue)
    assert {name: sorted(numbers) == numbers for name, numbers in seen.items()} == {f"p{n}": True for n in range(7)}
    assert sum(map(len, seen.values())) == 300
    assert 1 < most <= 7


async def test_messages_of_an_unordered_queue_are_handled_beside_each_other_and_fail_alone(
    client: Client, queue: str, running: Running
) -> None:
    await client.queues.configure(queue, ordering="unordered", retry_limit=0)
    app = App()
    seen: list[int] = []
    now, most = 0, 0

    @app.handler(queue, concurrency=16)
    async def handle(number: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        if number == 5:
            raise ValueError("five")
        seen.append(number)

    await client.push_many([PushItem(queue=queue, payload=b"%d" % n) for n in range(40)])
    async with running(app):
        await until(lambda: len(seen) == 39)
        await until_drained(client, queue)
    assert sorted(seen) == [n for n in range(40) if n != 5]
    assert most > 1
    assert [letter.data for letter in await client.dead_letters.page(queue)] == [5]


async def test_what_a_handler_returns_decides(client: Client, queue: str, running: Running) -> None:
    await client.queues.configure(queue, retry_limit=1)
    app = App()
    seen: list[tuple[str, int]] = []

    @app.handler(queue)
    async def handle(what: str, ctx: Context) -> Done | Retry | Dead | None:
        seen.append((what, ctx.attempt))
        if what == "retry" and seen.count((what, 1)) < 3:
            return Retry(after=0)
        if what == "dead":
            return Dead("never")
        if what == "raise":
            raise ValueError("broken")
        return Done() if what == "done" else None

    for what in ("retry", "dead", "raise", "done", "none"):
        await client.push(queue, what)
    async with running(app):
        await until_drained(client, queue)
    assert seen == [
        *[("retry", 1)] * 3, ("dead", 1), ("raise", 1), ("raise", 2), ("done", 1), ("none", 1),
    ]  # fmt: skip
    letters = {letter.data: letter.error for letter in await client.dead_letters.page(queue)}
    assert letters == {"dead": "never", "raise": "ValueError: broken"}


async def test_messages_go_to_the_handler_of_their_type(client: Client, queue: str, running: Running) -> None:
    app = App()
    seen: list[tuple[str, int]] = []

    @app.handler(queue, type="made")
    async def made(number: int) -> None:
        seen.append(("made", number))

    @app.handler(queue, type="sold")
    def sold(number: int) -> None:
        seen.append(("sold", number))

    await client.push(queue, 1, type="made")
    await client.push(queue, 2, type="sold")
    await client.push(queue, 3, type="lost")
    async with running(app):
        await until_drained(client, queue)
    assert seen == [("made", 1), ("sold", 2)]
    [letter] = await client.dead_letters.page(queue)
    assert "no handler of this queue takes messages of type 'lost'" in (letter.error or "")


async def test_a_command_is_a_message_in_the_queue_of_its_name_and_its_result_is_kept(
    client: Client, queue: str, running: Running
) -> None:
    app = App()

    @app.command(queue)
    def create(order: Order, ctx: Context) -> dict[str, int]:
        ctx.push(f"{queue}.made", order.id)
        return {"incident": order.id + 1}

    pushed = await client.push(queue, {"id": 41}, transaction_id="command-1")
    assert pushed.partition is not None
    async with running(app):
        await until_drained(client, queue)
    [made] = await client.pop(f"{queue}.made", auto_ack=True)
    assert made.data == 41
    [outcome] = await client.ack_many([AckItem(transaction_id="command-1", partition=pushed.partition)])
    assert msgspec.json.decode(outcome.result or b"null") == {"incident": 42}


async def test_a_command_whose_result_is_too_large_to_keep_is_done_all_the_same(
    client: Client, queue: str, running: Running
) -> None:
    app = App()
    runs: list[int] = []

    @app.command(queue)
    def report(order: Order) -> str:
        runs.append(order.id)
        return "x" * RESULT_BYTES_MAX

    await client.push(queue, {"id": 1}, transaction_id="report-1")
    async with running(app):
        await until_drained(client, queue)
    assert runs == [1]
    assert await client.dead_letters.page(queue) == []
    result = await client.result(queue, "report-1", timeout=10)
    assert result == {"omitted": f"the result has {RESULT_BYTES_MAX + 2} bytes; at most {RESULT_BYTES_MAX} are kept"}


async def test_a_batch_handler_gets_many_and_answers_for_each(client: Client, queue: str, running: Running) -> None:
    await client.queues.configure(queue, retry_limit=0)
    app = App()
    sizes: list[int] = []

    @app.batch(queue, size=50)
    async def handle(orders: list[Order]) -> list[Done | Retry | Dead]:
        sizes.append(len(orders))
        return [Dead("odd") if order.id % 2 else Done() for order in orders]

    items = [PushItem(queue=queue, payload=b'{"id":%d}' % n) for n in range(20)]
    items.insert(3, PushItem(queue=queue, payload=b'{"id":null}'))
    await client.push_many(items)
    async with running(app):
        await until_drained(client, queue)
    assert sum(sizes) == 20
    assert max(sizes) > 1
    letters = await client.dead_letters.page(queue)
    assert sorted((letter.data["id"] or -1) for letter in letters) == [-1, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19]


async def test_a_batch_handler_that_raises_charges_the_first_of_each_lane(
    client: Client, queue: str, running: Running
) -> None:
    await client.queues.configure(queue, retry_limit=0)
    app = App()
    seen: list[list[int]] = []

    @app.batch(queue, size=10)
    def handle(numbers: list[int]) -> None:
        seen.append(numbers)
        if 0 in numbers:
            raise ValueError("zero")

    await client.push_many([PushItem(queue=queue, payload=b"%d" % n) for n in range(5)])
    async with running(app):
        await until_drained(client, queue)
    assert [letter.data for letter in await client.dead_letters.page(queue)] == [0]
    assert sorted({number for numbers in seen[1:] for number in numbers}) == [1, 2, 3, 4]


async def test_what_a_handler_pushes_is_stored_with_its_ack_or_not_at_all(
    client: Client, queue: str, running: Running
) -> None:
    await client.queues.configure(queue, retry_limit=2)
    app = App()

    @app.handler(queue)
    async def handle(number: int, ctx: Context) -> None:
        ctx.push(f"{queue}.next", {"number": number, "attempt": ctx.attempt}, partition="p")
        if number == 1 and ctx.attempt < 3:
            raise ValueError("not yet")

    await client.push_many([PushItem(queue=queue, payload=b"%d" % n) for n in range(3)])
    async with running(app):
        await until_drained(client, queue)
    found = [message.data for message in await client.pop(f"{queue}.next", batch=100, auto_ack=True)]
    assert found == [{"number": 0, "attempt": 1}, {"number": 1, "attempt": 3}, {"number": 2, "attempt": 1}]


async def test_a_push_that_finds_its_queue_full_lets_the_message_come_again(
    client: Client, queue: str, running: Running
) -> None:
    await client.queues.configure(f"{queue}.next", max_size=1)
    await client.push(f"{queue}.next", "first")
    app = App()
    seen: list[int] = []

    @app.handler(queue)
    async def handle(number: int, ctx: Context) -> None:
        seen.append(number)
        ctx.push(f"{queue}.next", number)

    await client.push(queue, 1)
    async with running(app):
        await until(lambda: len(seen) == 1)
        [first] = await client.pop(f"{queue}.next", auto_ack=True, wait=1)
        await until_drained(client, queue)
    assert [first.data, *[m.data for m in await client.pop(f"{queue}.next", auto_ack=True)]] == ["first", 1]
    assert not await client.dead_letters.page(queue)


async def test_plain_functions_run_in_threads_and_heavy_ones_in_processes(
    client: Client, queue: str, running: Running
) -> None:
    app = App()
    threads: set[int] = set()

    @app.handler(queue, concurrency=2)
    def plain(number: int) -> None:
        threads.add(threading.get_ident())

    app.handler(f"{queue}.heavy", processes=True)(in_a_process)
    await client.push(queue, 1)
    await client.push(f"{queue}.heavy", os.getpid())
    async with running(app):
        await until_drained(client, queue)
        await until_drained(client, f"{queue}.heavy")
    assert threads
    assert threading.get_ident() not in threads
    assert not await client.dead_letters.page(f"{queue}.heavy")


async def test_middlewares_wrap_handlers_and_providers_live_as_long_as_the_worker(
    client: Client, queue: str, running: Running
) -> None:
    app = App()
    events: list[str] = []

    @app.provide
    async def clock() -> AsyncIterator[Clock]:
        events.append("open")
        yield Clock()
        events.append("closed")

    @app.middleware
    async def outer(ctx: Context, call: object) -> object:
        events.append(f"before {ctx.message.data}")
        answer = await call()  # type: ignore[operator]
        events.append("after")
        return answer

    @app.middleware
    async def inner(ctx: Context, call: object) -> object:
        events.append("inner")
        return await call()  # type: ignore[operator]

    @app.handler(queue)
    async def handle(number: int, found: Clock) -> None:
        assert isinstance(found, Clock)
        events.append("handled")

    await client.push(queue, 1)
    async with running(app):
        await until_drained(client, queue)
    assert events == ["open", "before 1", "inner", "handled", "after", "closed"]


async def test_the_logger_says_the_correlation_id_and_the_key_is_the_same_at_every_attempt(
    client: Client, queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App()
    keys: list[str] = []

    @app.handler(queue)
    async def handle(data: object, ctx: Context) -> None:
        ctx.log.info("working")
        keys.append(ctx.idempotency_key)
        if ctx.attempt < 2:
            raise ValueError("again")

    await client.push(queue, {"a": 1, "b": 2}, transaction_id="t-1", partition="p1")
    await client.push(queue, {"b": 2, "a": 1}, partition="p2")
    await client.push(queue, {"b": 2}, partition="p3", headers={"Idempotency-Key": "mine"})
    with caplog.at_level(logging.INFO, "fairlane.app"):
        async with running(app):
            await until_drained(client, queue)
    assert len(keys) == 6
    assert len(set(keys)) == 3
    assert keys.count("mine") == 2
    assert "working [t-1]" in caplog.text


@pytest.mark.parametrize("wrong", ["twice", "unprovided", "async process", "batch of one"])
async def test_an_app_that_cannot_work_is_refused_before_anything_is_taken(
    broker: BrokerProcess, queue: str, wrong: str
) -> None:
    app = App()

    async def handle(number: int, clock: Clock) -> None: ...
    async def one(number: int) -> None: ...

    async def begin() -> None:
        if wrong == "twice":
            app.handler(queue)(one)
            app.handler(queue)(one)
        elif wrong == "unprovided":
            app.handler(queue)(handle)
        elif wrong == "async process":
            app.handler(queue, processes=True)(one)
        else:
            app.batch(queue)(one)
        await Worker(app, broker.url).run()

    with pytest.raises(InvalidRequest):
        await begin()


async def test_a_job_is_picked_up_at_once_on_an_idle_system(client: Client, queue: str, running: Running) -> None:
    app = App()
    picked = asyncio.Queue[float]()
    loop = asyncio.get_running_loop()

    @app.handler(queue)
    async def handle(number: int) -> None:
        loop.call_soon_threadsafe(picked.put_nowait, time.perf_counter())

    took = []
    async with running(app), asyncio.timeout(20):
        for number in range(20):
            began = time.perf_counter()
            await client.push(queue, number, partition=f"p{number}")
            took.append(await picked.get() - began)
    # What else the machine does makes some of them late; a poll that nobody wakes would make all of them.
    assert sorted(took)[len(took) // 4] < 0.1


async def test_a_function_is_called_at_every_tick_once_for_all_workers(
    client: Client, queue: str, running: Running
) -> None:
    app = App()
    calls: list[str] = []

    @app.every("1s", name=queue)
    async def tick(ctx: Context) -> None:
        assert ctx.message.headers is not None
        calls.append(ctx.message.headers["tick"])

    async with running(app), running(app):
        await until(lambda: len(calls) >= 2)
    schedule = await client.schedules.get(queue)
    assert (schedule.every_seconds, schedule.queue) == (1, queue)
    assert await client.schedules.delete(queue)
    assert len(set(calls)) == len(calls)
