"""Limits of what the consumers of a group hold at a time, and of what is delivered to it in a time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from fairlane.errors import InvalidRequest
from fairlane.model.group import Group
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import LaneAck
from tests.conformance.harness import Harness, Taken
from tests.until import until

ORDERINGS = pytest.mark.parametrize("ordering", ["per_key", "unordered"])
SECOND = 1_000_000


async def filled(harness: Harness, lanes: int = 10, each: int = 1, **options: Any) -> tuple[Queue, Group]:
    queue = await harness.queue("jobs", **options)
    group = await harness.group(queue)
    for lane in range(lanes):
        await harness.push(queue, [f"{lane}.{n}" for n in range(each)], partition=f"p{lane}")
    return queue, group


async def finish(harness: Harness, queue: Queue, taken: Taken, store: Store | None = None) -> None:
    acks = [
        LaneAck(
            partition=lane.partition,
            group_id=taken.group.id,
            token=taken.token,
            unordered=queue.options.ordering == "unordered",
            done=[(lane.first, lane.upto)],
        )
        for lane in taken.lanes
    ]
    for acked in await (store or harness.store).messages.ack(acks):
        assert acked.state == "ok"


def size(taken: Taken) -> int:
    return sum(lane.upto - lane.first for lane in taken.lanes)


# What is held


@ORDERINGS
@pytest.mark.parametrize("batch", [1, 2, 100])
async def test_no_more_messages_are_held_than_may_run(harness: Harness, ordering: str, batch: int) -> None:
    queue, group = await filled(harness, lanes=6, each=2, ordering=ordering, max_running=3)
    held = []
    while taken := await harness.pop(queue, group, batch=batch, partitions=6):
        held.append(taken)
    assert sum(map(size, held)) == 3
    await finish(harness, queue, held[0])
    again = await harness.pop(queue, group, batch=100, partitions=6)
    assert size(again) == size(held[0])
    assert not await harness.pop(queue, group)


@ORDERINGS
async def test_an_ended_lease_makes_way_for_another_message(harness: Harness, ordering: str) -> None:
    queue, group = await filled(harness, ordering=ordering, max_running=2, lease_seconds=10)
    one, two = [await harness.pop(queue, group, batch=1) for _ in range(2)]
    assert not await harness.pop(queue, group)
    await harness.store.messages.release(one.lease)
    assert size(await harness.pop(queue, group, batch=5)) == 1
    harness.clock.advance(11)
    third = await harness.pop(queue, group, batch=1)
    assert third, "the leases of dead consumers count no more"
    assert two


@ORDERINGS
async def test_a_cancelled_message_does_not_run(harness: Harness, ordering: str) -> None:
    queue, group = await filled(harness, ordering=ordering, max_running=1)
    taken = await harness.pop(queue, group, batch=1)
    [lane] = taken.lanes
    await harness.store.cancellations.cancel(lane.partition, 0, lane.first)
    assert size(await harness.pop(queue, group, batch=1)) == 1


@ORDERINGS
async def test_messages_finished_ahead_in_a_batch_do_not_run(harness: Harness, ordering: str) -> None:
    queue, group = await filled(harness, lanes=2, each=3, ordering=ordering, max_running=3)
    taken = await harness.pop(queue, group, batch=3)
    [lane] = taken.lanes
    done = LaneAck(partition=lane.partition, group_id=group.id, token=taken.token, done=[(1, 2)])
    done.unordered = ordering == "unordered"
    await harness.apply(done)
    assert size(await harness.pop(queue, group, batch=3)) == 1


async def test_each_group_has_its_own_running_messages(harness: Harness) -> None:
    queue, group = await filled(harness, max_running=1)
    other = await harness.group(queue, "other")
    assert await harness.pop(queue, group)
    assert await harness.pop(queue, other)
    assert not await harness.pop(queue, group)
    assert not await harness.pop(queue, other)


async def test_a_pop_that_finishes_at_delivery_holds_nothing(harness: Harness) -> None:
    queue, group = await filled(harness, lanes=3, max_running=1)
    taken = [await harness.pop(queue, group, auto_ack=True) for _ in range(3)]
    assert [size(one) for one in taken] == [1, 1, 1]


@ORDERINGS
async def test_the_next_look_is_at_the_end_of_a_lease_or_within_a_second(harness: Harness, ordering: str) -> None:
    queue, group = await filled(harness, ordering=ordering, max_running=1, lease_seconds=10)
    await harness.pop(queue, group, batch=1)
    assert (await harness.pop(queue, group)).next_at == harness.clock() + SECOND
    harness.clock.advance(9.5)
    assert (await harness.pop(queue, group)).next_at == harness.clock() + SECOND // 2


# What is delivered in a time


@ORDERINGS
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_no_more_messages_are_delivered_in_any_period_than_the_rate(
    harness: Harness, ordering: str, auto_ack: bool
) -> None:
    queue, group = await filled(harness, lanes=20, ordering=ordering, rate="3/10s")
    began = harness.clock()
    assert size(await harness.pop(queue, group, batch=2, partitions=9, auto_ack=auto_ack)) == 2
    harness.clock.advance(4)
    assert size(await harness.pop(queue, group, batch=9, partitions=9, auto_ack=auto_ack)) == 1
    nothing = await harness.pop(queue, group)
    assert (size(nothing), nothing.next_at) == (0, began + 10 * SECOND)
    harness.clock.advance(5.999)
    assert not await harness.pop(queue, group)
    harness.clock.advance(0.001)
    assert size(await harness.pop(queue, group, batch=9, partitions=9, auto_ack=auto_ack)) == 2
    nothing = await harness.pop(queue, group)
    assert nothing.next_at == began + 14 * SECOND
    harness.clock.advance(100)
    assert size(await harness.pop(queue, group, batch=9, partitions=9, auto_ack=auto_ack)) == 3


@pytest.mark.parametrize("rate", ["rate", "rate_per_key"])
async def test_deliveries_while_the_clock_was_ahead_count_for_one_period_only(harness: Harness, rate: str) -> None:
    queue, group = await filled(harness, lanes=1, each=9, **{rate: "3/10s"})
    harness.clock.advance(600)
    assert size(await harness.pop(queue, group, batch=2, auto_ack=True)) == 2
    harness.clock.advance(-600)
    after = (await harness.store.groups.repair_wakes(None, limit=1000)).after
    while after is not None:
        after = (await harness.store.groups.repair_wakes(after, limit=1000)).after
    assert size(await harness.pop(queue, group, batch=9, auto_ack=True)) == 1
    nothing = await harness.pop(queue, group)
    assert (size(nothing), nothing.next_at) == (0, harness.clock() + 10 * SECOND)
    harness.clock.advance(10)
    assert size(await harness.pop(queue, group, batch=9, auto_ack=True)) == 3


async def test_a_rate_is_kept_over_a_restart(harness: Harness) -> None:
    queue, group = await filled(harness, rate="2/1m")
    assert size(await harness.pop(queue, group, batch=9, partitions=9)) == 2
    await harness.reopen()
    assert not await harness.pop(queue, group)


async def test_both_limits_hold_together(harness: Harness) -> None:
    queue, group = await filled(harness, max_running=2, rate="3/1m")
    first = await harness.pop(queue, group, batch=9, partitions=9)
    assert size(first) == 2
    state = await harness.store.limits.state(group.id)
    assert state is not None
    assert (state.allowed, state.limited_by, state.running, state.started) == (0, "max_running", 2, 2)
    await finish(harness, queue, first)
    assert size(await harness.pop(queue, group, batch=9, partitions=9)) == 1
    state = await harness.store.limits.state(group.id)
    assert state is not None
    assert (state.limited_by, state.until, state.running, state.started) == (
        "rate",
        harness.clock() + 60 * SECOND,
        1,
        3,
    )


async def test_a_queue_without_limits_has_no_counts(harness: Harness) -> None:
    queue, group = await filled(harness)
    assert size(await harness.pop(queue, group, batch=9, partitions=9)) == 9
    state = await harness.store.limits.state(group.id)
    assert state is not None
    assert (state.allowed, state.running, state.started) == (None, None, None)
    assert await harness.store.limits.state(2**40) is None


async def test_a_raised_limit_takes_effect_at_once(harness: Harness) -> None:
    queue, group = await filled(harness, max_running=1, rate="1/1h")
    assert size(await harness.pop(queue, group)) == 1
    queue = await harness.configure(queue, max_running=3, rate="2/1h")
    assert size(await harness.pop(queue, group, batch=9, partitions=9)) == 1
    await harness.configure(queue)
    assert size(await harness.pop(queue, group, batch=9, partitions=9)) == 8


# Many consumers


@ORDERINGS
async def test_sixteen_consumers_of_two_brokers_never_exceed_a_limit(harness: Harness, ordering: str) -> None:
    queue, group = await filled(harness, lanes=40, each=3, ordering=ordering, max_running=5, rate="100/1h")
    stores = [harness.store, await harness.open_second()]
    held = most = delivered = 0
    chance = random.Random(ordering)

    async def consume(store: Store) -> None:
        nonlocal held, most, delivered
        idle = 0
        while idle < 30 and delivered < 100:
            taken = await harness.pop(queue, group, batch=chance.randint(1, 4), partitions=3, store=store)
            held += size(taken)
            delivered += size(taken)
            most = max(most, held)
            await asyncio.sleep(0)
            if taken:
                idle = 0
                held -= size(taken)  # before the ack, whose effect others may see before its answer comes
                await finish(harness, queue, taken, store)
            else:
                idle += 1

    await asyncio.gather(*(consume(stores[number % 2]) for number in range(16)))
    assert delivered == 100
    assert 1 < most <= 5
    assert not await harness.pop(queue, group)


@pytest.mark.parametrize("rate", ["10", "10/", "0/1m", "10/1y", "10/1.5m", "10001/1m", "-1/1m", "10/1m ", "1/99999h"])
async def test_a_rate_that_is_none_is_refused(harness: Harness, rate: str) -> None:
    with pytest.raises(InvalidRequest, match="rate"):
        await harness.queue(rate=rate)


async def test_explain_names_the_limit_that_holds_a_lane_and_its_end(harness: Harness) -> None:
    queue, group = await filled(harness, max_running=1, rate="2/1m", lease_seconds=30)
    explain = harness.broker.pauses.explain
    assert (await explain(queue.name, "p5")).reason == "ready"
    taken = await harness.pop(queue, group, batch=1)
    running = await explain(queue.name, "p5")
    assert (running.reason, int(running.until or 0)) == ("limited", harness.clock() + 30 * SECOND)
    assert running.sentence.startswith("The group holds 1 message, as many as max_running allows")
    await finish(harness, queue, taken)
    await finish(harness, queue, await harness.pop(queue, group, batch=1))
    limited = await explain(queue.name, "p5")
    assert (limited.reason, int(limited.until or 0)) == ("limited", harness.clock() + 60 * SECOND)
    assert "2/1m" in limited.sentence


# Polls that wait


@ORDERINGS
async def test_a_waiting_poll_gets_a_message_when_another_is_acked(harness: Harness, ordering: str) -> None:
    queue, _ = await filled(harness, ordering=ordering, max_running=1)
    broker = harness.broker
    [first] = await broker.pop(queue.name)
    waiting = asyncio.create_task(broker.pop(queue.name, wait=60))
    await until(lambda: len(broker._engine.waiters) == 1)
    assert not waiting.done()
    await broker.ack(first)
    assert len(await waiting) == 1


async def test_a_waiting_poll_gets_a_message_when_the_rate_allows_it(harness: Harness) -> None:
    queue, _ = await filled(harness, rate="1/1s")
    broker = harness.broker
    assert len(await broker.pop(queue.name, batch=9, partitions=9)) == 1
    waiting = asyncio.create_task(broker.pop(queue.name, wait=60))
    await until(lambda: len(broker._engine.waiters) == 1)
    assert not waiting.done()
    harness.clock.advance(1)
    assert len(await waiting) == 1


async def test_waiting_polls_of_many_consumers_get_every_message_in_turn(harness: Harness) -> None:
    queue, _ = await filled(harness, lanes=24, max_running=2)
    brokers = [harness.broker, await harness.second_broker()]
    seen: list[Any] = []

    async def consume(number: int) -> None:
        broker = brokers[number % 2]
        while len(seen) < 24 and (batch := await broker.pop(queue.name, batch=2, partitions=2, wait=5)):
            seen.extend(message.data for message in batch)
            await broker.ack(batch)

    consumers = [asyncio.create_task(consume(number)) for number in range(8)]
    await until(lambda: len(seen) == 24, seconds=60)
    for consumer in consumers:
        consumer.cancel()
    await asyncio.wait(consumers)
    assert sorted(seen) == sorted(f"{lane}.0" for lane in range(24))
