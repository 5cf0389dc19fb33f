"""Requests that only the newest client can make."""

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


async def a_conflating_consumer_gets_the_last_value_of_each_partition(client, queue):
    def latest():
        return client.queue(queue).group("latest").conflation(True).batch(10).partitions(10).wait(False)

    # The client refuses every answer, even an empty one, that does not confirm the conflation.
    assert await latest().pop() == []
    for lane in ("a", "b"):
        await client.queue(queue).partition(lane).push([{"data": [lane, n]} for n in range(3)])
    popped = await latest().pop()
    assert sorted(message["data"] for message in popped) == [["a", 2], ["b", 2]], popped
    assert (await client.ack(popped, True, {"group": "latest"}))["success"]
    assert await latest().pop() == []
    assert len(await client.queue(queue).group("all").batch(10).partitions(10).wait(False).pop()) == 6


async def a_group_that_does_not_conflate_keeps_its_way(client, queue):
    await client.queue(queue).push([{"data": n} for n in range(3)])
    [first] = await client.queue(queue).group("plain").batch(1).wait(False).pop()
    await client.ack(first, True, {"group": "plain"})
    rest = await client.queue(queue).group("plain").conflation(True).batch(10).wait(False).pop()
    assert [message["data"] for message in rest] == [1, 2], rest


async def conflation_without_a_group_is_refused(client, queue):
    refused = ""
    try:
        await client.queue(queue).conflation(True).wait(False).pop()
    except Exception as error:
        refused = str(error)
    assert "conflation" in refused, refused


async def a_transaction_over_keys_or_timers_is_refused_whole(client, queue):
    await client.queue(queue).push([{"data": 1}])
    [message] = await client.queue(queue).batch(1).wait(False).pop()
    for add in (
        lambda transaction: transaction.kv.put("ns", "key", 1, forever=True),
        lambda transaction: transaction.timer(queue).key("key").payload({"n": 1}).after_ms(1000).schedule(),
    ):
        transaction = client.transaction().ack(message)
        transaction.queue(f"{queue}-out").push([{"data": 2}])
        add(transaction)
        refused = ""
        try:
            await transaction.commit()
        except Exception as error:
            refused = str(error)
        assert "this broker has no" in refused, refused
    assert await client.queue(f"{queue}-out").wait(False).pop() == []
    assert (await client.renew(message))["success"]


async def the_broker_says_how_it_sized_a_pop(client, queue):
    await client.queue(queue).push([{"data": 1}])
    sized = await client.queue(queue).partitions(3).wait(False).pop_result()
    assert [message["data"] for message in sized.messages] == [1]
    assert sized.autopilot.partitions == 3, sized.autopilot
    assert sized.autopilot.batch > 1, sized.autopilot
