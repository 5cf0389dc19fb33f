"""Conflating groups: only the newest message of each partition counts, and it is never lost."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import InvalidRequest
from fairlane.model.group import Group, Seek, Subscription
from fairlane.model.queue import Queue
from fairlane.store.contract.values import DeadFilter, Full, Stored
from tests.conformance.harness import Harness

CONFLATING = Subscription(conflation=True)


async def conflating(harness: Harness, **options: Any) -> tuple[Queue, Group]:
    queue = await harness.queue(**options)
    return queue, await harness.group(queue, "latest", CONFLATING)


async def test_a_conflating_group_gets_the_newest_message_of_each_partition(harness: Harness) -> None:
    queue, group = await conflating(harness)
    plain = await harness.group(queue, "plain")
    a, b = await harness.neighbours(queue, 2)
    await harness.push(queue, [0, 1, 2], partition=a.name)
    await harness.push(queue, [10, 11], partition=b.name)
    await harness.push(queue, [12], partition=b.name)
    taken = await harness.pop(queue, group, batch=10, partitions=10)
    assert sorted(taken.data) == [2, 12]
    assert not await harness.pop(queue, group, batch=10, partitions=10)
    assert sorted(await harness.drain(queue, plain)) == [0, 1, 2, 10, 11, 12]


async def test_what_came_meanwhile_is_delivered_after_the_newest_was_finished(harness: Harness) -> None:
    queue, group = await conflating(harness)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue, group)
    assert taken.data == [1]
    await harness.push(queue, [2])
    await harness.push(queue, [3])
    assert not await harness.pop(queue, group)
    acked = await harness.ack(taken)
    assert (acked.state, acked.released) == ("ok", True)
    taken = await harness.pop(queue, group)
    assert (taken.data, taken.lane.first) == ([3], 3)
    await harness.ack(taken)
    assert not await harness.pop(queue, group)
    assert (await harness.lane(group)).ready_at is None


async def test_a_failed_message_comes_again_until_a_newer_one_takes_its_place(harness: Harness) -> None:
    queue, group = await conflating(harness, retry_limit=5)
    await harness.push(queue, [0, 1])
    for attempt in range(2):
        taken = await harness.pop(queue, group)
        assert (taken.data, taken.lane.attempts) == ([1], attempt)
        await harness.nack(taken)
    await harness.push(queue, [2])
    taken = await harness.pop(queue, group)
    assert (taken.data, taken.lane.attempts) == ([2], 0)
    await harness.ack(taken)
    await harness.store.groups.seek(group.id, Seek("position", 1))
    assert (await harness.lane(group)).attempts == 0


async def test_the_newest_message_is_given_up_like_any_other(harness: Harness) -> None:
    queue, group = await conflating(harness, retry_limit=1)
    await harness.push(queue, [0, 1])
    assert not (await harness.nack(await harness.pop(queue, group))).dead
    assert (await harness.nack(await harness.pop(queue, group))).dead
    assert not await harness.pop(queue, group)
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.position == 1
    await harness.push(queue, [2])
    assert (await harness.pop(queue, group)).data == [2]


async def test_after_a_lost_lease_the_newest_message_of_that_time_comes(harness: Harness) -> None:
    queue, group = await conflating(harness, lease_seconds=10)
    await harness.push(queue, [0, 1])
    lost = await harness.pop(queue, group)
    harness.clock.advance(11)
    again = await harness.pop(queue, group)
    assert (again.data, again.lane.attempts) == ([1], 1)
    await harness.push(queue, [2, 3])
    harness.clock.advance(11)
    newer = await harness.pop(queue, group)
    assert (newer.data, newer.lane.attempts) == ([3], 0)
    assert (await harness.ack(lost)).state == "lost"
    assert (await harness.ack(newer)).state == "ok"


async def test_where_the_newest_was_deleted_the_newest_left_counts(harness: Harness) -> None:
    queue, group = await conflating(harness)
    await harness.push(queue, [0, 1, 2, 3])
    partition = (await harness.partition(queue)).id
    for position in (2, 3):
        assert await harness.store.browse.delete(partition, position)
    taken = await harness.pop(queue, group)
    assert taken.data == [1]
    await harness.ack(taken)
    assert not await harness.pop(queue, group)
    assert (await harness.lane(group)).committed == 4


async def test_a_partition_with_nothing_left_is_empty_to_a_conflating_group(harness: Harness) -> None:
    queue, group = await conflating(harness)
    await harness.push(queue, [0, 1, 2])
    partition = (await harness.partition(queue)).id
    for position in range(3):
        assert await harness.store.browse.delete(partition, position)
    assert not await harness.pop(queue, group)
    await harness.push(queue, [3])
    assert (await harness.pop(queue, group)).data == [3]


async def test_the_newest_message_that_is_old_enough_counts(harness: Harness) -> None:
    queue, group = await conflating(harness, delay_seconds=10)
    for number in range(4):
        await harness.push(queue, [number])
        harness.clock.advance(4)
    taken = await harness.pop(queue, group)
    assert taken.data == [1]
    await harness.ack(taken)
    assert not await harness.pop(queue, group)
    harness.clock.advance(10)
    assert (await harness.pop(queue, group)).data == [3]


async def test_what_a_conflating_group_passes_over_makes_room(harness: Harness) -> None:
    queue, group = await conflating(harness, max_size=4)
    await harness.push(queue, [0, 1, 2, 3])
    assert isinstance(await harness.try_push(queue, [4]), Full)
    taken = await harness.pop(queue, group)
    assert await harness.store.queues.depth(queue.id) == 1
    assert isinstance(await harness.try_push(queue, [4, 5, 6]), Stored)
    assert isinstance(await harness.try_push(queue, [7]), Full)
    await harness.ack(taken)
    assert await harness.store.queues.depth(queue.id) == 3


async def test_a_conflating_group_may_finish_at_delivery_and_be_sent_back(harness: Harness) -> None:
    queue, group = await conflating(harness)
    await harness.push(queue, [0, 1, 2])
    assert (await harness.pop(queue, group, auto_ack=True)).data == [2]
    assert not await harness.pop(queue, group, auto_ack=True)
    await harness.store.groups.seek(group.id, Seek("beginning"))
    assert (await harness.pop(queue, group, auto_ack=True)).data == [2]


async def test_a_pop_of_one_partition_conflates_it_too(harness: Harness) -> None:
    queue, group = await conflating(harness)
    await harness.push(queue, [0, 1], partition="a")
    await harness.push(queue, [5], partition="b")
    partition = (await harness.partition(queue, "a")).id
    assert (await harness.pop(queue, group, partition=partition)).data == [1]


async def test_whether_a_group_conflates_is_decided_once_and_kept(harness: Harness) -> None:
    queue, group = await conflating(harness)
    assert (await harness.group(queue, "plain")).subscription.conflation is False
    await harness.reopen()
    assert (await harness.group(queue, "latest")).subscription == CONFLATING
    assert (await harness.group(queue, "plain", CONFLATING)).subscription.conflation is False
    assert {one.name: one.subscription.conflation for one in await harness.store.groups.all(queue.id)} == {
        "latest": True,
        "plain": False,
    }
    counted = await harness.store.statistics.groups([queue.id])
    assert {one.group.name: one.group.subscription.conflation for one in counted} == {"latest": True, "plain": False}
    await harness.store.groups.resubscribe(group.id, Subscription("time", 5))
    assert (await harness.group(queue, "latest")).subscription == Subscription("time", 5, conflation=True)


async def test_a_broker_says_whether_it_conflates(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.broker.push(queue.name, 1)
    await harness.broker.push(queue.name, 2)
    [latest] = await harness.broker.pop(queue.name, group="latest", batch=10, subscription=CONFLATING)
    assert latest.data == 2
    for refused in ({"group": "g", "auto_ack": True}, {}):
        with pytest.raises(InvalidRequest, match="conflation"):
            await harness.broker.pop(queue.name, subscription=CONFLATING, **refused)  # type: ignore[arg-type]
