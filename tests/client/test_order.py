"""The order of a lane, whatever becomes of the requests that carry its messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import Client, PushItem
from fairlane.errors import BrokerFailed
from tests.client.rogue import Answer, Rogue

PUSH = "/api/v1/push"
FAILED = Answer(500, {"error": "a defect", "code": "internal_error"})


async def test_pushes_that_are_refused_for_overload_keep_their_place_in_the_lane(rogue: Rogue, queue: str) -> None:
    rogue.do(Answer(429, {"error": "busy", "code": "overloaded"}, {"Retry-After": "0.2"}))
    async with Client(rogue.url) as client:
        calls = [asyncio.create_task(client.push(queue, 0))]
        await rogue.until(PUSH, 1)
        calls += [asyncio.create_task(client.push(queue, n)) for n in range(1, 6)]
        await asyncio.gather(*calls)
        batch = await client.pop(queue, batch=10)
    assert [message.data for message in batch] == [0, 1, 2, 3, 4, 5]


async def test_calls_to_a_full_queue_are_stored_in_the_order_of_the_calls(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url, max_retry_delay=0.02, attempts=10_000) as client:
        await client.queues.configure(queue, max_size=10)
        calls = []
        for n in range(20):
            items = [PushItem(queue=queue, payload=b"%d" % m) for m in range(3 * n, 3 * n + 1 + 2 * (n % 2))]
            calls.append(asyncio.create_task(client.push_many(items)))
            await asyncio.sleep(0)
        found: list[int] = []
        while len(found) < 40:
            batch = await client.pop(queue, batch=4, wait=30)
            found += [message.data for message in batch]
            await client.ack(batch)
        await asyncio.gather(*calls)
    assert found == sorted(found)


async def test_a_lane_that_waits_for_room_holds_up_no_other_lane(rogue: Rogue, queue: str) -> None:
    async with Client(rogue.url) as client:
        for n in range(6):
            await client.queues.configure(f"{queue}-{n}", max_size=1)
            await client.push(f"{queue}-{n}", 0)
        seen = len(rogue.requests(PUSH))
        waiting = []
        for n in range(6):
            waiting += [asyncio.create_task(client.push(f"{queue}-{n}", m)) for m in range(300)]
            await rogue.until(PUSH, seen + n + 1)
        async with asyncio.timeout(20):
            assert (await client.push(queue, 1)).status == "queued"
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_calls_that_go_one_by_one_keep_their_order_when_one_of_them_is_refused(rogue: Rogue, queue: str) -> None:
    """The request with all three calls is refused as a whole. Sent alone, the first meets an overload."""
    rogue.hold = asyncio.Event()
    async with Client(rogue.url) as client:
        calls = [asyncio.create_task(client.push(queue, 0))]
        await rogue.until(PUSH, 1)
        calls += [asyncio.create_task(client.push(queue, n)) for n in range(1, 4)]
        await asyncio.sleep(0)
        busy = Answer(429, {"error": "busy", "code": "overloaded"}, {"Retry-After": "0.05"})
        rogue.do(Answer(400, {"error": "no", "code": "invalid_request"}), busy)
        rogue.hold.set()
        await asyncio.gather(*calls)
        batch = await client.pop(queue, batch=10)
    assert [message.data for message in batch] == [0, 1, 2, 3]


async def together(client: Client, rogue: Rogue, queue: str, *reactions: Answer) -> list[Any]:
    """Push 0 alone, then 1, 2 and 3 in one request, which is the first to meet `reactions`. Returns the outcomes."""
    rogue.hold = asyncio.Event()
    calls = [asyncio.create_task(client.push(queue, 0))]
    await rogue.until(PUSH, 1)
    calls += [asyncio.create_task(client.push(queue, n)) for n in range(1, 4)]
    await asyncio.sleep(0)
    rogue.do(*reactions)
    rogue.hold.set()
    return await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_pushes_that_a_broker_failed_at_keep_their_place_in_the_lane(
    rogue: Rogue, queue: str, count: int
) -> None:
    async with Client(rogue.url, retry_delay=0.01) as client:
        await together(client, rogue, queue, *[FAILED] * count)
        batch = await client.pop(queue, batch=10)
    assert [message.data for message in batch] == [0, 1, 2, 3]


async def test_a_push_that_a_broker_always_fails_at_is_the_only_one_to_fail(rogue: Rogue, queue: str) -> None:
    """Each of the three attempts is one request with all calls, and one with the first call alone."""
    async with Client(rogue.url, retry_delay=0.01) as client:
        [zero, one, two, three] = await together(client, rogue, queue, *[FAILED] * 6)
        assert isinstance(one, BrokerFailed)
        assert [found.status for found in (zero, two, three)] == ["queued"] * 3
        batch = await client.pop(queue, batch=10)
    assert [message.data for message in batch] == [0, 2, 3]
