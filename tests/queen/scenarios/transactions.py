"""Acks and pushes that are applied together or not at all."""

from __future__ import annotations

import asyncio


async def acks_and_pushes_happen_together(client, queue):
    await client.queue(queue).push([{"data": n} for n in (1, 2, 3)])
    popped = await client.queue(queue).batch(3).wait(False).pop()
    transaction = client.transaction()
    for message in popped:
        transaction = transaction.ack(message)
    done = await transaction.queue(f"{queue}-sum").partition("total").push([{"data": {"sum": 6}}]).commit()
    assert done["success"] is True, done
    assert await client.queue(queue).batch(3).wait(False).pop() == []
    [total] = await client.queue(f"{queue}-sum").wait(False).pop()
    assert (total["data"], total["partition"]) == ({"sum": 6}, "total")


async def a_refused_transaction_changes_nothing(client, queue):
    await client.queue(queue).config({"lease_time": 2}).create()
    await client.queue(queue).push([{"data": 1}])
    [message] = await client.queue(queue).wait(False).pop()
    unknown = {**message, "transactionId": "never-pushed"}
    refused = None
    try:
        await client.transaction().queue(f"{queue}-out").push([{"data": 2}]).ack(message).ack(unknown).commit()
    except Exception as error:
        refused = str(error)
    assert refused, "the transaction was taken"
    assert await client.queue(f"{queue}-out").wait(False).pop() == []
    [again] = await client.queue(queue).wait(True).timeout_millis(5000).pop()
    assert again["transactionId"] == message["transactionId"]


async def a_transaction_under_an_expired_lease_is_refused(client, queue):
    await client.queue(queue).config({"lease_time": 2}).create()
    await client.queue(queue).push([{"data": 1}])
    [late] = await client.queue(queue).wait(False).pop()
    [taken] = await client.queue(queue).wait(True).timeout_millis(5000).pop()
    assert taken["transactionId"] == late["transactionId"]
    refused = None
    try:
        await client.transaction().ack(late).queue(f"{queue}-out").push([{"data": 2}]).commit()
    except Exception as error:
        refused = str(error)
    assert refused, "the transaction was taken"
    assert "rolled back" in refused
    assert await client.queue(f"{queue}-out").wait(False).pop() == []
    assert (await client.ack(taken))["success"]


async def a_transaction_of_a_group_moves_that_group_only(client, queue):
    await client.queue(queue).push([{"data": 1}])
    [message] = await client.queue(queue).group("mover").wait(False).pop()
    await (
        client.transaction()
        .ack(message, "completed", {"consumer_group": "mover"})
        .queue(f"{queue}-out")
        .push([{"data": 2}])
        .commit()
    )
    assert await client.queue(queue).group("mover").wait(False).pop() == []
    assert len(await client.queue(queue).wait(False).pop()) == 1


async def a_failed_ack_in_a_transaction_is_a_dead_letter(client, queue):
    await client.queue(queue).config({"retry_limit": 0}).create()
    await client.queue(queue).push([{"data": 1}])
    [message] = await client.queue(queue).wait(False).pop()
    await client.transaction().ack(message, "failed").queue(f"{queue}-out").push([{"data": "failed"}]).commit()
    await asyncio.sleep(0)
    assert await client.queue(queue).wait(False).pop() == []
    assert (await client.queue(queue).dlq().get())["total"] == 1
