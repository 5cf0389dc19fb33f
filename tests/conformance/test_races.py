"""Concurrent calls inside the store: each is stopped between its check and its change, and the guarantee holds.

On SQLite there is one writer, so the calls only queue up. On PostgreSQL they really overlap.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fairlane.model.group import Subscription
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.segment import ids_of
from fairlane.store.contract.values import DeadFilter, Duplicates, Full, Stored
from tests.conformance.backends import Row
from tests.conformance.harness import Harness, Taken, answer


async def test_a_push_that_waits_to_commit_keeps_later_ones_behind_it(harness: Harness) -> None:
    """The first push has its positions and is stopped before its commit. The second must not pass it."""
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    push = harness.store.messages.push
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, group.id)) as arrived:
        first = tasks.create_task(answer(push([harness.slice(queue, partition, ["first"])])))
        await arrived(first)
        second = tasks.create_task(answer(push([harness.slice(queue, partition, ["second"])])))
        await arrived(first, second)
        assert await harness.store.messages.read(partition.id, 0, 10) == []
    assert [result.first for [result] in (first.result(), second.result()) if isinstance(result, Stored)] == [0, 1]
    assert await harness.drain(queue, group) == ["first", "second"]


async def test_a_push_that_began_first_and_commits_last_is_not_skipped(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    gate, partition = await harness.neighbours(queue, 2)
    push = harness.store.messages.push
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(gate.id)) as arrived:
        slow = [harness.slice(queue, gate, ["gate"]), harness.slice(queue, partition, ["slow"])]
        began_first = tasks.create_task(answer(push(slow)))
        await arrived(began_first)
        harness.clock.advance(1)
        quick = tasks.create_task(answer(push([harness.slice(queue, partition, ["quick"])])))
        await arrived(began_first, quick)
        if quick.done():
            taken = await harness.pop(queue, group, partition=partition.id)
            assert taken.data == ["quick"]
            await harness.ack(taken)
    [_, late], [early] = began_first.result(), quick.result()
    assert isinstance(late, Stored)
    assert isinstance(early, Stored)
    segments = await harness.store.messages.read(partition.id, 0, 2)
    times = [segment.created_at for segment in segments]
    assert times == sorted(times), "time never falls along a partition"
    assert {late.first, early.first} == {0, 1}
    expected = {"gate", "slow"} if early.first == 0 and harness.backend.many_brokers else {"gate", "slow", "quick"}
    assert set(await harness.drain(queue, group)) == expected


@pytest.mark.parametrize("kind", ["text", "uuid7"])
async def test_of_eight_pushes_of_one_id_one_is_stored_and_seven_name_it(harness: Harness, kind: str) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    stores = [harness.store, await harness.open_second()]
    transaction_id = "the id" if kind == "text" else harness.mint()
    slices = [harness.slice(queue, partition, [n], ids=[transaction_id]) for n in range(8)]
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partition.id)) as arrived:
        pushes = [tasks.create_task(answer(stores[n % 2].messages.push([slices[n]]))) for n in range(8)]
        await arrived(*pushes)
    results = [push.result()[0] for push in pushes]
    assert Counter(type(result) for result in results) == {Stored: 1, Duplicates: 7}
    winner = next(n for n, result in enumerate(results) if isinstance(result, Stored))
    message_id, _ = ids_of(slices[winner].fragments[0])
    named = {one.message_id for result in results if isinstance(result, Duplicates) for one in result.found}
    assert named == {message_id}
    assert await harness.drain(queue) == [winner]


async def test_capacity_is_exact_under_32_pushers(harness: Harness) -> None:
    queue = await harness.queue(max_size=10)
    partitions = await harness.store.queues.ensure_partitions(queue.id, [f"p{n}" for n in range(16)])
    stores = [harness.store, await harness.open_second()]
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.queue(queue.id)) as arrived:
        pushes = [
            tasks.create_task(answer(stores[n % 2].messages.push([harness.slice(queue, partitions[n % 16], [n])])))
            for n in range(32)
        ]
        await arrived(*pushes[:8])
    results = [push.result()[0] for push in pushes]
    assert Counter(type(result) for result in results) == {Stored: 10, Full: 22}
    assert sorted(one.depth or 0 for one in results if isinstance(one, Stored)) == list(range(1, 11))
    assert await harness.store.queues.depth(queue.id) == 10
    assert len(await harness.drain(queue)) == 10
    assert await harness.store.queues.depth(queue.id) == 0


async def test_depth_is_exact_when_two_groups_finish_one_lane_at_once(harness: Harness) -> None:
    """Each group could miss the other's new cursor, so that neither counts the lane as finished.

    Each also finishes a lane of its own, so that both reach the counter with old data.
    """
    queue = await harness.queue(max_size=20)
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    both, of_one, of_two = await harness.neighbours(queue, 3)
    for lane in (both, of_one, of_two):
        await harness.push(queue, list(range(5)), partition=lane.name)
    for group, lane in ((one, of_two), (two, of_one)):
        await harness.ack(await harness.pop(queue, group, partition=lane.id))
    acks = [
        [harness.ordered_ack(await harness.pop(queue, group, partition=lane.id), 5) for lane in (both, own)]
        for group, own in ((one, of_one), (two, of_two))
    ]
    assert await harness.store.queues.depth(queue.id) == 15
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.queue(queue.id)) as arrived:
        running = [tasks.create_task(answer(harness.store.messages.ack(each))) for each in acks]
        await arrived(*running)
    assert all(acked.released for ack in running for acked in ack.result())
    assert await harness.store.queues.depth(queue.id) == 0


@pytest.mark.parametrize("named", [False, True], ids=["any_lane", "this_lane"])
async def test_pops_that_meet_at_a_lane_find_one_holder(harness: Harness, named: bool) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, ["a", "b"])
    partition = await harness.partition(queue)
    only = partition.id if named else None
    stores = [harness.store, await harness.open_second()]
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, group.id)) as arrived:
        pops = [
            tasks.create_task(harness.pop(queue, group, batch=1, partition=only, store=stores[n % 2])) for n in range(4)
        ]
        await arrived(*pops)
    holders = [pop.result() for pop in pops if pop.result()]
    assert len(holders) <= 1
    if not holders:
        holders = [await harness.pop(queue, group, batch=1)]
    assert holders[0].data == ["a"]
    assert (await harness.ack(holders[0])).state == "ok"
    assert await harness.drain(queue, group) == ["b"]


async def test_ten_consumers_on_one_partition_keep_global_order(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    total = 30
    await harness.push(queue, list(range(total)))
    stores = [harness.store, await harness.open_second()]
    seen: list[int] = []

    async def consume(number: int) -> None:
        while len(seen) < total:
            taken = await harness.pop(queue, group, batch=1, store=stores[number % 2])
            if taken:
                seen.extend(taken.data)
                assert (await harness.ack(taken, store=stores[(number + 1) % 2])).state == "ok"
            else:
                await asyncio.sleep(0.002)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(consume(number))
    assert seen == list(range(total))


async def test_an_ack_that_waited_while_its_lease_went_to_another_is_refused(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    group = await harness.group(queue)
    await harness.push(queue, ["a", "b"])
    slow = await harness.pop(queue, group)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(slow.lane.partition)) as arrived:
        ack = tasks.create_task(harness.ack(slow))
        await arrived(ack)
        harness.clock.advance(5)
        pop = tasks.create_task(harness.pop(queue, group, batch=1))
        await arrived(ack, pop)
    assert (ack.result().state, ack.result().repeated) == ("lost", False)
    assert pop.result().data == ["a"]
    assert (await harness.ack(pop.result())).state == "ok"
    assert await harness.drain(queue, group) == ["b"]


@pytest.mark.parametrize("verb", ["ack", "transact"])
async def test_acks_in_opposite_orders_never_deadlock(harness: Harness, verb: str) -> None:
    before = len(harness.backend.deadlocks())
    queue = await harness.queue()
    groups = [await harness.group(queue, name) for name in ("one", "two")]
    partitions = await harness.neighbours(queue, 4)
    rounds = 8
    await harness.store.messages.push(
        [harness.slice(queue, partition, list(range(rounds))) for partition in partitions]
    )
    stores = [harness.store, await harness.open_second()]

    async def settle(number: int, taken: list[Taken]) -> None:
        messages = stores[number].messages
        acks = [harness.ordered_ack(each, each.lane.upto) for each in taken]
        if number:
            acks.reverse()
        if verb == "ack":
            acked = await messages.ack(acks)
        else:
            slices = [
                harness.slice(queue, partition, ["x"]) for partition in (partitions[::-1] if number else partitions)
            ]
            acked, pushed = await messages.transact(acks, slices)
            assert all(isinstance(result, Stored) for result in pushed)
        assert all(one.state == "ok" for one in acked)

    for turn in range(rounds):
        taken: list[list[Taken]] = [[], []]
        for group, mine in zip(groups, taken, strict=True):
            for partition in partitions:
                mine.append(await harness.pop(queue, group, batch=1, partition=partition.id))
        async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partitions[1 + turn % 2].id)) as arrived:
            settling = [tasks.create_task(settle(number, taken[number])) for number in range(2)]
            await arrived(*settling)
    for group in groups:
        for partition in partitions:
            assert (await harness.lane(group, partition.id)).committed == rounds
    assert len(harness.backend.deadlocks()) == before


async def test_a_transaction_is_invisible_until_all_of_it_is_there(harness: Harness) -> None:
    """The ack is applied and the push is stopped before the commit."""
    source, target = await harness.queue("source"), await harness.queue("target")
    group, reader = await harness.group(source), await harness.group(target)
    partition = await harness.partition(target)
    await harness.push(source, ["in"])
    taken = await harness.pop(source, group)
    slices = [harness.slice(target, partition, ["out"])]
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, reader.id)) as arrived:
        work = harness.store.messages.transact([harness.ordered_ack(taken, 1)], slices)
        transaction = tasks.create_task(work)
        await arrived(transaction)
        assert await harness.store.messages.read(partition.id, 0, 1) == []
        assert (await harness.lane(group)).committed == 0
    assert transaction.result()[0][0].state == "ok"
    assert await harness.drain(target, reader) == ["out"]
    assert (await harness.lane(group)).committed == 1


async def test_a_dead_letter_is_replayed_once_however_many_ask(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    for n in range(3):
        await harness.push(queue, [n])
        await harness.nack(await harness.pop(queue, group))
    stores = [harness.store, await harness.open_second()]
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partition.id)) as arrived:
        replays = [tasks.create_task(stores[n % 2].dead_letters.replay(queue.id, DeadFilter())) for n in range(4)]
        await arrived(*replays)
    assert sorted(len(replay.result()) for replay in replays) == [0, 0, 0, 3]
    assert await harness.drain(queue, group) == [0, 1, 2]


async def test_depth_stays_exact_while_everything_happens_at_once(harness: Harness) -> None:
    queue = await harness.queue(max_size=40, retry_limit=0)
    groups = [await harness.group(queue, name) for name in ("one", "two")]
    look = await harness.group(queue, "look", Subscription(look=True))
    lanes = await harness.store.queues.ensure_partitions(queue.id, [f"p{n}" for n in range(4)])
    stores = [harness.store, await harness.open_second()]
    limits = [40, 0, 25, 30, 0, 35]

    async def produce(number: int) -> None:
        for n in range(15):
            known = await harness.store.queues.get(DEFAULT_TENANT, queue.name)
            assert known is not None
            await stores[number % 2].messages.push([harness.slice(known, lanes[(n + number) % 4], [n, n])])

    async def consume(number: int) -> None:
        group = look if number == 4 else groups[number % 2]
        for n in range(15):
            taken = await harness.pop(queue, group, batch=3, auto_ack=n % 3 == 0, store=stores[number % 2])
            if taken and n % 3 == 1:
                await harness.nack(taken)
            elif taken and n % 3 == 2:
                await harness.ack(taken)

    async def reconfigure() -> None:
        for limit in limits:
            await harness.configure(queue, max_size=limit, retry_limit=0)
            await asyncio.sleep(0.01)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(produce(number))
            tasks.create_task(consume(number))
        tasks.create_task(consume(4))
        tasks.create_task(reconfigure())
    actual = 0
    by_lane = [{lane.name: lane for lane in await harness.store.groups.lanes(group.id)} for group in groups]
    for lane in lanes:
        actual += by_lane[0][lane.name].head - min(view[lane.name].committed for view in by_lane)
    assert await harness.store.queues.depth(queue.id) == actual
