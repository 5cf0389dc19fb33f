"""Durability: answered calls survive a reopened store, a killed process and a lost connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlane.errors import ShuttingDown, StoreUnsafe, Unavailable
from fairlane.model.group import Seek, Subscription
from fairlane.model.names import DEFAULT_TENANT
from fairlane.store.contract.values import DeadFilter, Duplicates, PopCall, PopClaim, Renewal
from tests.conformance.backends import Row
from tests.conformance.harness import Harness


class Process:
    """A running process of `tests.conformance.process`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> Any:
        """Return the next line of output, or None at its end."""
        assert self._process.stdout is not None
        text = await self._process.stdout.readline()
        return json.loads(text) if text else None

    async def lines(self) -> list[Any]:
        told = []
        while (line := await self.line()) is not None:
            told.append(line)
        return told

    def kill(self) -> None:
        self._process.kill()


@contextlib.asynccontextmanager
async def process(harness: Harness, *arguments: str, ahead: int | None = None) -> AsyncIterator[Process]:
    verb, *rest = arguments
    options = json.dumps({**harness.backend.options, "ahead": ahead})
    command = [sys.executable, "-m", "tests.conformance.process", verb, harness.url, options, *rest]
    started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        yield Process(started)
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await started.communicate()


async def test_everything_is_there_after_a_reopening(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=1, lease_seconds=60, max_size=20)
    group = await harness.group(queue)
    fresh = await harness.group(queue, "fresh", Subscription("new"))
    ids = ["text", harness.mint()]
    await harness.push(queue, ["bad", "good"], partition="a", ids=ids)
    for _ in range(2):
        await harness.nack(await harness.pop(queue, group, batch=1), error="gone bad")
    await harness.push(queue, ["failing", "next"], partition="b")
    b = await harness.partition(queue, "b")
    await harness.nack(await harness.pop(queue, group, partition=b.id), error="not yet")
    held = await harness.pop(queue, group, partition=(await harness.partition(queue, "a")).id)
    await harness.apply(harness.ordered_ack(await harness.pop(queue, fresh), 1, results=[(0, b'"r"')]))
    before = await whole(harness, queue.id)
    depth = await harness.store.queues.depth(queue.id)

    await harness.reopen()
    assert await harness.store.queues.get(DEFAULT_TENANT, queue.name) == queue
    assert await whole(harness, queue.id) == before
    assert await harness.store.queues.depth(queue.id) == depth
    assert isinstance(await harness.try_push(queue, [0], partition="a", ids=ids[:1]), Duplicates)
    assert isinstance(await harness.try_push(queue, [0], partition="a", ids=ids[1:]), Duplicates)
    assert not await harness.pop(queue, group, partition=held.lane.partition), "the lease is honoured"
    assert (await harness.ack(held)).released
    taken = await harness.pop(queue, group)
    assert (taken.data, taken.lane.attempts) == (["failing", "next"], 1)


async def whole(harness: Harness, queue_id: int) -> Any:
    """Return the complete visible state of a queue."""
    groups = await harness.store.groups.all(queue_id)
    lanes = [await harness.store.groups.lanes(group.id) for group in groups]
    partitions = await harness.store.statistics.partitions(queue_id)
    segments = [await harness.store.messages.read(one.id, one.start, one.head) for one in partitions]
    letters = await harness.store.dead_letters.page(queue_id, DeadFilter())
    return groups, lanes, partitions, segments, letters


async def test_time_does_not_fall_when_a_store_is_opened_with_an_earlier_clock(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    harness.clock.advance(86_400)
    first = await harness.push(queue, [0])
    await harness.reopen(own_clock=True)
    second = await harness.push(queue, [1])
    assert second.created_at >= first.created_at
    assert (second.first, await harness.drain(queue)) == (1, [0, 1])


async def test_a_closed_store_says_so(harness: Harness) -> None:
    queue = await harness.queue()
    group, partition = await harness.group(queue), await harness.partition(queue)
    slice_ = harness.slice(queue, partition, [0])
    taken = await harness.pop(queue, group)
    await harness.store.close()
    await harness.store.close()
    store = harness.store
    for call in (
        store.queues.get(DEFAULT_TENANT, queue.name),
        store.queues.ensure(DEFAULT_TENANT, queue.name),
        store.queues.all(DEFAULT_TENANT),
        store.queues.delete(DEFAULT_TENANT, queue.name),
        store.queues.ensure_partitions(queue.id, ["x"]),
        store.queues.depth(queue.id),
        store.messages.push([slice_]),
        store.messages.pop(PopCall(queue_id=queue.id, group_id=group.id, claims=[PopClaim(harness.token(), 1)])),
        store.messages.renew([Renewal(taken.lease, 5)]),
        store.messages.release(taken.lease),
        store.messages.read(partition.id, 0, 1),
        store.messages.find(partition.id, "x"),
        store.messages.transact([], [slice_]),
        store.groups.subscribe(queue.id, "g", Subscription()),
        store.groups.seek(group.id, Seek("end")),
        store.groups.lanes(group.id),
        store.dead_letters.page(queue.id, DeadFilter()),
        store.dead_letters.replay(queue.id, DeadFilter()),
    ):
        with pytest.raises(ShuttingDown):
            await call


async def test_a_schema_newer_than_the_code_is_refused(harness: Harness) -> None:
    await harness.store.close()
    await harness.backend.sql(
        "INSERT INTO fairlane.migrations (version, name, applied_at, needs) VALUES (9999, 'x', '2099-01-01', 9999)"
    )
    try:
        with pytest.raises(StoreUnsafe, match="9999"):
            await harness.backend.open(harness.clock)
    finally:
        await harness.backend.sql("DELETE FROM fairlane.migrations WHERE version = 9999")
    await harness.reopen()


async def test_every_push_answered_by_a_killed_process_is_there(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.store.close()
    async with process(harness, "push", queue, "a", "100000") as pusher:
        assert await pusher.line() == "open"
        answered = [await pusher.line() for _ in range(60)]
        pusher.kill()
        answered += await pusher.lines()
    await harness.reopen(own_clock=True)
    batch = await harness.broker.pop(queue, batch=10_000, partitions=3)
    stored = Counter(delivery.data[1] for delivery in batch)
    assert set(stored.values()) == {1}
    assert {n for _, n, status in answered if status == "queued"} <= set(stored)
    assert len(stored) <= len(answered) + 1, "one more may be stored than was answered"
    for n in (0, 59):
        again = await harness.broker.push(queue, 0, partition=f"p{n % 3}", transaction_id=f"a-{n}")
        assert again.status == "duplicate"


async def test_what_a_killed_consumer_held_goes_to_another(harness: Harness) -> None:
    await harness.reopen(own_clock=True)
    queue = harness.name("orders")
    await harness.broker.push(queue, "work")
    await harness.store.close()
    async with process(harness, "hold", queue, "1") as holder:
        assert [await holder.line(), await holder.line()] == ["open", "work"]
        holder.kill()
        await holder.lines()
    await harness.reopen(own_clock=True)
    assert not await harness.broker.pop(queue), "its lease lives on"
    [delivery] = await harness.broker.pop(queue, wait=10)
    assert (delivery.data, delivery.failed_attempts) == ("work", 1)


async def test_several_processes_share_the_work_or_are_refused_in_words(harness: Harness) -> None:
    await harness.reopen(own_clock=True)
    queue, total = harness.name("orders"), 90
    await harness.broker.queues.configure(queue)
    assert not await harness.broker.pop(queue)
    async with process(harness, "work", queue, str(total)) as one, process(harness, "work", queue, str(total)) as two:
        told = [[await worker.line()] for worker in (one, two)]
        for n in range(total):
            await harness.broker.push(queue, n, partition=f"p{n % 3}")
        for worker, lines in zip((one, two), told, strict=True):
            lines += await worker.lines()
    if not harness.backend.many_brokers:
        for [refusal] in told:
            assert refusal["refused"] == "store_unavailable"
            assert "is open in another broker" in refusal["because"]
        assert len(await harness.broker.pop(queue, batch=total, partitions=3)) == total, "and the first goes on"
        return
    assert [lines.pop(0) for lines in told] == ["open", "open"]
    seen = [(partition, position) for lines in told for partition, position, _ in lines]
    assert Counter(seen) == Counter({(f"p{p}", n): 1 for p in range(3) for n in range(total // 3)})
    for lines in told:
        for mine in ("p0", "p1", "p2"):
            positions = [position for partition, position, _ in lines if partition == mine]
            assert positions == sorted(positions)


async def test_a_push_whose_connection_is_cut_is_made_again(harness: Harness) -> None:
    queue = harness.name("orders")
    made = await harness.broker.push(queue, "first")
    assert made.partition is not None
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(made.partition)) as arrived:
        pushes = [tasks.create_task(harness.broker.push(queue, n)) for n in range(6)]
        await arrived(pushes[0])
        await harness.backend.cut_connections()
    assert {push.result().status for push in pushes} == {"queued"}
    await harness.reopen()
    batch = await harness.broker.pop(queue, batch=100)
    assert sorted(delivery.data for delivery in batch[1:]) == list(range(6))


async def test_pushes_amid_cut_connections_are_stored_once_or_reported(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)

    async def produce(name: str) -> list[str]:
        answered = []
        for n in range(12):
            with contextlib.suppress(Unavailable):
                outcome = await harness.broker.push(queue, f"{name}{n}", partition=name)
                assert outcome.status == "queued"
                answered.append(f"{name}{n}")
        return answered

    async with asyncio.TaskGroup() as tasks:
        producers = [tasks.create_task(produce(name)) for name in "abcd"]
        for _ in range(5):
            await asyncio.sleep(0.01)
            await harness.backend.cut_connections()
    await harness.reopen()
    batch = await harness.broker.pop(queue, batch=100, partitions=4)
    stored = Counter(delivery.data for delivery in batch)
    assert set(stored.values()) <= {1}, "none twice"
    assert {one for producer in producers for one in producer.result()} <= set(stored), "none lost"
