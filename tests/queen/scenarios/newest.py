"""What only the newest client can ask for."""

from __future__ import annotations


async def a_consumer_without_sizes_gets_lists(client, queue):
    for lane in range(5):
        await client.queue(queue).partition(f"p{lane}").push([{"data": [lane, n]} for n in range(3)])
    batches = []

    async def handle(messages):
        batches.append([tuple(message["data"]) for message in messages])

    await client.queue(queue).limit(15).wait(False).consume(handle)
    seen = [one for batch in batches for one in batch]
    assert sorted(seen) == [(lane, n) for lane in range(5) for n in range(3)]
    assert len(batches) < 15, batches


async def a_size_that_was_set_is_kept(client, queue):
    for lane in range(3):
        await client.queue(queue).partition(f"p{lane}").push([{"data": n} for n in range(3)])
    narrow = await client.queue(queue).partitions(1).wait(False).pop()
    assert len({message["partitionId"] for message in narrow}) == 1
    assert len(narrow) == 3
    short = await client.queue(queue).batch(2).wait(False).pop()
    assert len(short) == 2


async def a_pop_may_commit_at_delivery(client, queue):
    await client.queue(queue).push([{"data": 1}, {"data": 2}])
    popped = await client.queue(queue).batch(2).wait(False).commit_on_delivery().pop()
    assert [message["data"] for message in popped] == [1, 2]
    assert not any(message["leaseId"] for message in popped)
    assert await client.queue(queue).batch(2).wait(False).pop() == []
