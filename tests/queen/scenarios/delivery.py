"""Push, pop, ack and consume."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

PAYLOADS: list[Any] = [
    {"total": 42, "tags": ["a", {"b": None}]},
    [],
    {},
    None,
    'text \u0000 \U0001f389 "quoted"',
    0,
    -1.5e300,
    True,
]


async def messages_come_back_as_they_were_pushed(client, queue):
    pushed = await client.queue(queue).partition("lane 7").push([{"data": payload} for payload in PAYLOADS])
    assert [result["status"] for result in pushed] == ["queued"] * len(PAYLOADS), pushed
    popped = await client.queue(queue).partition("lane 7").batch(50).wait(False).pop()
    assert [message["data"] for message in popped] == PAYLOADS, popped
    assert [message["id"] for message in popped] == [result["message_id"] for result in pushed]
    assert {message["partition"] for message in popped} == {"lane 7"}
    assert len({message["leaseId"] for message in popped}) == 1
    assert all(datetime.fromisoformat(message["createdAt"]).tzinfo for message in popped)


async def a_repeated_transaction_id_is_stored_once(client, queue):
    item = {"transactionId": "order-9137", "data": 1}
    [first] = await client.queue(queue).push([item])
    [again] = await client.queue(queue).push([item])
    [elsewhere] = await client.queue(queue).partition("other").push([item])
    assert (first["status"], again["status"], elsewhere["status"]) == ("queued", "duplicate", "queued")
    assert again["message_id"] == first["message_id"]
    assert len(await client.queue(queue).batch(10).partitions(10).wait(False).pop()) == 2


async def a_waiting_pop_is_answered_by_the_push_it_waited_for(client, queue):
    waiting = asyncio.create_task(client.queue(queue).batch(1).wait(True).timeout_millis(10_000).pop())
    await asyncio.sleep(0.2)
    await client.queue(queue).push([{"data": "late"}])
    [message] = await waiting
    assert message["data"] == "late"
    assert (await client.ack(message))["success"]


async def an_empty_pop_is_an_empty_list(client, queue):
    assert await client.queue(queue).wait(False).pop() == []
    assert await client.queue(queue).partition("nowhere").wait(False).pop() == []
    assert await client.queue(queue).wait(True).timeout_millis(100).pop() == []


async def a_pop_by_namespace_and_task_finds_the_queue(client, queue):
    await client.queue(queue).namespace(f"{queue}-ns").task("ship").create()
    await client.queue(queue).push([{"data": 7}])
    [message] = await client.queue().namespace(f"{queue}-ns").task("ship").wait(False).pop()
    assert message["data"] == 7
    assert (await client.ack(message))["success"]


async def one_pop_takes_many_partitions_under_one_lease(client, queue):
    for lane in range(4):
        await client.queue(queue).partition(f"p{lane}").push([{"data": [lane, n]} for n in range(3)])
    popped = await client.queue(queue).batch(100).partitions(4).wait(False).pop()
    assert sorted(message["data"] for message in popped) == [[lane, n] for lane in range(4) for n in range(3)]
    assert len({message["leaseId"] for message in popped}) == 1
    assert len({message["partitionId"] for message in popped}) == 4
    acked = await client.ack(popped)
    assert acked["success"], acked
    assert await client.queue(queue).batch(100).partitions(4).wait(False).pop() == []


async def consume_hands_over_in_order_and_acks(client, queue):
    await client.queue(queue).push([{"data": n} for n in range(60)])
    seen = []

    async def one(message):
        seen.append(message["data"])

    async def many(messages):
        seen.extend(message["data"] for message in messages)

    await client.queue(queue).batch(10).limit(30).each().consume(one)
    await client.queue(queue).batch(10).limit(30).wait(False).consume(many)
    assert seen == list(range(60)), seen
    assert await client.queue(queue).batch(10).wait(False).pop() == []


async def concurrent_consumers_share_partitions_and_keep_their_order(client, queue):
    for n in range(5):
        await asyncio.gather(
            *(client.queue(queue).partition(f"p{lane}").push([{"data": [lane, n]}]) for lane in range(8))
        )
    seen = []
    enough = asyncio.Event()

    async def handle(message):
        await asyncio.sleep(0)
        seen.append(tuple(message["data"]))
        if len(seen) == 40:
            enough.set()

    await client.queue(queue).concurrency(4).batch(3).timeout_millis(500).each().consume(handle, signal=enough)
    assert len(seen) == len(set(seen)) == 40, seen
    for lane in range(8):
        assert [n for at, n in seen if at == lane] == list(range(5)), seen


async def a_handler_that_raises_sees_the_message_again(client, queue):
    await client.queue(queue).push([{"data": "fragile"}])
    attempts = []

    async def handle(message):
        attempts.append(message["data"])
        if len(attempts) < 3:
            raise ValueError("not yet")

    await client.queue(queue).batch(1).wait(False).limit(3).each().consume(handle)
    assert attempts == ["fragile"] * 3
    assert await client.queue(queue).wait(False).pop() == []


async def a_refused_batch_ack_says_so_for_each_message(client, queue):
    await client.queue(queue).push([{"data": 1}, {"data": 2}])
    popped = await client.queue(queue).batch(2).wait(False).pop()
    strange = [{**message, "leaseId": "01a00000-0000-7000-8000-000000000000"} for message in popped]
    refused = await client.ack(strange)
    assert [one["success"] for one in refused["results"]] == [False, False], refused
    assert all("lease" in one["error"].lower() for one in refused["results"]), refused
    accepted = await client.ack(popped)
    assert [one["success"] for one in accepted["results"]] == [True, True], accepted


async def a_configured_queue_answers_its_options(client, queue):
    options = {
        "lease_time": 61,
        "retry_limit": 5,
        "priority": 7,
        "max_size": 5000,
        "delayed_processing": 1,
        "window_buffer": 2,
        "retention_seconds": 3600,
        "dlq_after_max_retries": True,
    }
    answer = await client.queue(queue).config(options).create()
    assert answer["configured"] is True
    echoed = answer["options"]
    assert (echoed["leaseTime"], echoed["retryLimit"], echoed["priority"], echoed["maxSize"]) == (61, 5, 7, 5000)
    assert (echoed["delayedProcessing"], echoed["windowBuffer"], echoed["retentionSeconds"]) == (1, 2, 3600)
    assert echoed["dlqAfterMaxRetries"] is True
    assert (await client.queue(queue).delete())["deleted"] is True


async def delayed_messages_and_debounced_partitions_come_later(client, queue):
    await client.queue(queue).config({"delayed_processing": 2}).create()
    await client.queue(f"{queue}-window").config({"window_buffer": 2}).create()
    await client.queue(queue).push([{"data": "delayed"}])
    await client.queue(f"{queue}-window").push([{"data": n} for n in range(3)])
    assert await client.queue(queue).wait(False).pop() == []
    assert await client.queue(f"{queue}-window").batch(9).wait(False).pop() == []
    [delayed] = await client.queue(queue).wait(True).timeout_millis(10_000).pop()
    together = await client.queue(f"{queue}-window").batch(9).wait(True).timeout_millis(10_000).pop()
    assert delayed["data"] == "delayed"
    assert [message["data"] for message in together] == [0, 1, 2]


async def a_full_queue_refuses_a_push(client, queue, url):
    await client.queue(queue).config({"max_size": 2}).create()
    await client.queue(queue).push([{"data": 1}, {"data": 2}])
    # The newer client retries ten times, five seconds apart, unless configured otherwise.
    hasty = type(client)({"urls": [url], "retry_429": {"max_attempts": 1}})
    refused = ""
    try:
        await hasty.queue(queue).push([{"data": 3}])
    except Exception as error:
        refused = str(error)
    await hasty.close()
    assert refused, "the push was taken"
    [first, second] = await client.queue(queue).batch(5).wait(False).pop()
    await client.ack([first, second])
    assert (await client.queue(queue).push([{"data": 3}]))[0]["status"] == "queued"
