"""`fairlane mirror`: a queue is copied between running brokers, in order and once, whatever dies."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fairlane import Client, PushItem
from tests.broker_process import FAIRLANE, BrokerProcess
from tests.moving.test_backup import command, running
from tests.spec.samples import compiled
from tests.until import until

TRACE = "0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10"


@contextlib.asynccontextmanager
async def two(tmp_path: Path) -> AsyncIterator[tuple[BrokerProcess, BrokerProcess]]:
    """Run two brokers."""
    async with running(tmp_path, "here") as here, running(tmp_path, "there") as there:
        yield here, there


async def read(client: Client, queue: str, count: int) -> dict[str, list[Any]]:
    """Read this many messages of a queue, by partition."""
    found: dict[str, list[Any]] = defaultdict(list)
    while sum(map(len, found.values())) < count:
        batch = await client.pop(queue, batch=500, partitions=50, wait=30)
        for message in batch:
            found[message.partition].append(message.data)
        await client.ack(batch)
    assert not await client.pop(queue), "nothing was copied twice"
    return found


async def test_a_mirror_copies_each_partition_in_order_with_all_fields(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there), Client(here.url) as source, Client(there.url) as target:
        await source.queues.configure("orders", lease_seconds=77)
        for lane in range(5):
            items = [PushItem(queue="orders", partition=f"p{lane}", payload=b"%d" % n) for n in range(40)]
            await source.push_many(items)
        await source.push("orders", 0, partition="x", transaction_id="given", type="order", headers={"k": "v"})
        await source.push("orders", 1, partition="x", trace_id=TRACE, max_attempts=9)
        text = await command("mirror", "orders", "--from", here.url, "--to", there.url, "--idle-seconds", "1")
        assert "Mirrored 202 messages" in text
        assert (await target.queues.show("orders")).options["leaseTime"] == 77
        [first, second] = await target.pop("orders", group="look", partition="x", batch=9)
        assert (first.transaction_id, first.type, first.headers) == ("given", "order", {"k": "v"})
        assert (second.trace_id, second.max_attempts) == (TRACE, 9)
        again = await command("mirror", "orders", "--from", here.url, "--to", there.url, "--idle-seconds", "1")
        assert "Mirrored 0 messages" in again, "it goes on where it was"
        twice = ["mirror", "orders", "--from", here.url, "--to", there.url, "--idle-seconds", "1", "--group", "other"]
        assert "Mirrored 202 messages" in await command(*twice)
        found = await read(target, "orders", 202)
        assert found == {**{f"p{lane}": [*range(40)] for lane in range(5)}, "x": [0, 1]}


async def test_a_mirror_that_is_killed_and_a_target_that_restarts_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there), Client(here.url) as source, Client(there.url) as target:
        await source.queues.configure("orders", lease_seconds=1, retry_limit=100)
        pushed, enough = 0, asyncio.Event()

        async def produce() -> None:
            nonlocal pushed
            while not enough.is_set():
                items = [PushItem(queue="orders", partition=f"p{lane}", payload=b"%d" % pushed) for lane in range(3)]
                await source.push_many(items)
                pushed += 1

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen([FAIRLANE, "mirror", "orders", "--from", here.url, "--to", there.url])

        async def copied() -> int:
            shown = [queue.messages.total for queue in await target.queues.all() if queue.name == "orders"]
            return sum(shown)

        producer = asyncio.create_task(produce())
        mirror = await asyncio.to_thread(start)
        for _ in range(2):
            before = await copied()
            await until(partial(more_than, copied, before))
            mirror.kill()
            await asyncio.to_thread(mirror.wait)
            mirror = await asyncio.to_thread(start)
        await asyncio.to_thread(there.stop)
        more = pushed
        await until(lambda: pushed > more)
        await asyncio.to_thread(there.start)
        enough.set()
        await producer
        await until(lambda: more_than(copied, 3 * pushed - 1))
        mirror.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(mirror.wait) == 0
        found = await read(target, "orders", 3 * pushed)
        assert found == {f"p{lane}": [*range(pushed)] for lane in range(3)}


async def more_than(count: Any, least: int) -> bool:
    return bool(await count() > least)


async def test_a_message_that_the_target_refuses_is_dead_lettered_on_the_source(tmp_path: Path) -> None:
    spec = compiled("app Shop { queue orders { message_type { id: string } } }").spec
    async with two(tmp_path) as (here, there), Client(here.url) as source, Client(there.url) as target:
        await source.queues.configure("orders", retry_limit=0)
        await target.specs.apply(msgspec.json.encode(spec), consent=True)
        lanes = {"a": [b'{"id":"1"}', b'{"id":2}', b'{"id":"3"}'], "b": [b'{"id":"1"}'] * 2}
        for lane, payloads in lanes.items():
            await source.push_many([PushItem(queue="orders", partition=lane, payload=one) for one in payloads])
        text = await command("mirror", "orders", "--from", here.url, "--to", there.url, "--idle-seconds", "2")
        assert "refused" in text
        assert await read(target, "orders", 4) == {"a": [{"id": "1"}, {"id": "3"}], "b": [{"id": "1"}] * 2}
        [letter] = await source.dead_letters.page("orders")
        assert (letter.group, "target refused it" in letter.error) == ("mirror", True)


async def test_a_mirror_needs_two_brokers_and_a_queue(tmp_path: Path) -> None:
    async with two(tmp_path) as (here, there):
        assert "two" in await command("mirror", "orders", "--from", here.url, "--to", here.url, code=2)
        assert "not found" in await command("mirror", "no", "--from", here.url, "--to", there.url, code=2)
