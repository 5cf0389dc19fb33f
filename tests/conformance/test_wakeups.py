"""Lost wake-ups: a lane is only declared empty while its head cannot move."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane.broker.services import wake_repair
from fairlane.model.group import Seek
from fairlane.model.queue import Partition
from fairlane.store.contract.values import LaneAck, Nack, Stored
from tests.conformance.backends import Row
from tests.conformance.harness import Harness, Taken, answer
from tests.conformance.test_unordered import apply_unordered, unordered_ack

Drain = Callable[[Harness, Taken], Awaitable[object]]


async def ack(harness: Harness, taken: Taken) -> object:
    return await harness.ack(taken)


async def ack_without_lease(harness: Harness, taken: Taken) -> object:
    lane = taken.lane
    bare = LaneAck(partition=lane.partition, group_id=taken.group.id, token=None, done=[(0, lane.upto)])
    return await harness.apply(bare)


async def dead_letter_by_nack(harness: Harness, taken: Taken) -> object:
    return await harness.nack(taken)


async def transact(harness: Harness, taken: Taken) -> object:
    return await harness.store.messages.transact([harness.ordered_ack(taken, taken.lane.upto)], [])


async def seek_to_the_end(harness: Harness, taken: Taken) -> object:
    return await harness.store.groups.seek(taken.group.id, Seek("end"))


DRAINS: list[Drain] = [ack, ack_without_lease, dead_letter_by_nack, transact, seek_to_the_end]


@pytest.mark.parametrize("drain", DRAINS, ids=lambda drain: drain.__name__)
async def test_a_lane_drained_while_a_push_is_in_flight_is_woken(harness: Harness, drain: Drain) -> None:
    """The push has passed the drained lane's cursor while it was leased, and is stopped before its commit."""
    queue = await harness.queue(retry_limit=0)
    group, other = await harness.group(queue, "reader"), await harness.group(queue, "other")
    partition = await harness.partition(queue)
    await harness.push(queue, ["first"])
    await harness.drain(queue, other)
    taken = await harness.pop(queue, group)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, other.id)) as arrived:
        push = tasks.create_task(answer(harness.store.messages.push([harness.slice(queue, partition, ["second"])])))
        await arrived(push)
        drained = tasks.create_task(_run(drain, harness, taken))
        await arrived(push, drained)
    assert isinstance(push.result()[0], Stored)
    if drain is seek_to_the_end:
        # It went to the end as it saw it: before or behind the push, but never into a sleeping lane.
        state = await harness.lane(group)
        assert (state.ready_at is None) == (state.committed == state.head)
    else:
        assert await harness.drain(queue, group) == ["second"]
    await harness.push(queue, ["third"])
    assert (await harness.drain(queue, group))[-1:] == ["third"]
    assert await harness.drain(queue, other) == ["second", "third"]


@pytest.mark.parametrize("how", ["auto_ack", "parked"])
async def test_a_pop_does_not_park_a_lane_on_a_stale_head(harness: Harness, how: str) -> None:
    """The lane empties by finishing at delivery, or when its last message becomes a dead letter."""
    queue = await harness.queue(retry_limit=0, lease_seconds=5)
    group, other = await harness.group(queue, "reader"), await harness.group(queue, "other")
    partition = await harness.partition(queue)
    await harness.push(queue, ["first"])
    await harness.drain(queue, other)
    if how == "parked":
        await harness.pop(queue, group)
        harness.clock.advance(5)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, other.id)) as arrived:
        push = tasks.create_task(answer(harness.store.messages.push([harness.slice(queue, partition, ["second"])])))
        await arrived(push)
        pop = tasks.create_task(harness.pop(queue, group, auto_ack=how == "auto_ack"))
        await arrived(push, pop)
    seen = pop.result().data
    if pop.result() and how == "parked":
        await harness.ack(pop.result())
    seen += await harness.drain(queue, group)
    assert seen == (["first", "second"] if how == "auto_ack" else ["second"])


async def test_a_push_that_waited_for_the_drain_sees_the_drained_lane(harness: Harness) -> None:
    """The drain has emptied the lane and is stopped before its commit. The push waits for it."""
    queue = await harness.queue()
    group, other = await harness.group(queue, "reader"), await harness.group(queue, "other")
    partition = await harness.partition(queue)
    await harness.push(queue, ["first"])
    acks = [
        harness.ordered_ack(await harness.pop(queue, each), 1)
        for each in sorted((group, other), key=lambda one: one.id)
    ]
    last = max(group.id, other.id)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, last)) as arrived:
        drain = tasks.create_task(answer(harness.store.messages.ack(acks)))
        await arrived(drain)
        push = tasks.create_task(answer(harness.store.messages.push([harness.slice(queue, partition, ["second"])])))
        await arrived(drain, push)
    assert [one.released for one in drain.result()] == [True, True]
    assert isinstance(push.result()[0], Stored)
    for each in (group, other):
        assert await harness.drain(queue, each) == ["second"]


@pytest.mark.parametrize("first", ["ack", "push"])
async def test_a_drain_and_a_push_that_meet_at_the_lane_leave_it_awake(harness: Harness, first: str) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, ["first"])
    taken = await harness.pop(queue, group)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partition.id)) as arrived:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: harness.ack(taken),
            lambda: harness.store.messages.push([harness.slice(queue, partition, ["second"])]),
        ]
        met: list[asyncio.Task[object]] = []
        for call in calls if first == "ack" else calls[::-1]:
            met.append(tasks.create_task(_await(call)))
            await arrived(*met)
    assert await harness.drain(queue, group) == ["second"]


async def test_every_message_is_delivered_when_lanes_drain_and_fill_all_the_time(harness: Harness) -> None:
    """Every message is pushed alone, so that every pop and every ack empties its lane."""
    queue = await harness.queue()
    group = await harness.group(queue)
    partitions = await harness.store.queues.ensure_partitions(queue.id, ["a", "b"])
    stores = [harness.store, await harness.open_second()]
    total = 120
    seen: list[int] = []

    async def produce(number: int) -> None:
        for n in range(number, total, 3):
            await stores[n % 2].messages.push([harness.slice(queue, partitions[n % 2], [n])])

    async def consume(number: int) -> None:
        while len(seen) < total:
            taken = await harness.pop(queue, group, auto_ack=number == 0, store=stores[number % 2])
            seen.extend(taken.data)
            if taken and number:
                await harness.ack(taken, store=stores[number % 2])

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(produce(number))
            tasks.create_task(consume(number))
    assert sorted(seen) == list(range(total))


async def put_to_sleep(harness: Harness, partition: Partition) -> None:
    """Leave the state of a missed wake-up: a sleeping lane that has messages."""
    await harness.backend.sql("UPDATE fairlane.cursors SET ready_at = NULL WHERE partition_id = $1", partition.id.id)


async def repair_wakes(harness: Harness, *, limit: int) -> Counter[int]:
    """Check all lanes. Returns the number of lanes woken, by queue."""
    woken: Counter[int] = Counter()
    after = None
    while True:
        repaired = await harness.store.groups.repair_wakes(after, limit=limit)
        woken.update(repaired.lanes)
        after = repaired.after
        if after is None:
            return woken


@pytest.mark.parametrize("limit", [50, 10_000])
async def test_a_lane_that_nobody_woke_is_found_and_no_other(harness: Harness, limit: int) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    lost, drained, held = [await harness.partition(queue, name) for name in ("lost", "drained", "held")]
    for lane in (drained, held, lost):
        await harness.push(queue, [lane.name], partition=lane.name)
        if lane is not lost:
            taken = await harness.pop(queue, group)
            assert taken.data == [lane.name]
            if lane is drained:
                await harness.ack(taken)
    await put_to_sleep(harness, lost)
    assert not await harness.pop(queue, group), "nobody knows of it"
    assert (await repair_wakes(harness, limit=limit))[queue.id] == 1
    assert (await harness.pop(queue, group)).data == ["lost"]
    assert (await repair_wakes(harness, limit=limit))[queue.id] == 0


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_stopped_lane_that_nobody_paused_is_found_and_no_other(harness: Harness, ordering: str) -> None:
    """A resume that missed a lane would leave this state."""
    policy: dict[str, Any] = {} if ordering == "unordered" else {"on_exhausted": "block", "retry_limit": 0}
    queue = await harness.queue(ordering=ordering, **policy)
    group = await harness.group(queue)
    lost, paused, parked = [await harness.partition(queue, name) for name in ("lost", "paused", "parked")]
    if policy:
        await harness.push(queue, ["blocked"], partition="blocked")
        await harness.nack(await harness.pop(queue, group))
    for lane in (lost, paused, parked):
        await harness.push(queue, [lane.name], partition=lane.name)
        only = {"group_id": group.id} if lane is parked else {}
        assert await harness.store.pauses.pause(queue.id, partition=lane.id, **only)
    assert not await harness.pop(queue, group, partitions=10)
    await harness.backend.sql("UPDATE fairlane.partitions SET paused_at = NULL WHERE id = $1", lost.id.id)
    assert not await harness.pop(queue, group, partitions=10), "nobody knows of it"
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 1
    assert (await harness.pop(queue, group, partitions=10)).data == ["lost"]
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 0


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_clock_that_was_ahead_for_a_moment_lets_no_lane_sleep(harness: Harness, ordering: str) -> None:
    queue = await harness.queue(ordering=ordering)
    group = await harness.group(queue)
    harness.clock.advance(600)
    await harness.push(queue, ["ahead"], partition="pushed")
    harness.clock.advance(-600)
    await harness.push(queue, ["right"], partition="pushed")
    await harness.push(queue, ["given back"], partition="nacked")
    taken = await harness.pop(queue, group)
    assert taken.data == ["given back"]
    if ordering == "per_key":
        await harness.nack(taken, delay_ms=60_000)
    explained = await harness.broker.pauses.explain(queue.name, "pushed")
    assert (explained.reason, explained.until) == ("asleep", harness.clock() + 600_000_000)
    assert "clock" in explained.sentence
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 1
    assert (await harness.pop(queue, group, partitions=5)).data == ["ahead", "right"]
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 0


async def test_a_lease_given_while_the_clock_was_ahead_lasts_as_long_as_any(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    group = await harness.group(queue)
    harness.clock.advance(600)
    await harness.push(queue, ["ahead"])
    taken = await harness.pop(queue, group)
    harness.clock.advance(-600)
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 1
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 0
    harness.clock.advance(29)
    assert not await harness.pop(queue, group)
    harness.clock.advance(2)
    assert (await harness.pop(queue, group)).data == taken.data


async def test_unordered_leases_given_while_the_clock_was_ahead_last_as_long_as_any(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30, ordering="unordered", retry_limit=5)
    group = await harness.group(queue)
    await harness.push(queue, ["failed"])
    nacks = [Nack(0, charge=True, error="boom")]
    await apply_unordered(harness, unordered_ack(await harness.pop(queue, group), nacks=nacks))
    harness.clock.advance(600)
    await harness.push(queue, ["ahead"])
    taken = sorted((await harness.pop(queue, group)).data + (await harness.pop(queue, group)).data)
    assert taken == ["ahead", "failed"]
    harness.clock.advance(-600)
    await repair_wakes(harness, limit=10_000)
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 0
    harness.clock.advance(29)
    assert not await harness.pop(queue, group)
    harness.clock.advance(2)
    again = [*(await harness.pop(queue, group)).data, *(await harness.pop(queue, group)).data]
    assert sorted(again) == taken


async def test_a_later_pop_does_not_hide_unordered_leases_given_while_the_clock_was_ahead(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30, ordering="unordered", retry_limit=5)
    group = await harness.group(queue)
    await harness.push(queue, ["failed"])
    nacks = [Nack(0, charge=True, error="boom")]
    await apply_unordered(harness, unordered_ack(await harness.pop(queue, group), nacks=nacks))
    await harness.push(queue, ["ahead"])
    harness.clock.advance(600)
    taken = sorted((await harness.pop(queue, group)).data + (await harness.pop(queue, group)).data)
    assert taken == ["ahead", "failed"]
    harness.clock.advance(-600)
    await harness.push(queue, ["later"])
    assert (await harness.pop(queue, group)).data == ["later"]
    harness.clock.advance(20)
    await repair_wakes(harness, limit=10_000)
    harness.clock.advance(9)
    assert not await harness.pop(queue, group)
    harness.clock.advance(2)
    assert (await harness.pop(queue, group)).data == ["later"]
    harness.clock.advance(20)
    again = [*(await harness.pop(queue, group)).data, *(await harness.pop(queue, group)).data]
    assert sorted(again) == taken


@pytest.mark.parametrize("deed", ["ack", "auto-ack", "release", "seek", "resume"])
async def test_a_lane_made_ready_while_the_clock_was_ahead_is_ready_when_it_is_right(
    harness: Harness, deed: str
) -> None:
    queue = await harness.queue(lease_seconds=3600)
    group = await harness.group(queue)
    await harness.push(queue, [1, 2])
    if deed == "resume":
        await harness.store.pauses.pause(queue.id)
        assert not await harness.pop(queue, group)
    elif deed != "auto-ack":
        taken = await harness.pop(queue, group, batch=1)
    harness.clock.advance(600)
    if deed == "ack":
        await harness.ack(taken)
    elif deed == "auto-ack":
        await harness.pop(queue, group, batch=1, auto_ack=True)
    elif deed == "release":
        await harness.store.messages.release(taken.lease)
    elif deed == "seek":
        await harness.store.groups.seek(group.id, Seek("beginning"))
    else:
        await harness.store.pauses.resume(queue.id)
    await harness.push(queue, ["ahead"], partition="other")
    harness.clock.advance(-600)
    await repair_wakes(harness, limit=10_000)
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 0
    rest = [2] if deed in ("ack", "auto-ack") else [1, 2]
    assert Counter((await harness.pop(queue, group, partitions=5)).data) == Counter([*rest, "ahead"])


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_failure_while_the_clock_was_ahead_waits_for_its_backoff_only(harness: Harness, ordering: str) -> None:
    queue = await harness.queue(ordering=ordering, retry_limit=5)
    group = await harness.group(queue)
    await harness.push(queue, ["failed"])
    taken = await harness.pop(queue, group)
    harness.clock.advance(60)
    if ordering == "per_key":
        await harness.nack(taken, delay_ms=5_000)
    else:
        nacks = [Nack(0, charge=True, error="boom", delay_ms=5_000)]
        await apply_unordered(harness, unordered_ack(taken, nacks=nacks))
    harness.clock.advance(-60)
    await repair_wakes(harness, limit=10_000)
    assert (await repair_wakes(harness, limit=10_000))[queue.id] == 0
    harness.clock.advance(6)
    assert (await harness.pop(queue, group)).data == ["failed"]


async def test_a_poll_gets_what_a_missed_wake_left_behind(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_repair, "ROUND_SECONDS", 0.2)
    monkeypatch.setattr(wake_repair, "SHARE", 1)
    queue = await harness.queue()
    await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, ["lost"])
    await put_to_sleep(harness, partition)
    async with asyncio.timeout(10):
        batch = await harness.broker.pop(queue.name, wait=10)
    assert [delivery.data for delivery in batch] == ["lost"]


async def test_pops_of_two_groups_that_drain_a_lane_at_once_both_let_it_sleep(harness: Harness) -> None:
    queue = await harness.queue()
    one, other = [await harness.group(queue, name) for name in ("one", "other")]
    await harness.push(queue, [0, 1])
    async with harness.stopped_pop(queue, one, auto_ack=True) as (stopped, _):
        assert stopped.data == [0, 1]
        assert (await harness.pop(queue, other, auto_ack=True)).data == [0, 1]
    assert [(await harness.lane(group)).ready_at for group in (one, other)] == [None, None]
    await harness.push(queue, [2])
    assert [(await harness.pop(queue, group, auto_ack=True)).data for group in (one, other)] == [[2], [2]]


@pytest.mark.parametrize("batch", [1, 2, 3])
async def test_a_push_beside_a_pop_that_acks_is_never_left_asleep(harness: Harness, batch: int) -> None:
    """The pop either took all messages and waits for no lock, or left some."""
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0, 1])
    async with harness.stopped_pop(queue, group, batch=batch, auto_ack=True) as (stopped, arrived):
        push = asyncio.create_task(answer(harness.push(queue, [2])))
        await arrived(push)
    await push
    seen = stopped.data
    while taken := await harness.pop(queue, group, auto_ack=True):
        seen += taken.data
    assert seen == [0, 1, 2]
    assert (await harness.lane(group)).ready_at is None


async def _run(drain: Drain, harness: Harness, taken: Taken) -> object:
    return await drain(harness, taken)


async def _await(call: Callable[[], Awaitable[object]]) -> object:
    return await call()
