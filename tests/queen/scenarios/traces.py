"""Notes that a handler leaves about a message."""

from __future__ import annotations


async def a_handlers_traces_are_found_by_message_and_by_name(client, queue):
    name = f"{queue}-trace"
    await client.queue(queue).push([{"data": {"order": 7}, "transactionId": "t1"}])
    kept = {}

    async def handle(message):
        kept.update(message)
        for event in ("received", "priced"):
            answer = await message["trace"](
                {"traceName": [name, f"{name}-2"], "eventType": event, "data": {"at": event}}
            )
            assert answer.get("success") is not False, answer

    await client.queue(queue).batch(1).limit(1).each().consume(handle)
    of_message = (await client.admin.get_traces_for_message(kept["partitionId"], "t1"))["traces"]
    assert [trace["event_type"] for trace in of_message] == ["received", "priced"], of_message
    assert of_message[0]["data"] == {"at": "received"}
    assert sorted(of_message[0]["trace_names"]) == [name, f"{name}-2"]
    by_name = await client.admin.get_traces_by_name(name)
    assert by_name["total"] == 2, by_name
    assert {trace["queue_name"] for trace in by_name["traces"]} == {queue}
    assert {trace["transaction_id"] for trace in by_name["traces"]} == {"t1"}
    names = (await client.admin.get_trace_names(limit=100))["trace_names"]
    assert name in [one["trace_name"] for one in names], names
