"""Messages that fail too often become dead letters and can be retried."""

from __future__ import annotations


async def _fail_until_dead(client, queue, *, retry_limit):
    await client.queue(queue).config({"retry_limit": retry_limit}).create()
    await client.queue(queue).push([{"data": {"poison": True}, "transactionId": "p1"}, {"data": "fine"}])
    for attempt in range(retry_limit + 1):
        [message] = await client.queue(queue).batch(1).wait(False).pop()
        assert message["transactionId"] == "p1", attempt
        answer = await client.ack(message, False, {"error": f"attempt {attempt} broke"})
        assert answer["success"], answer


async def a_message_that_keeps_failing_is_kept_with_its_last_error(client, queue):
    await _fail_until_dead(client, queue, retry_limit=2)
    dead = await client.queue(queue).dlq().limit(10).get()
    assert dead["total"] == 1, dead
    [message] = dead["messages"]
    assert message["data"] == {"poison": True}
    assert "attempt 2 broke" in message["errorMessage"], message
    [following] = await client.queue(queue).batch(1).wait(False).pop()
    assert following["data"] == "fine"


async def a_message_may_be_given_up_at_once(client, queue):
    await client.queue(queue).push([{"data": 1}, {"data": 2}])
    [first, second] = await client.queue(queue).batch(2).wait(False).pop()
    assert (await client.ack(first, "dlq", {"error": "not ours"}))["success"]
    dead = await client.queue(queue).dlq().get()
    assert [message["data"] for message in dead["messages"]] == [1]
    assert (await client.ack(second))["success"]
    assert await client.queue(queue).batch(2).wait(False).pop() == []


async def each_group_has_its_own_dead_letters(client, queue):
    await client.queue(queue).config({"retry_limit": 0}).create()
    await client.queue(queue).push([{"data": 1}])
    [message] = await client.queue(queue).group("strict").wait(False).pop()
    await client.ack(message, False, {"group": "strict", "error": "refused"})
    assert (await client.queue(queue).dlq("strict").get())["total"] == 1
    assert (await client.queue(queue).dlq("lenient").get())["total"] == 0
    assert len(await client.queue(queue).group("lenient").wait(False).pop()) == 1


async def a_dead_letter_is_delivered_again_on_demand(client, queue):
    await _fail_until_dead(client, queue, retry_limit=0)
    [dead] = (await client.queue(queue).dlq().get())["messages"]
    await client.admin.retry_message(dead["partitionId"], dead["transactionId"])
    popped = await client.queue(queue).batch(10).wait(False).pop()
    assert [message["data"] for message in popped] == ["fine", {"poison": True}], popped


async def a_nack_is_not_swallowed_by_a_later_ack_of_the_same_call(client, queue):
    await client.queue(queue).push([{"data": n} for n in range(5)])
    popped = await client.queue(queue).batch(5).wait(False).pop()
    for message in popped:
        message["_status"] = "completed"
    popped[1]["_status"] = "failed"
    await client.ack(popped)
    again = await client.queue(queue).batch(5).wait(False).pop()
    assert [message["data"] for message in again] == [1, 2, 3, 4], again
