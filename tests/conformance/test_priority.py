"""Priority: higher ones first, longest-waiting first among equals, and no starvation."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from fairlane.errors import InvalidRequest
from fairlane.model.ids import Uuid7
from fairlane.model.lease import PopRequest
from fairlane.model.message import PushItem, PushOptions
from fairlane.model.names import QUEUE_MODE
from fairlane.model.queue import PRIORITY_SECONDS, Queue
from fairlane.store.contract.values import Duplicates
from tests.conformance.harness import Harness
from tests.conformance.operation_driver import apply, enqueue, no_operations


async def served(harness: Harness, queue: Queue, count: int) -> list[Any]:
    """Pop messages one by one. Returns their payloads in order."""
    seen: list[Any] = []
    for _ in range(count):
        taken = await harness.pop(queue, batch=1)
        seen += taken.data
        harness.clock.advance(0.001)
        if taken:
            await harness.ack(taken)
    return seen


async def test_lanes_of_higher_priority_come_first_and_equals_by_their_age(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.group(queue)
    partitions = await harness.neighbours(queue, 4)
    for partition, priority in zip(partitions, (0, 5, 9, 5), strict=True):
        assert await harness.store.queues.set_priority(partition.id, priority)
        harness.clock.advance(0.1)
        await harness.store.messages.push(
            [harness.slice(queue, partition, [f"{priority} of {partition.name}", "more"])]
        )
    names = [partition.name for partition in partitions]
    assert await served(harness, queue, 4) == [f"9 of {names[2]}", "more", f"5 of {names[1]}", f"5 of {names[3]}"]
    assert await served(harness, queue, 4) == ["more", "more", f"0 of {names[0]}", "more"]


async def test_a_lane_that_waits_already_gets_its_priority_at_once_and_gives_it_back(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.group(queue)
    partitions = await harness.neighbours(queue, 3)
    for partition in partitions:
        harness.clock.advance(0.1)
        await harness.store.messages.push([harness.slice(queue, partition, [partition.name, partition.name])])
    harness.clock.advance(0.1)
    await harness.store.queues.set_priority(partitions[2].id, 3)
    assert await served(harness, queue, 1) == [partitions[2].name]
    await harness.store.queues.set_priority(partitions[2].id, 0)
    assert await served(harness, queue, 5) == [partitions[at].name for at in (0, 1, 2, 0, 1)]


async def test_nobody_is_starved_by_higher_priority(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.group(queue)
    low, high = await harness.neighbours(queue, 2)
    await harness.store.queues.set_priority(high.id, 9)
    await harness.store.messages.push([harness.slice(queue, low, ["low"])])
    await harness.store.messages.push([harness.slice(queue, high, ["high"] * 40)])
    waited = 0
    while await served(harness, queue, 1) == ["high"]:
        harness.clock.advance(20)
        waited += 20
    assert 9 * PRIORITY_SECONDS - 20 <= waited <= 9 * PRIORITY_SECONDS + 20


async def test_a_failed_message_keeps_the_priority_of_its_lane_unless_it_sleeps(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=9)
    group = await harness.group(queue)
    low, high = await harness.neighbours(queue, 2)
    await harness.store.queues.set_priority(high.id, 9)
    await harness.store.messages.push([harness.slice(queue, low, ["low"]), harness.slice(queue, high, ["high"])])
    for delay_ms in (None, 5000):
        taken = await harness.pop(queue, group)
        assert taken.data == ["high"]
        await harness.nack(taken, delay_ms=delay_ms)
    assert (await harness.pop(queue, group)).data == ["low"]
    assert not await harness.pop(queue, group)
    harness.clock.advance(5)
    assert (await harness.pop(queue, group)).data == ["high"]


async def test_messages_of_an_unordered_queue_come_by_priority_then_by_age(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("jobs")
    await broker.queues.configure(queue, ordering="unordered")
    for number, priority in enumerate((0, 5, 9, None, 5, 1, 9)):
        harness.clock.advance(0.001)
        outcome = await broker.push(queue, number, priority=priority)
        assert outcome.status == "queued"
    seen: list[int] = []
    while batch := await broker.pop(queue, batch=1):
        seen += [int(bytes(message.raw)) for message in batch]
        await broker.ack(batch)
        harness.clock.advance(0.001)
    assert seen == [2, 6, 1, 4, 5, 0, 3]


async def test_one_pop_over_many_lanes_begins_with_the_most_urgent(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("jobs")
    await broker.queues.configure(queue, ordering="unordered")
    items = [PushItem(queue=queue, payload=b"%d" % number, priority=number % 3) for number in range(9)]
    await broker.push_many(items)
    batch = await broker.pop(queue, batch=9, partitions=3)
    assert [int(bytes(message.raw)) for message in batch] == [2, 5, 8, 1, 4, 7, 0, 3, 6]


async def test_a_push_gives_its_partition_of_an_ordered_queue_its_priority(harness: Harness) -> None:
    broker, queue = harness.broker, await harness.queue()
    low, high = await harness.neighbours(queue, 2)
    await broker.push(queue.name, "low", partition=low.name)
    harness.clock.advance(0.1)
    await broker.push(queue.name, "first", partition=high.name)
    await broker.push(queue.name, "second", partition=high.name, priority=7)
    [message] = await broker.pop(queue.name)
    assert bytes(message.raw) == b'"first"', "order inside the partition is kept"


@pytest.mark.parametrize("ordering", ["unordered", "per_key"])
async def test_a_message_is_delivered_with_the_priority_of_its_push(harness: Harness, ordering: Any) -> None:
    broker, queue = harness.broker, harness.name("jobs")
    await broker.queues.configure(queue, retry_limit=0, ordering=ordering)
    await broker.push(queue, "plain")
    await broker.push(queue, "low", priority=0, type="job")
    trace_id = str(uuid4())
    more: PushOptions = {"trace_id": trace_id, "type": "job", "headers": {"a": "b"}, "max_attempts": 1, "priority": 9}
    await broker.push(queue, "high", **more)
    await broker.push(queue, "higher", priority=8)
    found = {message.data: message for message in await broker.pop(queue, batch=9, partitions=9)}
    assert {data: message.priority for data, message in found.items()} == {
        "plain": 0,
        "low": 0,
        "high": 9,
        "higher": 8,
    }
    high = found["high"]
    assert (high.trace_id, high.type, high.headers, high.max_attempts) == (trace_id, "job", {"a": "b"}, 1)
    await broker.ack([found["plain"], found["low"]])
    await broker.nack([high], error="no")
    [letter] = await broker.dead_letters.page(queue)
    assert letter.trace_id == trace_id
    await broker.ack(await broker.pop(queue, batch=9, partitions=9))
    await broker.dead_letters.replay(queue)
    [again] = await broker.pop(queue)
    assert (again.data, again.priority) == ("high", 9)


async def test_a_priority_that_is_none_is_refused_and_nothing_stored(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("jobs")
    for priority in (-1, 10, 1.5, "9", True):
        with pytest.raises(InvalidRequest, match="priority"):
            await broker.push(queue, 1, priority=priority)  # type: ignore[arg-type]
    assert not await broker.pop(queue)


async def test_a_pop_over_queues_begins_with_the_one_of_highest_priority_and_starves_none(harness: Harness) -> None:
    broker, namespace = harness.broker, harness.name("space")
    idle, urgent = harness.name("idle"), harness.name("urgent")
    for name, priority in ((idle, 0), (urgent, 10)):
        await broker.queues.configure(name, namespace=namespace, priority=priority)
        await broker.push_many([PushItem(queue=name, payload=b"1") for _ in range(30 if priority else 1)])
    one = PopRequest(tenant=broker.tenant, queue="", group=QUEUE_MODE, batch=1, auto_ack=True)
    seen = [(await broker.requests.pop_any(one, namespace=namespace, task=None)).queue for _ in range(25)]
    assert seen[:5] == [urgent] * 5
    assert seen.count(idle) == 1, "within twenty looks each of two queues had its turn"


def ids_of_every_age(harness: Harness) -> dict[str, str]:
    old = Uuid7(lambda: harness.clock() // 1000 - 120_000)()
    return {"no UUID": "order-1", "just made": harness.mint(), "old": old}


@pytest.mark.parametrize("age", ["no UUID", "just made", "old"])
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one call"])
async def test_an_id_is_stored_once_whatever_its_priorities(harness: Harness, age: str, together: bool) -> None:
    queue = await harness.queue(ordering="unordered")
    id = ids_of_every_age(harness)[age]
    items = [
        PushItem(queue=queue.name, partition="p", payload=b"%d" % number, transaction_id=id, priority=priority)
        for number, priority in enumerate((None, 5, 9, 5))
    ]
    other = PushItem(queue=queue.name, partition="other", payload=b"9", transaction_id=id, priority=5)
    calls = [[*items, other]] if together else [[item] for item in (*items, other)]
    outcomes = [outcome for call in calls for outcome in await harness.broker.push_many(call)]
    assert sorted(outcome.status for outcome in outcomes) == [*["duplicate"] * 3, "queued", "queued"]
    stored = [outcome for outcome in outcomes if outcome.status == "queued"]
    assert {(one.message_id, one.partition, one.position) for one in outcomes} == {
        (one.message_id, one.partition, one.position) for one in stored
    }, "a repeat is told where the message is"
    seen = []
    while batch := await harness.broker.pop(queue.name, batch=10, auto_ack=True):
        seen += [delivery.data for delivery in batch]
    assert len(seen) == 2


async def test_an_id_that_two_brokers_get_with_two_priorities_at_once_is_stored_once(harness: Harness) -> None:
    queue = await harness.queue(ordering="unordered")
    brokers = (harness.broker, await harness.second_broker())
    for number in range(20):
        items = [
            PushItem(queue=queue.name, partition="p", payload=b"1", transaction_id=f"id {number}", priority=priority)
            for priority in (3, 7)
        ]
        both = await asyncio.gather(*(broker.push_many([item]) for broker, item in zip(brokers, items, strict=True)))
        assert sorted(outcome.status for [outcome] in both) == ["duplicate", "queued"]


async def test_pushes_that_wait_find_an_id_in_lanes_of_other_priorities(harness: Harness) -> None:
    """A broker that does not know the queue yet puts the message into the lane without priority."""
    await no_operations(harness)
    queue = await harness.queue(ordering="unordered")
    for number, partition in enumerate(("p", "p!5")):
        await enqueue(harness, queue, [number], partition=partition, ids=["charge-7"])
    applied = await apply(harness, queue, await harness.store.operations.claim("worker"))
    assert sorted(type(result).__name__ for result in applied) == ["Duplicates", "Stored"]
    await enqueue(harness, queue, [2], partition="q", ids=["charge-8"])
    await harness.push(queue, [3], partition="q!9", ids=["charge-8"])
    claimed = [one for one in await harness.store.operations.claim("worker") if len(one.operations) == 1]
    [result] = await apply(harness, queue, claimed[-1:])
    assert isinstance(result, Duplicates)
