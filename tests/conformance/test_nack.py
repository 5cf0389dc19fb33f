"""Nack at the store: the same message is redelivered with a growing delay until its attempts are used up."""

from __future__ import annotations

import pytest

from fairlane.store.contract.values import DeadFilter, LaneAck, Nack
from tests.conformance.harness import Harness


async def test_after_a_nack_the_same_message_comes_next(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    acked = await harness.nack(taken, 1, upto=1, error="no luck")
    assert (acked.state, acked.before, acked.after) == ("ok", 0, 1)
    assert acked.released
    assert not acked.dead
    lane = await harness.lane(taken.group)
    assert (lane.committed, lane.attempts, lane.error, lane.leased_until) == (1, 1, "no luck", None)
    again = await harness.pop(queue)
    assert again.data == [1, 2]
    assert again.lane.attempts == 1


async def test_a_nack_without_charge_counts_no_attempt(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, retry_delay_ms=60_000)
    await harness.push(queue, [0])
    for _ in range(5):
        taken = await harness.pop(queue)
        assert taken.lane.attempts == 0
        acked = await harness.nack(taken, charge=False)
        assert acked.released
        assert not acked.dead


async def test_a_nack_with_a_delay_lets_the_lane_sleep_and_no_other(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["a"], partition="a")
    taken = await harness.pop(queue)
    await harness.push(queue, ["b"], partition="b")
    await harness.nack(taken, charge=False, delay_ms=5_000)
    assert await harness.drain(queue) == ["b"]
    harness.clock.advance(4.999)
    assert not await harness.pop(queue)
    harness.clock.advance(0.001)
    assert (await harness.pop(queue)).data == ["a"]


async def test_a_push_does_not_wake_a_lane_that_backs_off(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0])
    await harness.nack(await harness.pop(queue), delay_ms=5_000)
    await harness.push(queue, [1])
    assert not await harness.pop(queue)
    harness.clock.advance(5)
    assert (await harness.pop(queue)).data == [0, 1]


async def test_backoff_doubles_up_to_its_cap_and_begins_anew_with_the_next_message(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=20, retry_delay_ms=1_000, retry_delay_max_ms=5_000)
    await harness.push(queue, [0, 1])
    sleeps = []
    for _ in range(5):
        taken = await harness.pop(queue)
        await harness.nack(taken)
        ready_at = (await harness.lane(taken.group)).ready_at
        assert ready_at is not None
        sleeps.append((ready_at - harness.clock()) // 1000)
        harness.clock.at = ready_at
    assert sleeps == [1_000, 2_000, 4_000, 5_000, 5_000]
    taken = await harness.pop(queue)
    await harness.nack(taken, 1, upto=1)
    ready_at = (await harness.lane(taken.group)).ready_at
    assert ready_at == harness.clock() + 1_000_000


async def test_jitter_spreads_a_sleep_over_half_to_all_of_its_length(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0xFFF, retry_delay_ms=8_000, retry_jitter=True)
    group = await harness.group(queue)
    for partition in await harness.store.queues.ensure_partitions(queue.id, [f"p{n}" for n in range(20)]):
        await harness.push(queue, [1], partition=partition.name)
        await harness.nack(await harness.pop(queue, group, partition=partition.id))
    lanes = await harness.store.groups.lanes(group.id)
    sleeps = {lane.ready_at - harness.clock() for lane in lanes if lane.ready_at is not None}
    assert all(4_000_000 <= sleep <= 8_000_000 for sleep in sleeps)
    assert len(sleeps) > 10


async def test_the_longest_backoff_does_not_overflow(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=10_000, retry_delay_ms=1_000, retry_delay_max_ms=10_000)
    group = await harness.group(queue)
    await harness.push(queue, [0])
    for _ in range(70):
        await harness.nack(await harness.pop(queue, group))
        harness.clock.advance(10)
    assert (await harness.lane(group)).attempts == 70


@pytest.mark.parametrize("limit", [0, 1, 3], ids=lambda limit: f"limit{limit}")
async def test_a_failing_message_is_dead_after_its_last_attempt_and_the_lane_goes_on(
    harness: Harness, limit: int
) -> None:
    queue = await harness.queue(retry_limit=limit)
    await harness.push(queue, ["bad", "good"])
    for attempt in range(limit + 1):
        taken = await harness.pop(queue)
        assert taken.data == ["bad", "good"]
        acked = await harness.nack(taken, error=f"attempt {attempt}")
        assert acked.released, "a nack always lets go of the lane"
        assert (acked.dead, acked.after) == ((True, 1) if attempt == limit else (False, 0))
    taken = await harness.pop(queue)
    assert (taken.data, taken.lane.attempts) == (["good"], 0)
    await harness.ack(taken)
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.position, letter.attempts, letter.error) == (0, limit + 1, f"attempt {limit}")
    assert (await harness.lane(taken.group)).dead == 1


async def test_a_dead_message_does_not_charge_the_next(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=1)
    await harness.push(queue, ["bad", "worse"])
    dead = []
    for _ in range(4):
        dead.append((await harness.nack(await harness.pop(queue))).dead)
    assert dead == [False, True, False, True]


async def test_a_nack_below_the_cursor_changes_nothing(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    await harness.ack(taken, 2)
    acked = await harness.nack(taken, 1)
    assert acked.state == "ok"
    assert acked.after == 2 > 1
    assert not acked.dead
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0
    assert (await harness.lane(taken.group)).committed == 2


async def test_a_nack_without_a_lease_ends_the_lease_of_whoever_holds_the_lane(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    bare = LaneAck(
        partition=taken.lane.partition,
        group_id=taken.group.id,
        token=None,
        nacks=[Nack(0, charge=True, error="bare")],
    )
    acked = await harness.apply(bare)
    assert (acked.state, acked.released) == ("ok", True)
    assert (await harness.ack(taken)).state == "lost"
    again = await harness.pop(queue)
    assert (again.data, again.lane.attempts) == ([0, 1], 1)
