"""Consumer groups: fan-out, where a new one begins, seeks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime


async def _data(client, queue, group, **more):
    asked = client.queue(queue).group(group).batch(100).partitions(10).wait(False)
    for option, value in more.items():
        asked = getattr(asked, option)(value)
    popped = await asked.pop()
    if popped:
        assert (await client.ack(popped, True, {"group": group}))["success"]
    return sorted(message["data"] for message in popped)


async def every_group_gets_every_message(client, queue):
    await client.queue(queue).push([{"data": n} for n in range(3)])
    await client.queue(queue).partition("other").push([{"data": 3}])
    for group in ("billing", "search"):
        assert await _data(client, queue, group, subscription_mode="all") == [0, 1, 2, 3]
        assert await _data(client, queue, group) == []
    assert len(await client.queue(queue).batch(10).partitions(10).wait(False).pop()) == 4


async def a_group_for_new_messages_skips_the_history(client, queue):
    await client.queue(queue).push([{"data": "old"}])
    await asyncio.sleep(0.01)
    assert await _data(client, queue, "late", subscription_mode="new") == []
    assert await _data(client, queue, "now", subscription_from="now") == []
    await client.queue(queue).push([{"data": "fresh"}])
    await client.queue(queue).partition("made later").push([{"data": "more"}])
    assert await _data(client, queue, "late", subscription_mode="new") == ["fresh", "more"]
    assert await _data(client, queue, "now") == ["fresh", "more"]


async def a_group_for_new_messages_may_be_there_before_the_queue(client, queue):
    assert await _data(client, queue, "early", subscription_mode="new") == []
    await client.queue(queue).push([{"data": "first"}])
    assert await _data(client, queue, "early", subscription_mode="new") == ["first"]


async def a_group_may_begin_at_a_time(client, queue):
    await client.queue(queue).push([{"data": "before"}])
    await asyncio.sleep(0.02)
    then = datetime.now(UTC).isoformat()
    await asyncio.sleep(0.02)
    await client.queue(queue).push([{"data": "after"}])
    assert await _data(client, queue, "timed", subscription_from=then) == ["after"]


async def a_deleted_group_begins_again(client, queue):
    await client.queue(queue).push([{"data": 1}])
    group = f"{queue}-group"
    assert await _data(client, queue, group) == [1]
    await client.delete_consumer_group(group)
    assert await _data(client, queue, group) == [1]


async def a_group_can_be_sent_back_and_to_the_end(client, queue):
    begun = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    await client.queue(queue).push([{"data": 1}, {"data": 2}])
    group = f"{queue}-group"
    assert await _data(client, queue, group) == [1, 2]
    sought = await client.admin.seek_consumer_group(group, queue, {"timestamp": begun})
    assert sought["success"] is True, sought
    assert await _data(client, queue, group) == [1, 2]
    await client.queue(queue).push([{"data": 3}])
    await client.admin.seek_consumer_group(group, queue, {"toEnd": True})
    assert await _data(client, queue, group) == []


async def the_groups_of_a_queue_are_listed(client, queue):
    await client.queue(queue).push([{"data": 1}])
    group = f"{queue}-group"
    await _data(client, queue, group)
    assert any(one["name"] == group and queue in one["topics"] for one in await client.admin.list_consumer_groups())
    detail = await client.admin.get_consumer_group(group)
    assert [lane["partition"] for lane in detail[queue]["partitions"]] == ["Default"], detail
    assert isinstance(await client.admin.get_lagging_consumers(0), list)
    await client.admin.refresh_consumer_stats()
    moved = await client.update_consumer_group_timestamp(group, "2026-01-31T12:00:00Z")
    assert moved["success"] is True, moved
    gone = await client.admin.delete_consumer_group_for_queue(group, queue)
    assert gone["success"] is True, gone
