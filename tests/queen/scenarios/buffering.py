"""Pushes that the client buffers."""

from __future__ import annotations

import asyncio


async def buffered_pushes_travel_when_enough_are_there(client, queue):
    for n in range(20):
        await client.queue(queue).buffer({"message_count": 20, "time_millis": 60_000}).push([{"data": n}])
    popped = await client.queue(queue).batch(20).wait(True).timeout_millis(5000).pop()
    assert [message["data"] for message in popped] == list(range(20))


async def buffered_pushes_travel_after_a_time(client, queue):
    await client.queue(queue).buffer({"message_count": 100, "time_millis": 300}).push([{"data": 1}])
    assert await client.queue(queue).wait(False).pop() == []
    [message] = await client.queue(queue).wait(True).timeout_millis(5000).pop()
    assert message["data"] == 1


async def buffered_pushes_travel_when_told_to(client, queue):
    asked = client.queue(queue).partition("lane").buffer({"message_count": 100, "time_millis": 60_000})
    await asked.push([{"data": 1}])
    await asked.flush_buffer()
    assert len(await client.queue(queue).partition("lane").wait(False).pop()) == 1
    await client.queue(queue).buffer({"message_count": 100, "time_millis": 60_000}).push([{"data": 2}])
    await client.flush_all_buffers()
    await asyncio.sleep(0)
    assert len(await client.queue(queue).wait(False).pop()) == 1
