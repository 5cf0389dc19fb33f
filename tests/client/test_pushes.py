"""Push: its outcomes, and calls that are refused before they are sent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fairlane import Client, InvalidRequest, PushItem, QueueFull
from fairlane.model.ids import uuid7_ms
from fairlane.model.outcome import PushOutcome
from tests.broker_process import BrokerProcess
from tests.client.rogue import Answer, Rogue


@dataclass
class Point:
    x: float
    y: float | None


async def test_a_pushed_message_is_stored_and_named(client: Client, queue: str) -> None:
    outcome = await client.push(queue, {"total": 42}, partition="customer-7")
    [message] = await client.pop(queue)
    assert outcome.status == "queued"
    assert (message.id, message.transaction_id) == (outcome.message_id, outcome.transaction_id)
    assert (message.queue, message.partition, message.partition_id) == (queue, "customer-7", outcome.partition)
    assert message.data == {"total": 42}


async def test_every_push_carries_a_uuid7_of_its_own(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await client.push(queue, 1)
        await client.push_many([PushItem(queue=queue, payload=b"2"), PushItem(queue=queue, payload=b"3")])
    ids = [item["transactionId"] for seen in rogue.seen for item in seen.items]
    assert len(set(ids)) == 3
    assert None not in map(uuid7_ms, ids)


async def test_a_known_transaction_id_is_a_duplicate_of_the_first(client: Client, queue: str) -> None:
    first = await client.push(queue, 1, transaction_id="order-1")
    second = await client.push(queue, 2, transaction_id="order-1")
    assert (first.status, second.status) == ("queued", "duplicate")
    assert first.message_id == second.message_id


async def test_type_headers_and_trace_travel_with_the_message(client: Client, queue: str) -> None:
    trace = "0198c0de-0000-7000-8000-000000000001"
    await client.push(queue, None, type="order.paid", headers={"tenant": "ü"}, trace_id=trace)
    [message] = await client.pop(queue)
    assert (message.type, message.headers, message.trace_id) == ("order.paid", {"tenant": "ü"}, trace)


@pytest.mark.parametrize("name", [".", "..", "a/b", "50%", "%2F", "a b+c", "é\u0301", "😀", "\"'", "?x=1#y"])
async def test_any_name_works_in_a_path(client: Client, queue: str, name: str) -> None:
    await client.push(queue + name, 1, partition=name)
    [message] = await client.pop(queue + name, partition=name, group=name)
    assert (message.queue, message.partition, message.group) == (queue + name, name, name)
    assert (await client.renew(message)).renewed == 1
    [outcome] = await client.ack(message)
    assert outcome.success
    assert await client.queues.delete(queue + name)


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_queue_of_dots_is_a_queue(client: Client, name: str) -> None:
    await client.push(name, name)
    [message] = await client.pop(name)
    assert message.data == name
    assert await client.queues.delete(name)


async def test_many_are_stored_with_one_outcome_each(client: Client, queue: str) -> None:
    items = [PushItem(queue=queue, payload=b"%d" % n, partition=f"p{n % 2}", transaction_id=f"t{n}") for n in range(4)]
    outcomes = await client.push_many([*items, items[1]])
    assert [outcome.status for outcome in outcomes] == ["queued"] * 4 + ["duplicate"]
    assert outcomes[4].message_id == outcomes[1].message_id


async def test_large_messages_and_large_batches_arrive_whole(client: Client, queue: str) -> None:
    large = "x" * (3 << 20)
    await client.push(queue, large)
    await client.push_many([PushItem(queue=queue, payload=b'"%b"' % (b"y" * 1000))] * 5000)
    batch = await client.pop(queue, type=str, batch=10_000)
    assert [len(message.data) for message in batch] == [3 << 20] + [1000] * 5000


async def test_pushing_nothing_asks_nobody() -> None:
    async with Client("http://127.0.0.1:1", attempts=1) as client:
        assert await client.push_many([]) == []


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"queue": ""}, "queue must not be empty"),
        ({"queue": "q" * 256}, "256 characters"),
        ({"partition": "\0"}, "NUL"),
        ({"partition": "\ud800"}, "surrogate"),
        ({"transaction_id": ""}, "transactionId must not be empty"),
        ({"trace_id": "x"}, "traceId must be a UUID"),
        ({"headers": {"a": 1}}, "header"),
        ({"data": object()}, "cannot be written as JSON"),
        ({"data": "\ud800"}, "cannot be written as JSON"),
        ({"data": _deep(200)}, "nested deeper"),
        ({"data": "x" * (5 << 20)}, "bytes"),
        ({"data": msgspec.Raw(b"x" * (5 << 20))}, "bytes"),
    ],
)
async def test_what_no_broker_would_take_is_refused_before_it_is_sent(
    rogue: Rogue, arguments: dict[str, Any], says: str
) -> None:
    async with Client(rogue.url) as client:
        with pytest.raises(InvalidRequest, match=says):
            await client.push(**({"queue": "q", "data": 1, **arguments}))
    assert not rogue.seen


async def test_a_bad_item_of_many_is_named_by_its_index(client: Client, queue: str) -> None:
    items = [PushItem(queue=queue, payload=b"1"), PushItem(queue=queue, payload=b"{")]
    with pytest.raises(InvalidRequest, match="item 1: payload is not JSON"):
        await client.push_many(items)
    assert not await client.pop(queue)


async def test_a_full_queue_is_raised_with_its_figures_when_waiting_did_not_help(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, max_retry_delay=0.01) as client:
        await client.queues.configure(queue, max_size=1)
        await client.push(queue, 1)
        with pytest.raises(QueueFull) as raised:
            await client.push(queue, 2)
    assert (raised.value.depth, raised.value.capacity) == (1, 1)
    assert len(rogue.requests("/api/v1/push")) == 1 + 3


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("put", [lambda n: n, lambda n: {"a": [1, None, {"b": n}]}, lambda n: Point(1.0, n)])
async def test_a_number_that_json_has_not_is_refused_instead_of_becoming_null(
    client: Client, queue: str, number: float, put: Callable[[float], Any]
) -> None:
    data = put(number)
    await client.push(queue, 1)
    batch = await client.pop(queue)

    async def transact() -> None:
        async with client.transaction() as transaction:
            transaction.push(queue, data)

    for call in (
        lambda: client.push(queue, data),
        lambda: client.buffer().push(queue, data),
        lambda: client.ack(batch, result=data),
        lambda: client.schedules.define("s", queue=queue, every=60, data=data),
        lambda: client.dead_letters.replay(queue, ids=["x"], data=data),
        transact,
    ):
        with pytest.raises(InvalidRequest, match=f"cannot be written as JSON: it has {number}, and JSON has no such"):
            await call()


async def test_nothing_and_raw_json_are_pushed_as_they_are(client: Client, queue: str) -> None:
    for data in (None, {"a": None, "b": 1.5, "c": (None,)}, Point(1.0, None), msgspec.Raw(b'{"a":null}')):
        await client.push(queue, data)
    batch = await client.pop(queue, batch=10)
    assert [m.data for m in batch] == [None, {"a": None, "b": 1.5, "c": [None]}, {"x": 1.0, "y": None}, {"a": None}]


async def test_items_are_made_of_data(client: Client, queue: str) -> None:
    items = [PushItem.of(queue, {"n": n}, partition="p", transaction_id=f"t-{n}") for n in range(2)]
    outcomes = await client.push_many([*items, PushItem.of(queue, None, delay_ms=timedelta(hours=1))])
    assert [outcome.status for outcome in outcomes] == ["queued", "queued", "scheduled"]
    batch = await client.pop(queue, batch=10)
    assert [(m.partition, m.transaction_id, m.data) for m in batch] == [("p", "t-0", {"n": 0}), ("p", "t-1", {"n": 1})]
    with pytest.raises(InvalidRequest, match="cannot be written as JSON"):
        PushItem.of(queue, object())
    with pytest.raises(InvalidRequest, match=r"payload must be JSON as bytes, not dict; PushItem\.of\(queue, data\)"):
        await client.push_many([PushItem(queue=queue, payload={"n": 1})])  # type: ignore[arg-type]


async def test_what_was_stored_stays_told_when_repeating_the_rest_fails(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, max_retry_delay=0.05, attempts=2) as client:
        await client.queues.configure(queue, max_size=1)
        await client.push(queue, 0)
        items = [PushItem(queue=name, payload=b"1") for name in (queue, f"{queue}-free")]
        pushing = asyncio.create_task(client.push_many(items))
        await rogue.until("/api/v1/push", 2)
        rogue.do(*[Answer(500, {"error": "broken", "code": "internal_error"})] * 2)
        outcomes = await pushing
    assert [outcome.status for outcome in outcomes] == ["refused", "queued"]
    assert str(outcomes[0].error) == "broken"


async def test_a_full_queue_is_waited_for(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, max_retry_delay=0.05, attempts=100) as client:
        await client.queues.configure(queue, max_size=1)
        await client.push(queue, 1)
        second = asyncio.create_task(client.push(queue, 2))
        await rogue.until("/api/v1/push", 3)
        await client.ack(await client.pop(queue))
        assert (await second).status == "queued"
    assert len({seen.items[0]["transactionId"] for seen in rogue.requests("/api/v1/push")[1:]}) == 1


async def test_of_many_items_those_that_met_a_full_queue_are_outcomes(broker: BrokerProcess, queue: str) -> None:
    async with Client(broker.url, retry_on_429=False) as impatient:
        await impatient.queues.configure(queue, max_size=1)
        items = [PushItem(queue=name, payload=b"1") for name in (queue, f"{queue}-free")]
        await impatient.push_many(items)
        outcomes = await impatient.push_many(items)
    assert [outcome.status for outcome in outcomes] == ["refused", "queued"]
    full = outcomes[0].error
    assert isinstance(full, QueueFull)
    assert (full.depth, full.capacity) == (1, 1)


async def test_the_outcome_of_a_unique_push_leads_to_the_message_that_excludes_it(client: Client, queue: str) -> None:
    first = await client.push(queue, 1, unique="while_running", unique_key="shop", partition="a")
    again = await client.push(queue, 2, unique="while_running", unique_key="shop", partition="b")
    assert (first.status, again.status) == ("queued", "duplicate")
    assert (again.transaction_id, again.partition) == (first.transaction_id, first.partition)
    items = [PushItem.of(queue, 3, unique="while_waiting", unique_key="shop"), PushItem.of(queue, 4)]
    outcomes = await client.push_many(items)
    assert [outcome.status for outcome in outcomes] == ["duplicate", "queued"]
    [message] = await client.pop(queue, partition="a")
    await client.ack(message, result="done")
    assert await again.result(timeout=30) == "done"


async def test_a_transaction_tells_which_message_excludes_a_unique_push(client: Client, queue: str) -> None:
    first = await client.push(queue, 1, unique="while_waiting", delay_ms=60_000)
    async with client.transaction() as transaction:
        transaction.push(queue, 1, unique="while_waiting")
        transaction.push(queue, 2)
    again, other = transaction.outcomes
    assert isinstance(again, PushOutcome)
    assert (again.status, again.transaction_id, again.deliver_at) == (
        "duplicate",
        first.transaction_id,
        first.deliver_at,
    )
    assert other.transaction_id != first.transaction_id
