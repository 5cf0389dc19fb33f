"""The client-side buffer: when it flushes, and that it loses nothing."""

from __future__ import annotations

import pytest

from fairlane import Client, InvalidRequest, QueueFull, Unavailable
from tests.broker_process import BrokerProcess
from tests.client.rogue import Answer, Rogue

PUSH = "/api/v1/push"


async def test_a_buffer_is_flushed_at_the_end_of_its_block(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        async with client.buffer() as buffer:
            for n in range(10):
                await buffer.push(queue, n)
            assert len(buffer) == 10
            assert not rogue.seen
        assert len(buffer) == 0
        assert [message.data for message in await client.pop(queue, batch=20)] == list(range(10))
    assert len(rogue.requests(PUSH)) == 1


async def test_flush_returns_what_became_of_each(client: Client, queue: str) -> None:
    buffer = client.buffer()
    await buffer.push(queue, 1, transaction_id="t")
    await buffer.push(queue, 2, transaction_id="t")
    assert [outcome.status for outcome in await buffer.flush()] == ["queued", "duplicate"]
    assert await buffer.flush() == []


async def test_a_full_buffer_is_flushed_before_the_next_message(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        async with client.buffer(items_max=4) as buffer:
            for n in range(10):
                await buffer.push(queue, n)
        async with client.buffer(bytes_max=100) as buffer:
            for _ in range(3):
                await buffer.push(queue, "x" * 60)
    assert [len(seen.items) for seen in rogue.requests(PUSH)] == [4, 4, 2, 1, 1, 1]


async def test_a_block_that_raises_is_not_flushed(client: Client, queue: str) -> None:
    async def broken() -> None:
        async with client.buffer() as buffer:
            await buffer.push(queue, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await broken()
    assert not await client.pop(queue)


async def test_what_could_not_be_sent_stays_and_is_stored_once(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, attempts=1) as client:
        buffer = client.buffer()
        await buffer.push(queue, 1)
        rogue.do(Answer(503, {"error": "away", "code": "store_unavailable"}))
        with pytest.raises(Unavailable):
            await buffer.flush()
        await buffer.push(queue, 2)
        assert [outcome.status for outcome in await buffer.flush()] == ["queued", "queued"]
        assert [message.data for message in await client.pop(queue, batch=5)] == [1, 2]
    first, second = rogue.requests(PUSH)
    assert first.items[0]["transactionId"] == second.items[0]["transactionId"]


async def test_what_a_full_queue_refused_stays_and_the_rest_is_stored(broker: BrokerProcess, queue: str) -> None:
    async with Client(broker.url, retry_on_429=False) as impatient:
        await impatient.queues.configure(queue, max_size=1)
        buffer = impatient.buffer()
        await impatient.push(queue, 0)
        await buffer.push(queue, 1)
        await buffer.push(f"{queue}-free", 2)
        with pytest.raises(QueueFull):
            await buffer.flush()
        assert len(buffer) == 1
        await impatient.ack(await impatient.pop(queue))
        assert [outcome.status for outcome in await buffer.flush()] == ["queued"]


async def test_a_message_that_cannot_be_sent_is_refused_when_it_is_put_in(client: Client) -> None:
    with pytest.raises(InvalidRequest):
        await client.buffer().push("", 1)
