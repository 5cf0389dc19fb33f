"""Creation, deletion and limits that race with pushes inside the store, each stopped at its critical point."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from fairlane.model.group import Subscription
from fairlane.model.names import DEFAULT_TENANT
from fairlane.store.contract.values import Full, Gone, Stored
from tests.conformance.backends import Row
from tests.conformance.harness import Harness, answer
from tests.conformance.test_scheduled import append_due, schedule
from tests.until import until


async def no_rows(harness: Harness, partition_id: int) -> bool:
    """Return True once all rows of a partition are gone. The store may delete them later."""
    tables = ("segments", "cursors", "message_keys", "claims", "failures", "dead_letters", "scheduled_segments")
    counts = [f"(SELECT count(*) FROM fairlane.{table} WHERE partition_id = $1)" for table in tables]
    rows = await harness.backend.sql(f"SELECT {' + '.join(counts)}", partition_id)
    return bool(rows[0][0] == 0)


async def test_a_partition_and_a_group_born_together_know_each_other(harness: Harness) -> None:
    """The partition has read the groups when the group reads the partitions."""
    queue = await harness.queue()
    elder = await harness.group(queue, "elder")
    await harness.partition(queue, "first")
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor_to_be(elder.id)) as arrived:
        born = tasks.create_task(harness.store.queues.ensure_partitions(queue.id, ["new"]))
        await arrived(born)
        subscribed = tasks.create_task(harness.store.groups.subscribe(queue.id, "new", Subscription()))
        await arrived(born, subscribed)
    for group in (elder, subscribed.result()):
        lanes = await harness.store.groups.lanes(group.id)
        assert [lane.name for lane in lanes] == ["first", "new"]
    await harness.push(queue, ["x"], partition="new")
    assert await harness.drain(queue, subscribed.result()) == ["x"]


async def test_a_group_and_a_partition_born_together_know_each_other(harness: Harness) -> None:
    """The group has read the partitions when the partition reads the groups."""
    queue = await harness.queue()
    old = await harness.partition(queue, "b")
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(old.id)) as arrived:
        subscribed = tasks.create_task(harness.store.groups.subscribe(queue.id, "new", Subscription()))
        await arrived(subscribed)
        born = tasks.create_task(harness.store.queues.ensure_partitions(queue.id, ["a"]))
        await arrived(born, subscribed)
    lanes = await harness.store.groups.lanes(subscribed.result().id)
    assert [lane.name for lane in lanes] == ["a", "b"]


async def test_two_groups_of_one_name_born_together_are_one(harness: Harness) -> None:
    queue = await harness.queue()
    stores = [harness.store, await harness.open_second()]
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.queue(queue.id)) as arrived:
        births = [tasks.create_task(stores[n % 2].groups.subscribe(queue.id, "g", Subscription())) for n in range(4)]
        await arrived(*births)
    assert len({birth.result().id for birth in births}) == 1


async def test_two_partitions_or_queues_of_one_name_born_together_are_one(harness: Harness) -> None:
    queue = await harness.queue()
    name = harness.name("born")
    stores = [harness.store, await harness.open_second()]
    async with asyncio.TaskGroup() as tasks:
        births = [tasks.create_task(stores[n % 2].queues.ensure_partitions(queue.id, ["x", "y"])) for n in range(8)]
        queues = [tasks.create_task(stores[n % 2].queues.ensure(DEFAULT_TENANT, name)) for n in range(8)]
    assert len({tuple(birth.result()) for birth in births}) == 1
    assert len({made.result().id for made in queues}) == 1


async def test_a_push_behind_a_deletion_is_refused_and_leaves_nothing(harness: Harness) -> None:
    queue = await harness.queue()
    held, free = await harness.neighbours(queue, 2)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(held.id)) as arrived:
        deletion = tasks.create_task(harness.store.queues.delete(DEFAULT_TENANT, queue.name))
        await arrived(deletion)
        pushes = [
            tasks.create_task(answer(harness.store.messages.push([harness.slice(queue, lane, ["late"])])))
            for lane in (held, free)
        ]
        await arrived(deletion, *pushes)
    assert deletion.result() is True
    assert [push.result() for push in pushes] == [[Gone()], [Gone()]]
    for lane in (held, free):
        await until(partial(no_rows, harness, lane.id.id))


async def test_a_push_in_flight_when_its_queue_is_deleted_goes_with_it(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, group.id)) as arrived:
        push = tasks.create_task(answer(harness.store.messages.push([harness.slice(queue, partition, ["early"])])))
        await arrived(push)
        deletion = tasks.create_task(harness.store.queues.delete(DEFAULT_TENANT, queue.name))
        await arrived(push, deletion)
    assert deletion.result() is True
    assert isinstance(push.result()[0], Stored)
    await until(lambda: no_rows(harness, partition.id.id))
    again = await harness.store.queues.ensure(DEFAULT_TENANT, queue.name)
    assert await harness.store.statistics.partitions(again.id) == []


async def test_a_limit_set_while_a_push_is_in_flight_counts_it(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, group.id)) as arrived:
        push = tasks.create_task(answer(harness.store.messages.push([harness.slice(queue, partition, [0, 1])])))
        await arrived(push)
        limit = tasks.create_task(harness.configure(queue, max_size=3))
        await arrived(push, limit)
    assert isinstance(push.result()[0], Stored)
    assert await harness.store.queues.depth(queue.id) == 2
    assert await harness.try_push(limit.result(), [2, 3]) == Full(2, 3)


async def test_a_push_behind_a_limit_being_set_is_held_to_it(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partition.id)) as arrived:
        limit = tasks.create_task(harness.configure(queue, max_size=1))
        await arrived(limit)
        push = tasks.create_task(answer(harness.store.messages.push([harness.slice(queue, partition, [0, 1])])))
        await arrived(limit, push)
    assert push.result() == [Gone()], "its caller did not know of the limit and must look again"
    assert await harness.store.queues.depth(queue.id) == 0


@pytest.mark.parametrize("first", ["append", "verb"])
@pytest.mark.parametrize("verb", ["clear", "delete"])
async def test_a_queue_is_emptied_while_its_scheduled_messages_fall_due(
    harness: Harness, verb: str, first: str
) -> None:
    """One call holds its first locks when the other starts. Neither waits for a lock that the other needs."""
    before = len(harness.backend.deadlocks())
    queue, other = await harness.queue(), await harness.queue("other")
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    gate = await harness.partition(other, "gate")
    await harness.push(queue, ["there"])
    await schedule(harness, other, ["due"], seconds=1, lane=gate.name)
    await schedule(harness, queue, ["due"], seconds=1, lane=partition.name)
    harness.clock.advance(1)

    async def empty() -> object:
        if verb == "clear":
            return await harness.store.browse.clear(queue.id)
        return await harness.store.queues.delete(DEFAULT_TENANT, queue.name)

    held = Row.partition(gate.id) if first == "append" else Row.cursor(partition.id, group.id)
    async with asyncio.TaskGroup() as tasks, harness.hold(held) as arrived:
        calls = [append_due(harness.store), empty()]
        met: list[asyncio.Task[object]] = []
        for call in calls if first == "append" else calls[::-1]:
            met.append(tasks.create_task(call))
            await arrived(*met)
    assert len(harness.backend.deadlocks()) == before
    assert await harness.store.scheduled.page(queue) == []
    assert await harness.drain(other) == ["due"]
    if verb == "clear":
        assert await harness.drain(queue, group) == []
        await harness.push(queue, ["new"])
        assert await harness.drain(queue, group) == ["new"]
    else:
        await until(partial(no_rows, harness, partition.id.id))
