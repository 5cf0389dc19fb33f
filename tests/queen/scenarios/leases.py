"""A delivered message belongs to its consumer until the lease ends."""

from __future__ import annotations

import asyncio


async def a_renewed_lease_keeps_the_message(client, queue):
    await client.queue(queue).config({"lease_time": 2}).create()
    await client.queue(queue).push([{"data": 1}])
    [message] = await client.queue(queue).wait(False).pop()
    renewed = await client.renew(message)
    assert renewed["success"] is True, renewed
    assert renewed["newExpiresAt"], renewed
    await asyncio.sleep(2.3)
    assert await client.queue(queue).wait(False).pop() == []
    assert (await client.ack(message))["success"]


async def an_expired_lease_lets_the_next_consumer_have_it(client, queue):
    await client.queue(queue).config({"lease_time": 2}).create()
    await client.queue(queue).push([{"data": 1}])
    [first] = await client.queue(queue).wait(False).pop()
    assert await client.queue(queue).wait(False).pop() == []
    [second] = await client.queue(queue).wait(True).timeout_millis(5000).pop()
    assert second["transactionId"] == first["transactionId"]
    assert second["leaseId"] != first["leaseId"]
    late = await client.ack(first)
    assert not late["success"], late
    assert (await client.ack(second))["success"]


async def a_finished_lease_cannot_be_renewed(client, queue):
    await client.queue(queue).push([{"data": 1}])
    [message] = await client.queue(queue).wait(False).pop()
    await client.ack(message)
    renewed = await client.renew(message)
    # The older client takes any answer for success, so only the time shows the difference.
    assert renewed["newExpiresAt"] is None, renewed


async def consume_renews_while_the_handler_works(client, queue):
    await client.queue(queue).config({"lease_time": 2}).create()
    await client.queue(queue).push([{"data": 1}])
    handled = []

    async def handle(message):
        await asyncio.sleep(2.6)
        handled.append(message["data"])

    await client.queue(queue).batch(1).limit(1).wait(False).renew_lease(True, 400).each().consume(handle)
    assert handled == [1]
    assert await client.queue(queue).wait(False).pop() == []
