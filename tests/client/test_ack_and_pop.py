"""Ack and pop in one request: what consumers send, and what happens when an answer is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import AckItem, Client, InvalidRequest, Message, PushItem
from fairlane.client import Batch, Batched
from fairlane.errors import NotFound, StoreUnavailable
from tests.broker_process import BrokerProcess
from tests.client.rogue import Answer, Drop, Rogue

POP, ACK, BOTH = "/api/v1/pop/", "/api/v1/ack/", "/api/v1/ack-and-pop/"
UNKNOWN = Answer(404, {"error": "there is no such path", "code": "no_such_route"})
AWAY = Answer(503, {"error": "away", "code": "store_unavailable"})


async def fill(client: Client, queue: str, count: int) -> None:
    await client.push_many([PushItem(queue=queue, payload=b"%d" % n) for n in range(count)])


def acks(batch: Batch[Any]) -> list[AckItem]:
    return [AckItem(transaction_id=one.transaction_id, partition=one.partition_id, lease=one.lease) for one in batch]


async def test_a_batch_takes_one_request_of_a_consumer(rogue: Rogue, queue: str) -> None:
    """Without it, each batch took a pop and an ack."""
    async with Client(rogue.url) as client:
        await fill(client, queue, 60)
        seen: list[int] = []

        async def handle(batch: Batch[int]) -> None:
            seen.extend(message.data for message in batch)

        assert await client.consume(queue, Batched(handle), type=int, batch=10, limit=60) == 60
        assert seen == list(range(60))
        assert [len(rogue.requests(path)) for path in (POP, BOTH, ACK)] == [1, 5, 1]


@pytest.mark.parametrize(("concurrency", "least"), [(1, 29), (3, 1)])
async def test_the_last_ack_of_a_batch_goes_with_the_next_pop(
    rogue: Rogue, queue: str, concurrency: int, least: int
) -> None:
    """With several handlers, an ack goes alone if no pop is about to be sent."""
    async with Client(rogue.url) as client:
        items = [PushItem(queue=queue, payload=b"1", partition=str(n % 3)) for n in range(30)]
        await client.push_many(items)

        async def handle(message: Message[int]) -> None:
            await asyncio.sleep(0)

        assert await client.consume(queue, handle, limit=30, concurrency=concurrency) == 30
        both, alone = (len(rogue.requests(path)) for path in (BOTH, ACK))
        assert both >= least
        assert both + alone <= 30
        assert not await client.pop(queue)


async def test_a_consumer_at_the_end_of_a_queue_makes_one_request_per_message(rogue: Rogue, queue: str) -> None:
    """Each request acks the message before and waits for the next."""
    async with Client(rogue.url) as client, client.consumer(queue, lambda message: None):
        for number in range(5):
            await client.push(queue, number)
            await rogue.until(BOTH, number + 1)
        assert [len(rogue.requests(path)) for path in (POP, ACK)] == [1, 0]
    assert len(rogue.requests(ACK)) == 1, "the outcome of the last is not known when the poll is cancelled"


async def test_a_consumer_of_an_earlier_broker_makes_two_requests(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await fill(client, queue, 10)
        first = await client.pop(queue)
        rogue.do(UNKNOWN)
        answer = await client.ack_and_pop(acks(first), queue, type=int)
        assert ([one.success for one in answer.outcomes], [one.data for one in answer.batch]) == ([True], [1])
        again = await client.ack_and_pop(acks(answer.batch), queue, type=int)
        assert ([one.success for one in again.outcomes], [one.data for one in again.batch]) == ([True], [2])
        assert [len(rogue.requests(path)) for path in (POP, BOTH, ACK)] == [3, 1, 2]
        await client.ack(again.batch)
        assert await client.consume(queue, lambda message: None, limit=7) == 7
        assert len(rogue.requests(BOTH)) == 1


async def test_an_unknown_partition_is_no_sign_of_an_earlier_broker(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await fill(client, queue, 1)
        batch = await client.pop(queue)
        rogue.do(Answer(404, {"error": "there is no partition 7", "code": "not_found"}))
        with pytest.raises(NotFound):
            await client.ack_and_pop(acks(batch), queue)
        await client.ack_and_pop(acks(batch), queue)
        assert len(rogue.requests(BOTH)) == 2


async def test_a_lost_answer_acks_once_and_its_messages_come_again(rogue: Rogue, queue: str) -> None:
    """No client got the messages of the lost answer, so they come again when its lease has run out."""
    async with Client(rogue.url, retry_delay=0.01) as client:
        await client.queues.configure(queue, lease_seconds=1, retry_limit=5)
        await fill(client, queue, 3)
        first = await client.pop(queue)
        rogue.do(Drop(carried_out=True))
        answer = await client.ack_and_pop(acks(first), queue, type=int, wait=30)
        assert [(one.success, one.noop) for one in answer.outcomes] == [(True, True)]
        assert [(one.data, one.failed_attempts) for one in answer.batch] == [(1, 1)]


async def test_a_consumer_loses_nothing_with_an_answer(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, retry_delay=0.01, attempts=2) as client:
        await client.queues.configure(queue, lease_seconds=1, retry_limit=5)
        await fill(client, queue, 12)
        seen: list[int] = []

        async def handle(batch: Batch[int]) -> None:
            seen.extend(message.data for message in batch)
            if len(seen) in (3, 6, 9):
                reactions: dict[int, list[Answer | Drop]] = {
                    3: [Drop(True)],
                    6: [Drop(False)],
                    9: [AWAY, AWAY, Drop(True)],
                }
                rogue.do(*reactions[len(seen)])

        assert await client.consume(queue, Batched(handle), type=int, batch=3, limit=12) == 12
        assert seen == list(range(12)), "each message was handled once, in order"
        assert not await client.pop(queue)


async def test_the_error_of_a_pop_comes_with_the_outcomes(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, attempts=1) as client:
        await fill(client, queue, 2)
        batch = await client.pop(queue)
        rogue.do(UNKNOWN)
        hold = asyncio.create_task(rogue.until(ACK, 1))
        asking = asyncio.create_task(client.ack_and_pop(acks(batch), queue))
        await hold
        rogue.do(AWAY)
        answer = await asking
        assert [one.success for one in answer.outcomes] == [True]
        assert isinstance(answer.error, StoreUnavailable)
        assert not answer.batch


async def test_a_consumer_goes_on_after_its_broker_was_killed(own_broker: BrokerProcess, queue: str) -> None:
    """Acked messages stay acked. Messages that the dead broker leased come again after their lease."""
    async with Client(own_broker.url, retry_delay=0.05, attempts=20) as client:
        await client.queues.configure(queue, lease_seconds=1, retry_limit=10)
        await fill(client, queue, 40)
        seen: list[int] = []

        async def handle(message: Message[int]) -> None:
            seen.append(message.data)
            if len(seen) in (5, 15, 25):
                await asyncio.to_thread(own_broker.kill)
                await asyncio.to_thread(own_broker.start)
            if len(set(seen)) == 40:
                consumer.stop()

        consumer = client.consumer(queue, handle, type=int)
        await consumer.run()
        assert not await client.pop(queue)


async def test_popped_messages_are_acked_as_they_are(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        await fill(client, queue, 5)
        batch = await client.pop(queue, batch=2)
        answer = await client.ack_and_pop(batch, queue, batch=2, type=int)
        assert ([one.success for one in answer.outcomes], len(answer.batch)) == ([True, True], 2)
        [ack] = rogue.requests(BOTH)[-1].body["acknowledgments"]
        assert (ack["position"], ack["count"]) == (0, 2), "one ack for messages in a row"
        answer = await client.ack_and_pop(answer.batch[0], queue, type=int)
        assert ([one.success for one in answer.outcomes], len(answer.batch)) == ([True], 0)
        with pytest.raises(InvalidRequest, match="of group"):
            await client.ack_and_pop(batch, queue, group="another")
        with pytest.raises(InvalidRequest, match="not an AckItem"):
            await client.ack_and_pop(["message"], queue)  # type: ignore[arg-type]
