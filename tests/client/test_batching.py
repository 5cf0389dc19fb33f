"""Calls made while a request is in flight share the next request."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import pytest

from fairlane import AckItem, Client, FairlaneError, InvalidRequest, PushItem, QueueFull
from fairlane.model.group import Subscription
from tests.client.rogue import Answer, Rogue

PUSH, ACK = "/api/v1/push", "/api/v1/ack/batch"


async def test_64_tasks_that_push_one_message_each_cost_a_few_requests(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        outcomes = await asyncio.gather(*[client.push(queue, n, partition=f"p{n % 8}") for n in range(64)])
    assert {outcome.status for outcome in outcomes} == {"queued"}
    assert len({outcome.message_id for outcome in outcomes}) == 64
    assert len(rogue.requests(PUSH)) <= 3


async def test_without_batching_each_push_is_a_request(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, batching=False) as client:
        await asyncio.gather(*[client.push(queue, n) for n in range(10)])
    assert len(rogue.requests(PUSH)) == 10


async def test_a_push_leaves_at_once_when_nothing_is_in_flight(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        for n in range(3):
            await client.push(queue, n)
    assert [len(seen.items) for seen in rogue.requests(PUSH)] == [1, 1, 1]


async def test_what_is_pushed_while_a_request_is_in_flight_goes_in_the_next(rogue: Rogue, queue: str) -> None:
    rogue.hold = asyncio.Event()
    async with Client(rogue.url) as client:
        first = asyncio.create_task(client.push(queue, 0))
        await rogue.until(PUSH, 1)
        others = [asyncio.create_task(client.push(queue, n)) for n in range(1, 6)]
        await asyncio.sleep(0)
        rogue.hold.set()
        await asyncio.gather(first, *others)
        batch = await client.pop(queue, batch=10)
    assert [len(seen.items) for seen in rogue.requests(PUSH)] == [1, 5]
    assert [message.data for message in batch] == [0, 1, 2, 3, 4, 5]


async def test_a_push_to_another_lane_does_not_wait_for_the_request_in_flight(rogue: Rogue, queue: str) -> None:
    rogue.hold = asyncio.Event()
    async with Client(rogue.url) as client:
        first = asyncio.create_task(client.push(queue, 0, partition="a"))
        await rogue.until(PUSH, 1)
        second = asyncio.create_task(client.push(queue, 1, partition="b"))
        await rogue.until(PUSH, 2)  # although the first request is held
        third = asyncio.create_task(client.push(queue, 2, partition="c"))
        await asyncio.sleep(0)
        rogue.hold.set()
        await asyncio.gather(first, second, third)
    assert [len(seen.items) for seen in rogue.requests(PUSH)] == [1, 1, 1]


async def test_calls_of_a_lane_never_pass_each_other_however_many_lanes_they_name(rogue: Rogue, queue: str) -> None:
    """The second call waits for lane `a`, the third for lane `b` of the second, and `c` waits for no lane."""
    rogue.hold = asyncio.Event()

    def items(data: int, *partitions: str) -> list[PushItem]:
        return [PushItem(queue=queue, payload=b"%d" % data, partition=partition) for partition in partitions]

    async with Client(rogue.url) as client:
        calls: list[asyncio.Task[Any]] = [asyncio.create_task(client.push(queue, 1, partition="a"))]
        await rogue.until(PUSH, 1)
        calls.append(asyncio.create_task(client.push_many(items(2, "a", "b"))))
        calls.append(asyncio.create_task(client.push(queue, 3, partition="b")))
        calls.append(asyncio.create_task(client.push(queue, 4, partition="c")))
        await rogue.until(PUSH, 2)
        rogue.hold.set()
        await asyncio.gather(*calls)
        lanes = {lane: [one.data for one in await client.pop(queue, batch=9, partition=lane)] for lane in "abc"}
    assert lanes == {"a": [1, 2], "b": [2, 3], "c": [4]}
    assert [[item["payload"] for item in seen.items] for seen in rogue.requests(PUSH)][:2] == [[1], [4]]


async def test_many_callers_in_disorder_leave_every_lane_in_order(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        calls = []
        for n in range(600):
            calls.append(asyncio.create_task(client.push(queue, n, partition=f"p{n % 7}")))
            if n % 11 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*calls)
        for lane in range(7):
            batch = await client.pop(queue, batch=100, partition=f"p{lane}")
            assert [message.data for message in batch] == list(range(lane, 600, 7))


async def test_at_most_four_requests_are_in_flight_however_many_callers_go_on(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:

        async def caller(number: int) -> None:
            for n in range(20):
                await client.push(queue, n, partition=f"p{number}")

        await asyncio.gather(*[caller(number) for number in range(40)])
        batches = [await client.pop(queue, batch=20, partition=f"p{number}") for number in range(40)]
    assert [[message.data for message in batch] for batch in batches] == [list(range(20))] * 40
    assert 2 <= rogue.at_once_most <= 4


async def test_a_caller_that_gives_up_before_its_push_left_takes_it_back(rogue: Rogue, queue: str) -> None:
    rogue.hold = asyncio.Event()
    async with Client(rogue.url) as client:
        first = asyncio.create_task(client.push(queue, "first"))
        await rogue.until(PUSH, 1)
        second = asyncio.create_task(client.push(queue, "second"))
        await asyncio.sleep(0)
        second.cancel()
        rogue.hold.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await second
        assert [message.data for message in await client.pop(queue, batch=10)] == ["first"]


async def test_acks_of_one_group_share_a_request_and_groups_do_not_mix(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await client.push_many([PushItem(queue=queue, payload=b"1", partition=f"p{n}") for n in range(20)])
        batches = [await client.pop(queue, batch=20, partitions=20, group=group) for group in ("a", "b")]
        assert [len(batch) for batch in batches] == [20, 20]
        outcomes = await asyncio.gather(*[client.ack(message) for batch in batches for message in batch])
    assert all(outcome.success for [outcome] in outcomes)
    groups = [seen.body["consumerGroup"] for seen in rogue.requests(ACK)]
    assert set(groups) == {"a", "b"}
    assert len(groups) <= 4


async def test_an_ack_of_another_lane_does_not_wait_for_the_request_in_flight_and_one_of_the_same_does(
    rogue: Rogue, queue: str
) -> None:
    async with Client(rogue.url) as client:
        for lane in "ab":
            await client.push_many([PushItem(queue=queue, payload=b"%d" % n, partition=lane) for n in range(2)])
        first, second = [await client.pop(queue, batch=9, partition=lane) for lane in "ab"]
        rogue.hold = asyncio.Event()
        calls = [asyncio.create_task(client.ack(first[0]))]
        await rogue.until(ACK, 1)
        calls.append(asyncio.create_task(client.ack(first[1])))
        calls.append(asyncio.create_task(client.ack(second)))
        await rogue.until(ACK, 2)  # although the first request is held
        rogue.hold.set()
        assert all(outcome.success for outcomes in await asyncio.gather(*calls) for outcome in outcomes)
    named = [[one["partitionId"] for one in seen.body["acknowledgments"]] for seen in rogue.requests(ACK)]
    assert named == [[str(first[0].partition_id)], [str(second[0].partition_id)], [str(first[0].partition_id)]]


async def test_what_is_acked_in_a_row_is_one_element_and_told_of_each_message(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        for lane in "ab":
            await client.push_many([PushItem(queue=queue, payload=b"%d" % n, partition=lane) for n in range(5)])
        batch = await client.pop(queue, batch=10, partitions=2)
        assert [message.data for message in batch] == [0, 1, 2, 3, 4] * 2
        some = [*batch[0:2], *batch[3:5], *batch[5:10]]
        outcomes = await client.ack(some)
        assert [outcome.transaction_id for outcome in outcomes] == [message.transaction_id for message in some]
        assert all(outcome.success for outcome in outcomes)
        [again] = await client.ack(batch[2])
        assert again.lease_released
    [seen, _] = rogue.requests(ACK)
    assert [one.get("count", 1) for one in seen.body["acknowledgments"]] == [2, 2, 5]


async def test_messages_in_a_row_of_which_one_is_done_already_are_told_apart(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await client.push_many([PushItem(queue=queue, payload=b"%d" % n) for n in range(3)])
        batch = await client.pop(queue, batch=3)
        await client.ack(batch[1])
        outcomes = await client.ack(batch)
    assert [(outcome.success, outcome.noop) for outcome in outcomes] == [(True, False), (True, True), (True, False)]
    assert [outcome.transaction_id for outcome in outcomes] == [message.transaction_id for message in batch]


async def test_calls_that_ack_in_different_ways_share_a_request(rogue: Rogue, queue: str) -> None:
    """Rows of one lane, of two lanes, and acks by id alone, in all orders."""
    async with Client(rogue.url) as client:
        for order in permutations(range(4)):
            for partition in "ab":
                await client.push_many([PushItem(queue=queue, payload=b"1", partition=partition) for _ in range(6)])
            batch = await client.pop(queue, batch=12, partitions=2)
            a, b = ([message for message in batch if message.partition == partition] for partition in "ab")
            by_id = [AckItem(transaction_id=m.transaction_id, partition=m.partition_id, lease=m.lease) for m in b[:2]]
            calls = [
                client.ack(a[:2]),
                client.ack(a[2:] + b[2:4]),
                client.ack_many(by_id, queue=queue),
                client.ack(b[4:]),
            ]
            seen = len(rogue.requests(ACK))
            outcomes = await asyncio.gather(*[calls[number] for number in order])
            assert len(rogue.requests(ACK)) == seen + 1
            assert [len(outcomes[order.index(number)]) for number in range(4)] == [2, 6, 2, 2]
            assert {(one.success, one.noop, one.code) for some in outcomes for one in some} == {(True, False, None)}
            told = [one.transaction_id for one in outcomes[order.index(2)]]
            assert told == [item.transaction_id for item in by_id]
        assert not await client.pop(queue)


@pytest.mark.parametrize("elements", [[], [{"success": True, "transactionId": "", "count": 4}]])
async def test_an_answer_that_tells_of_other_acks_is_not_believed(
    rogue: Rogue, queue: str, elements: list[dict[str, Any]]
) -> None:
    async with Client(rogue.url, attempts=1) as client:
        await client.push_many([PushItem(queue=queue, payload=b"%d" % n) for n in range(3)])
        batch = await client.pop(queue, batch=3)
        rogue.do(Answer(200, elements))  # type: ignore[arg-type]
        with pytest.raises(FairlaneError, match="other acks"):
            await client.ack(batch)


@pytest.mark.parametrize(
    "answer",
    [
        {"messageIds": ["1"], "partitions": [["0-1", 2]]},
        {"messageIds": ["1", "2"], "partitions": [["0-1", 1]]},
        {"messageIds": ["1", "2"], "partitions": []},
        {"messageIds": ["1", "2"]},
    ],
)
async def test_an_answer_that_tells_of_other_messages_is_not_believed(
    rogue: Rogue, queue: str, answer: dict[str, Any]
) -> None:
    async with Client(rogue.url, attempts=1) as client:
        rogue.do(Answer(201, answer))
        with pytest.raises(FairlaneError, match="unexpected answer"):
            await client.push_many([PushItem(queue=queue, payload=b"1")] * 2)


@pytest.mark.parametrize("messages", [[], [{"data": 1}], [{"id": "1", "transactionId": "1", "data": 1}] * 2])
async def test_messages_that_are_not_what_their_lane_says_are_not_believed(
    rogue: Rogue, queue: str, messages: list[dict[str, Any]]
) -> None:
    lane = {"partition": "p", "partitionId": "0-1", "first": 0, "createdAt": [[1, 1]], "messages": messages}
    async with Client(rogue.url, attempts=1) as client:
        rogue.do(Answer(200, {"queue": queue, "consumerGroup": "g", "lanes": [lane]}))
        batch = await client.pop(queue)
        with pytest.raises(FairlaneError, match="unexpected answer"):
            list(batch)


async def test_one_callers_bad_push_does_not_fail_its_neighbours(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await client.queues.configure(queue, ordering="fifo")
        outcomes = await asyncio.gather(
            client.push(queue, 1),
            client.push(queue, 2, partition="not-default"),
            client.push(f"{queue}-other", 3),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], InvalidRequest)
        assert len(await client.pop(queue, batch=5)) == 1
        assert len(await client.pop(f"{queue}-other", batch=5)) == 1


async def test_a_limit_that_is_smaller_than_what_waits_is_used_up(rogue: Rogue, queue: str) -> None:
    """Merged into one request, none of the calls would fit. Sent alone, each fits while there is space."""
    async with Client(rogue.url, retry_on_429=False) as client:
        await client.queues.configure(queue, max_size=5)
        outcomes = await asyncio.gather(*[client.push(queue, n) for n in range(16)], return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, QueueFull)]
        assert len(refused) == 11
        batch = await client.pop(queue, batch=16, group="new", subscription=Subscription("all"))
    assert [message.data for message in batch] == [0, 1, 2, 3, 4]
    assert len(rogue.requests(PUSH)) <= 4


async def test_a_full_queue_does_not_hold_up_pushes_to_others(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, max_retry_delay=30) as client:
        await client.queues.configure(queue, max_size=1)
        await client.push(queue, 1)
        waiting = asyncio.create_task(client.push(queue, 2))
        async with asyncio.timeout(3):  # the broker asks the other call to wait longer
            await client.push(f"{queue}-other", 3)
        waiting.cancel()


async def test_callers_that_are_refused_together_are_told_apart(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, retry_on_429=False) as client:
        for size in (1, 2):
            await client.queues.configure(f"{queue}{size}", max_size=size)
            await client.push_many([PushItem(queue=f"{queue}{size}", payload=b"1")] * size)
        outcomes = await asyncio.gather(*[client.push(f"{queue}{size}", 1) for size in (1, 2)], return_exceptions=True)
    assert [outcome.capacity for outcome in outcomes if isinstance(outcome, QueueFull)] == [1, 2]


async def test_everybody_who_waited_gets_the_error_when_the_request_fails(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, attempts=1) as client:
        rogue.do(*[Answer(500, {"error": "broken", "code": "internal_error"})] * 5)
        outcomes = await asyncio.gather(*[client.push(queue, n) for n in range(3)], return_exceptions=True)
    assert {getattr(outcome, "code", None) for outcome in outcomes} == {"internal_error"}


async def test_closing_a_client_waits_for_what_is_on_its_way(rogue: Rogue, queue: str) -> None:
    client = Client(rogue.url)
    pushes = [asyncio.create_task(client.push(queue, n)) for n in range(3)]
    await asyncio.sleep(0)
    await client.close()
    assert {task.result().status for task in pushes} == {"queued"}


async def test_acks_that_a_broker_failed_at_are_repeated(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, retry_delay=0.01) as client:
        await client.push_many([PushItem(queue=queue, payload=b"1") for _ in range(3)])
        batch = await client.pop(queue, batch=3)
        rogue.do(*[Answer(500, {"error": "a defect", "code": "internal_error"})] * 2)
        outcomes = await asyncio.gather(*map(client.ack, batch))
        assert all(one.success for [one] in outcomes)
