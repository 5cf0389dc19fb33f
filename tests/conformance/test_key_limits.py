"""Limits of each key: of what consumers hold of it at a time, and of what is delivered of it in a time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from fairlane.errors import InvalidRequest, LaneLocked
from fairlane.model.group import Group
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Nack
from tests.conformance.harness import Harness, Taken
from tests.conformance.test_limits import ORDERINGS, SECOND, finish, size
from tests.until import until


async def filled(harness: Harness, keys: str = "ab", each: int = 5, **options: Any) -> tuple[Queue, Group]:
    queue = await harness.queue("jobs", **options)
    group = await harness.group(queue)
    for key in keys:
        await harness.push(queue, [f"{key}{n}" for n in range(each)], partition=key)
    return queue, group


def by_key(taken: Taken) -> Counter[str]:
    found = Counter[str]()
    for lane in taken.lanes:
        found[lane.name.partition("!")[0]] += lane.upto - lane.first
    return found


async def everything(harness: Harness, queue: Queue, group: Group, **options: Any) -> Taken:
    return await harness.pop(queue, group, batch=100, partitions=100, **options)


async def fail(harness: Harness, queue: Queue, taken: Taken) -> None:
    nack = harness.ordered_ack(taken, nack=Nack(taken.lane.first, charge=True, error="boom", delay_ms=0))
    nack.unordered, nack.done = queue.options.ordering == "unordered", []
    assert (await harness.apply(nack)).state == "ok"


# What is held


@pytest.mark.parametrize("batch", [1, 3, 100])
async def test_no_more_messages_of_a_key_are_held_than_may_run(harness: Harness, batch: int) -> None:
    queue, group = await filled(harness, keys="abc", ordering="unordered", max_running_per_key=2)
    held: list[Taken] = []
    while taken := await harness.pop(queue, group, batch=batch, partitions=5):
        held.append(taken)
    assert sum(map(by_key, held), Counter()) == {"a": 2, "b": 2, "c": 2}
    await finish(harness, queue, held[0])
    again = await everything(harness, queue, group)
    assert by_key(again) == by_key(held[0])


async def test_priorities_of_a_key_share_its_limit(harness: Harness) -> None:
    queue, group = await filled(harness, keys="a", ordering="unordered", max_running_per_key=3)
    for name in ("a!9", "a!2"):
        await harness.push(queue, [f"{name}.{n}" for n in range(2)], partition=name)
    await harness.push(queue, ["ab"], partition="ab")
    held = [await harness.pop(queue, group, batch=1) for _ in range(6)]
    assert sum(map(by_key, held), Counter()) == {"a": 3, "ab": 1}


async def test_an_ended_lease_makes_way_for_another_message_of_its_key(harness: Harness) -> None:
    queue, group = await filled(harness, keys="a", ordering="unordered", max_running_per_key=1, lease_seconds=10)
    taken = await harness.pop(queue, group)
    assert not await harness.pop(queue, group)
    await harness.store.messages.release(taken.lease)
    assert size(await everything(harness, queue, group)) == 1
    harness.clock.advance(11)
    assert size(await everything(harness, queue, group)) == 1


async def test_a_redelivered_message_counts_for_its_key(harness: Harness) -> None:
    queue, group = await filled(harness, keys="a", each=3, ordering="unordered", max_running_per_key=1)
    taken = await harness.pop(queue, group)
    await harness.store.messages.release(taken.lease)
    assert (await everything(harness, queue, group)).positions == [0]
    assert not await harness.pop(queue, group)


async def test_keys_at_their_limit_do_not_hide_others(harness: Harness) -> None:
    keys = [f"k{n}" for n in range(30)]
    queue = await harness.queue("jobs", ordering="unordered", max_running_per_key=1)
    group = await harness.group(queue)
    for key in keys:
        await harness.push(queue, ["1", "2"], partition=key)
    held = [await harness.pop(queue, group) for _ in keys]
    assert sorted(lane.name for taken in held for lane in taken.lanes) == sorted(keys)
    nothing = await harness.pop(queue, group)
    assert (size(nothing), nothing.next_at) == (0, harness.clock() + SECOND)


async def test_a_named_partition_is_popped_within_its_limit(harness: Harness) -> None:
    queue, group = await filled(harness, ordering="unordered", max_running_per_key=2, rate_per_key="3/1m")
    [a] = [one.id for one in [await harness.store.queues.named(queue.id, "a")] if one]
    first = await everything(harness, queue, group, partition=a)
    assert by_key(first) == {"a": 2}
    await finish(harness, queue, first)
    assert by_key(await everything(harness, queue, group, partition=a)) == {"a": 1}
    assert not await everything(harness, queue, group, partition=a)
    assert by_key(await everything(harness, queue, group)) == {"b": 2}


# What is delivered in a time


@ORDERINGS
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_no_more_messages_of_a_key_are_delivered_in_any_period_than_the_rate(
    harness: Harness, ordering: str, auto_ack: bool
) -> None:
    queue, group = await filled(harness, each=9, ordering=ordering, rate_per_key="3/10s")
    began = harness.clock()

    async def deliver(batch: int = 100) -> Counter[str]:
        taken = await harness.pop(queue, group, batch=batch, partitions=9, auto_ack=auto_ack)
        if not auto_ack:
            await finish(harness, queue, taken)
        return by_key(taken)

    assert await deliver(batch=2) == {"a": 2}
    harness.clock.advance(4)
    assert await deliver() == {"a": 1, "b": 3}
    nothing = await harness.pop(queue, group)
    assert (size(nothing), nothing.next_at) == (0, began + 10 * SECOND)
    harness.clock.advance(5.999)
    assert not await harness.pop(queue, group)
    harness.clock.advance(0.001)
    assert await deliver() == {"a": 2}
    nothing = await harness.pop(queue, group)
    assert nothing.next_at == began + 14 * SECOND
    harness.clock.advance(100)
    assert await deliver() == {"a": 3, "b": 3}


@ORDERINGS
async def test_a_retry_of_a_key_waits_for_its_rate(harness: Harness, ordering: str) -> None:
    queue, group = await filled(harness, keys="a", each=1, ordering=ordering, rate_per_key="1/10s")
    taken = await harness.pop(queue, group)
    await fail(harness, queue, taken)
    assert not await harness.pop(queue, group)
    harness.clock.advance(9.999)
    assert not await harness.pop(queue, group)
    harness.clock.advance(0.001)
    assert (await harness.pop(queue, group)).positions == [0]


@ORDERINGS
async def test_a_lost_lease_of_a_key_at_its_rate_is_charged_when_it_is_delivered_again(
    harness: Harness, ordering: str
) -> None:
    queue, group = await filled(harness, keys="a", each=1, ordering=ordering, rate_per_key="1/10s", lease_seconds=3)
    await harness.pop(queue, group)
    harness.clock.advance(5)
    nothing = await harness.pop(queue, group)
    assert (size(nothing), nothing.next_at) == (0, harness.clock() + 5 * SECOND)
    harness.clock.advance(5)
    assert (await harness.pop(queue, group)).lane.attempts == 1


async def test_a_rate_of_keys_is_kept_over_a_restart(harness: Harness) -> None:
    queue, group = await filled(harness, rate_per_key="2/1m")
    assert size(await everything(harness, queue, group)) == 4
    await harness.reopen()
    assert not await harness.pop(queue, group)


@ORDERINGS
async def test_a_raised_rate_of_keys_takes_effect_at_once(harness: Harness, ordering: str) -> None:
    queue, group = await filled(harness, keys="a", ordering=ordering, rate_per_key="1/1h")
    taken = await everything(harness, queue, group)
    await fail(harness, queue, taken)
    assert not await harness.pop(queue, group)
    queue = await harness.configure(queue, ordering=ordering, rate_per_key="2/1h")
    assert (await everything(harness, queue, group)).positions[0] == 0
    assert not await harness.pop(queue, group)
    await harness.configure(queue, ordering=ordering)
    harness.clock.advance(300)
    assert await harness.pop(queue, group)


async def test_limits_of_the_group_and_of_keys_hold_together(harness: Harness) -> None:
    options: dict[str, Any] = {"max_running": 5, "max_running_per_key": 2, "rate": "7/1m", "rate_per_key": "3/1m"}
    queue, group = await filled(harness, keys="abcd", ordering="unordered", **options)
    first = await everything(harness, queue, group)
    assert size(first) == 5
    assert max(by_key(first).values()) == 2
    await finish(harness, queue, first)
    second = await everything(harness, queue, group)
    assert size(second) == 2
    assert max((by_key(first) + by_key(second)).values()) <= 3
    state = await harness.store.limits.state(group.id)
    assert state is not None
    assert (state.limited_by, state.started) == ("rate", 7)


async def test_the_state_of_a_key_counts_its_messages_only(harness: Harness) -> None:
    queue, group = await filled(harness, ordering="unordered", max_running_per_key=2, rate_per_key="2/1m")
    await harness.pop(queue, group, batch=2)
    a, b = [await harness.store.limits.state(group.id, key=key) for key in "ab"]
    assert a is not None
    assert (a.allowed, a.limited_by, a.running, a.started) == (0, "rate_per_key", 2, 2)
    assert a.until == harness.clock() + 60 * SECOND
    assert b is not None
    assert (b.allowed, b.limited_by, b.running, b.started) == (2, None, 0, 0)


# Many consumers


@pytest.mark.parametrize(
    "limits",
    [{"ordering": "unordered", "max_running_per_key": 2}, {"rate_per_key": "5/1h"}],
    ids=["running", "rate"],
)
async def test_sixteen_consumers_of_two_brokers_never_exceed_a_limit_of_a_key(
    harness: Harness, limits: dict[str, Any]
) -> None:
    queue, group = await filled(harness, keys="abcdef", each=8, **limits)
    stores = [harness.store, await harness.open_second()]
    held, most, delivered = Counter[str](), Counter[str](), Counter[str]()
    chance = random.Random(7)
    wanted = 8 if "ordering" in limits else 5

    async def consume(store: Store) -> None:
        idle = 0
        while idle < 30 and delivered.total() < 6 * wanted:
            try:
                taken = await harness.pop(queue, group, batch=chance.randint(1, 4), partitions=3, store=store)
            except LaneLocked:  # a machine may be slow while others wait for the group
                continue
            held.update(by_key(taken))
            delivered.update(by_key(taken))
            for key, count in held.items():
                most[key] = max(most[key], count)
            await asyncio.sleep(0)
            idle = 0 if taken else idle + 1
            held.subtract(by_key(taken))  # before the ack, whose effect others may see before its answer comes
            if taken:
                await finish(harness, queue, taken, store)

    await asyncio.gather(*(consume(stores[number % 2]) for number in range(16)))
    while rest := await everything(harness, queue, group):  # left by consumers that found the keys of others only
        delivered.update(by_key(rest))
        await finish(harness, queue, rest)
    assert delivered == dict.fromkeys("abcdef", wanted)
    if "ordering" in limits:
        assert max(most.values()) == 2


async def test_a_waiting_poll_gets_a_message_of_a_key_when_another_is_acked(harness: Harness) -> None:
    queue, _ = await filled(harness, keys="a", ordering="unordered", max_running_per_key=1)
    broker = harness.broker
    [first] = await broker.pop(queue.name)
    waiting = asyncio.create_task(broker.pop(queue.name, wait=60))
    await until(lambda: len(broker._engine.waiters) == 1)
    assert not waiting.done()
    await broker.ack(first)
    assert len(await waiting) == 1


# Options and explanations


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_running_per_key": 2}, "for unordered queues"),
        ({"ordering": "fifo", "max_running_per_key": 2}, "for unordered queues"),
        ({"ordering": "fifo", "rate_per_key": "1/1m"}, "one partition"),
        ({"rate_per_key": "x"}, "rate_per_key is 'x'"),
        ({"ordering": "unordered", "max_running_per_key": -1}, "max_running_per_key"),
        ({"ordering": "unordered", "max_running_per_key": "2"}, "max_running_per_key"),
    ],
)
async def test_a_limit_that_no_key_can_have_is_refused(harness: Harness, options: dict[str, Any], words: str) -> None:
    name = harness.name("jobs")
    with pytest.raises(InvalidRequest, match=words):
        await harness.broker.queues.configure(name, **options)
    assert name not in [queue.name for queue in await harness.store.queues.all()]


async def test_explain_names_the_limit_of_a_key_and_its_end(harness: Harness) -> None:
    options: dict[str, Any] = {"ordering": "unordered", "max_running_per_key": 1, "lease_seconds": 30}
    queue, group = await filled(harness, rate_per_key="2/1m", **options)
    explain = harness.broker.pauses.explain
    taken = await harness.pop(queue, group)
    running = await explain(queue.name, "a")
    assert (running.reason, int(running.until or 0)) == ("limited", harness.clock() + 30 * SECOND)
    assert running.sentence.startswith("The group holds 1 message of key 'a', as many as max_running_per_key allows")
    assert (await explain(queue.name, "b")).reason == "ready"
    await finish(harness, queue, taken)
    await finish(harness, queue, await everything(harness, queue, group))
    assert size(await everything(harness, queue, group)) == 1
    limited = await explain(queue.name, "a")
    assert (limited.reason, int(limited.until or 0)) == ("limited", harness.clock() + 60 * SECOND)
    assert "rate_per_key" in limited.sentence
    assert "2/1m" in limited.sentence


async def test_explain_names_the_rate_of_an_ordered_lane(harness: Harness) -> None:
    queue, group = await filled(harness, rate_per_key="2/1m")
    taken = await everything(harness, queue, group)
    await finish(harness, queue, taken)
    assert not await harness.pop(queue, group)
    limited = await harness.broker.pauses.explain(queue.name, "a")
    assert (limited.reason, int(limited.until or 0)) == ("limited", harness.clock() + 60 * SECOND)
