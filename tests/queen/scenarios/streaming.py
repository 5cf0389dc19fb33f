"""The clients' stream processing: state, sink and ack in one cycle."""

from __future__ import annotations

import time
from typing import Any

from queen.streams import Stream
from queen.streams.helpers.rate_limiter import token_bucket_gate


async def _drain(client, queue, count, seconds=15.0):
    seen: list[Any] = []
    give_up_at = time.monotonic() + seconds
    while len(seen) < count and time.monotonic() < give_up_at:
        popped = await client.queue(queue).batch(500).partitions(10).wait(True).timeout_millis(500).pop()
        if popped:
            seen += [message["data"] for message in popped]
            await client.ack(popped)
    return seen


async def _run(stream, name, url):
    errors = []
    runner = await stream.run(query_id=name, url=url, max_wait_millis=200, on_error=lambda *error: errors.append(error))
    return runner, errors


async def a_mapped_stream_passes_everything_on_once_and_in_order(client, queue, url):
    out = f"{queue}-out"
    await client.queue(queue).push([{"data": {"n": n}} for n in range(200)])
    stream = (
        Stream.from_(client.queue(queue)).map(lambda message: {"n": message["data"]["n"] * 2}).to(client.queue(out))
    )
    runner, errors = await _run(stream, queue, url)
    seen = await _drain(client, out, 200)
    await runner.stop()
    assert seen == [{"n": 2 * n} for n in range(200)], (len(seen), seen[:3])
    assert errors == []
    assert await client.queue(out).wait(False).pop() == []


async def a_stopped_stream_goes_on_where_it_was(client, queue, url):
    out = f"{queue}-out"
    seen = []
    for part in (range(10), range(10, 20)):
        await client.queue(queue).push([{"data": {"n": n}} for n in part])
        stream = (
            Stream.from_(client.queue(queue)).map(lambda message: {"n": message["data"]["n"]}).to(client.queue(out))
        )
        runner, errors = await _run(stream, queue, url)
        seen += await _drain(client, out, 10)
        await runner.stop()
        assert errors == []
    assert seen == [{"n": n} for n in range(20)], seen


async def a_windowed_stream_counts_every_message_once(client, queue, url):
    out = f"{queue}-out"
    # The flush of idle windows and the cycles read the same state concurrently, and the later one is refused.
    stream = (
        Stream.from_(client.queue(queue))
        .window_tumbling(seconds=1, idle_flush_ms=1, event_time=lambda message: message["data"]["at_ms"])
        .reduce(lambda count, message: count + 1, 0)
        .to(client.queue(out))
    )
    runner, errors = await _run(stream, queue, url)
    for second in range(4):
        await client.queue(queue).push([{"data": {"at_ms": second * 1000 + n}} for n in range(second + 1)])
    seen = await _drain(client, out, 3)
    await runner.stop()
    assert [one["value"] for one in seen] == [1, 2, 3], seen
    assert [error for error in errors if "rolled back" not in str(error[0])] == []


async def another_pipeline_under_the_same_name_is_refused(client, queue, url):
    await client.queue(queue).create()
    first = Stream.from_(client.queue(queue)).map(lambda message: message).to(client.queue(f"{queue}-out"))
    runner, _ = await _run(first, queue, url)
    await runner.stop()
    other = Stream.from_(client.queue(queue)).filter(lambda message: True).to(client.queue(f"{queue}-out"))
    refused = ""
    try:
        runner, _ = await _run(other, queue, url)
        await runner.stop()
    except Exception as error:
        refused = str(error)
    assert "config_hash mismatch" in refused, refused
    runner = await other.run(query_id=queue, url=url, reset=True, max_wait_millis=100)
    await runner.stop()


async def a_gated_stream_holds_back_and_loses_nothing(client, queue, url):
    out = f"{queue}-out"
    await client.queue(queue).config({"lease_time": 1}).create()
    await client.queue(queue).push([{"data": {"n": n}} for n in range(8)])
    gate = token_bucket_gate(capacity=4, refill_per_sec=4)
    runner, _ = await _run(Stream.from_(client.queue(queue)).gate(gate).to(client.queue(out)), queue, url)
    seen = await _drain(client, out, 8)
    await runner.stop()
    assert [one["n"] for one in seen] == list(range(8)), seen
