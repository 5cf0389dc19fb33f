"""Seek: a cursor moves, its lease ends, and other groups are not affected."""

from __future__ import annotations

import pytest

from fairlane.model.group import Seek
from fairlane.model.ids import PartitionId
from fairlane.store.contract.values import DeadFilter
from tests.conformance.harness import Harness


async def test_a_seek_to_the_beginning_replays_everything(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    assert await harness.drain(queue, group) == [0, 1, 2]
    assert await harness.store.groups.seek(group.id, Seek("beginning")) == 1
    assert await harness.drain(queue, group) == [0, 1, 2]


async def test_a_seek_to_the_end_skips_everything_and_what_comes_is_delivered(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    await harness.store.groups.seek(group.id, Seek("end"))
    assert not await harness.pop(queue, group)
    assert (await harness.lane(group)).ready_at is None
    await harness.push(queue, [3])
    assert await harness.drain(queue, group) == [3]


@pytest.mark.parametrize(
    ("at", "expected"), [(0, [0, 1, 2, 3]), (2, [2, 3]), (4, []), (2**53 - 1, [])], ids=lambda v: str(v)
)
async def test_a_seek_to_a_position_is_clamped_to_what_is_retained(
    harness: Harness, at: int, expected: list[int]
) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2, 3])
    await harness.store.groups.seek(group.id, Seek("position", at))
    lane = await harness.lane(group)
    assert lane.committed == min(at, 4)
    assert (lane.ready_at is None) == (not expected)
    assert await harness.drain(queue, group) == expected


async def test_a_seek_to_a_time_goes_to_the_first_message_at_or_after_it(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    times = []
    for number in range(0, 6, 2):
        times.append((await harness.push(queue, [number, number + 1])).created_at)
        harness.clock.advance(10)
    for at, expected in (
        (times[1], [2, 3, 4, 5]),
        (times[1] + 1, [4, 5]),
        (0, [0, 1, 2, 3, 4, 5]),
        (times[2] + 1, []),
    ):
        await harness.store.groups.seek(group.id, Seek("time", at))
        assert await harness.drain(queue, group) == expected


async def test_a_seek_moves_every_partition_or_only_the_one_named(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    for name in "abc":
        await harness.push(queue, [name], partition=name)
    assert len(await harness.drain(queue, group)) == 3
    b = await harness.partition(queue, "b")
    assert await harness.store.groups.seek(group.id, Seek("beginning"), partition=b.id) == 1
    assert await harness.drain(queue, group) == ["b"]
    assert await harness.store.groups.seek(group.id, Seek("beginning")) == 3
    assert sorted(await harness.drain(queue, group)) == ["a", "b", "c"]


async def test_a_seek_of_nothing_moves_nothing(harness: Harness) -> None:
    queue, other = await harness.queue(), await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0])
    await harness.push(other, [0])
    foreign = await harness.partition(other)
    assert await harness.store.groups.seek(group.id, Seek("end"), partition=PartitionId(0, 2**62)) == 0
    assert await harness.store.groups.seek(group.id, Seek("end"), partition=foreign.id) == 0
    assert await harness.store.groups.seek(2**62, Seek("end")) == 0
    assert await harness.drain(queue, group) == [0]


async def test_a_seek_leaves_other_groups_alone(harness: Harness) -> None:
    queue = await harness.queue()
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue, two)
    await harness.store.groups.seek(one.id, Seek("end"))
    assert (await harness.ack(taken)).state == "ok"
    assert await harness.drain(queue, one) == []


async def test_a_seek_ends_the_lease(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    for target, expected in ((Seek("beginning"), [0, 1, 2]), (Seek("position", 1), [1, 2])):
        taken = await harness.pop(queue, group)
        await harness.store.groups.seek(group.id, target)
        acked = await harness.ack(taken)
        assert (acked.state, acked.repeated) == ("lost", False)
        assert (await harness.renew(taken.lease, seconds=60)).renewed == 0
        again = await harness.pop(queue, group)
        assert again.data == expected, "and no attempt is charged for it"
        await harness.store.messages.release(again.lease)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_a_seek_wakes_a_sleeping_lane_and_forgets_its_attempts(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=1, retry_delay_ms=60_000)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1])
    await harness.nack(await harness.pop(queue, group))
    assert not await harness.pop(queue, group)
    await harness.store.groups.seek(group.id, Seek("beginning"))
    taken = await harness.pop(queue, group)
    assert (taken.data, taken.lane.attempts) == ([0, 1], 0)
    assert not (await harness.nack(taken)).dead


async def test_a_seek_forgets_that_a_lease_was_lost(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=0)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    await harness.pop(queue, group)
    harness.clock.advance(5)
    await harness.store.groups.seek(group.id, Seek("beginning"))
    assert await harness.drain(queue, group) == [0, 1, 2]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_a_message_given_up_on_is_delivered_again_after_a_seek(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    group = await harness.group(queue)
    await harness.push(queue, ["bad"])
    await harness.nack(await harness.pop(queue, group), error="first")
    await harness.store.groups.seek(group.id, Seek("beginning"))
    harness.clock.advance(1)
    await harness.nack(await harness.pop(queue, group), error="second")
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.error == "second", "the later failure replaces the earlier one"
