"""Expiry: old messages are not delivered. They become dead letters or are dropped, and are counted."""

from __future__ import annotations

import pytest

from fairlane.store.contract.values import DeadFilter, PopCall, PopClaim
from tests.conformance.harness import Harness

OPTIONS = ("ttl_seconds", "max_wait_seconds")


@pytest.mark.parametrize("option", OPTIONS)
async def test_a_message_expires_at_its_age_and_not_before(harness: Harness, option: str) -> None:
    queue = await harness.queue(**{option: 10})
    await harness.push(queue, ["old"])
    harness.clock.advance(1)
    await harness.push(queue, ["young"])
    harness.clock.advance(8.999)
    taken = await harness.pop(queue)
    assert taken.data == ["old", "young"]
    await harness.store.messages.release(taken.lease)
    harness.clock.advance(0.001)
    assert (await harness.pop(queue)).data == ["young"]


@pytest.mark.parametrize("option", OPTIONS)
async def test_an_expired_message_is_a_dead_letter_that_says_so(harness: Harness, option: str) -> None:
    queue = await harness.queue(**{option: 10})
    await harness.push(queue, ["old", "older"])
    harness.clock.advance(10)
    taken = await harness.pop(queue)
    assert not taken
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert [(letter.error, letter.attempts) for letter in letters] == [("expired", 0)] * 2
    lane = await harness.lane(taken.group)
    assert (lane.committed, lane.dead, lane.expired, lane.ready_at) == (2, 2, 0, None)


@pytest.mark.parametrize("option", OPTIONS)
async def test_an_expired_message_is_dropped_and_counted_where_the_queue_says_so(harness: Harness, option: str) -> None:
    queue = await harness.queue(on_expiry="drop", **{option: 10})
    await harness.push(queue, [0, 1, 2])
    harness.clock.advance(10)
    await harness.push(queue, [3])
    taken = await harness.pop(queue)
    assert taken.data == [3]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0
    lane = await harness.lane(taken.group)
    assert (lane.committed, lane.dead, lane.expired) == (3, 0, 3)


@pytest.mark.parametrize("on_expiry", ["drop", "dead_letter"])
async def test_a_pop_tells_how_many_messages_expired(harness: Harness, on_expiry: str) -> None:
    queue = await harness.queue(ttl_seconds=10, on_expiry=on_expiry)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    call = PopCall(queue_id=queue.id, group_id=group.id, claims=[PopClaim(harness.token(), batch=10)])
    harness.clock.advance(10)
    popped = await harness.store.messages.pop(call)
    assert (popped.lanes, popped.expired, popped.dead) == ([[]], 3, 0 if on_expiry == "drop" else 3)


async def test_a_message_that_failed_outlives_its_wait_but_not_its_ttl(harness: Harness) -> None:
    queue = await harness.queue(max_wait_seconds=10, ttl_seconds=20, retry_limit=5)
    await harness.push(queue, ["failed", "waited"])
    await harness.nack(await harness.pop(queue, batch=1))
    harness.clock.advance(10)
    again = await harness.pop(queue)
    assert again.data == ["failed", "waited"], "what stands behind an older message that is still tried waits with it"
    await harness.nack(again)
    harness.clock.advance(10)
    assert not await harness.pop(queue)
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert sorted((letter.position, letter.attempts) for letter in letters) == [(0, 2), (1, 0)]


async def test_who_holds_a_message_when_it_expires_may_finish_it(harness: Harness) -> None:
    queue = await harness.queue(ttl_seconds=10, lease_seconds=60)
    await harness.push(queue, [0])
    taken = await harness.pop(queue)
    harness.clock.advance(30)
    assert not await harness.store.messages.expire(queue.id, taken.group.id)
    assert (await harness.ack(taken)).state == "ok"
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_each_group_loses_only_what_it_has_not_finished(harness: Harness) -> None:
    queue = await harness.queue(ttl_seconds=10, on_expiry="drop")
    fast, slow = await harness.group(queue, "fast"), await harness.group(queue, "slow")
    await harness.push(queue, [0, 1])
    await harness.ack(await harness.pop(queue, fast))
    harness.clock.advance(10)
    assert not await harness.pop(queue, fast)
    assert not await harness.pop(queue, slow)
    assert [(await harness.lane(group)).expired for group in (fast, slow)] == [0, 2]


async def test_expired_messages_make_room_in_a_full_queue(harness: Harness) -> None:
    for policy in ("dead_letter", "drop"):
        queue = await harness.queue(max_size=3, ttl_seconds=10, on_expiry=policy)
        group = await harness.group(queue)
        await harness.push(queue, [0, 1, 2])
        harness.clock.advance(10)
        assert await harness.store.messages.expire(queue.id, group.id) == 3
        assert await harness.store.queues.depth(queue.id) == 0
        await harness.push(queue, [3, 4, 5])


async def test_messages_expire_though_nobody_pops(harness: Harness) -> None:
    queue = await harness.queue(ttl_seconds=10)
    group = await harness.group(queue)
    for name in ("a", "b", "c"):
        await harness.push(queue, [0, 1], partition=name)
    assert await harness.store.messages.expire(queue.id, group.id) == 0
    harness.clock.advance(10)
    await harness.push(queue, ["young"], partition="d")
    assert await harness.store.messages.expire(queue.id, group.id) == 6
    assert await harness.store.messages.expire(queue.id, group.id) == 0
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 6
    assert await harness.drain(queue) == ["young"]


async def test_a_deleted_message_does_not_expire(harness: Harness) -> None:
    for policy in ("dead_letter", "drop"):
        queue = await harness.queue(ttl_seconds=10, on_expiry=policy)
        group = await harness.group(queue)
        await harness.push(queue, [0, 1, 2])
        partition = await harness.partition(queue)
        await harness.store.browse.delete(partition.id, 1)
        harness.clock.advance(10)
        assert await harness.store.messages.expire(queue.id, group.id) == 2
        lane = await harness.lane(group)
        assert lane.dead + lane.expired == 2
        assert lane.committed == 3


async def test_a_long_backlog_expires_in_bounded_steps(harness: Harness) -> None:
    queue = await harness.queue(ttl_seconds=10)
    await harness.push(queue, list(range(2_500)))
    harness.clock.advance(10)
    await harness.push(queue, ["young"])
    while not (taken := await harness.pop(queue)):
        assert taken.next_at == harness.clock(), "a pop that had to stop asks to be called again"
    assert taken.data == ["young"]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 2_500


async def test_what_is_delivered_at_once_expires_as_well(harness: Harness) -> None:
    queue = await harness.queue(ttl_seconds=10, on_expiry="drop")
    await harness.push(queue, ["old"])
    harness.clock.advance(10)
    await harness.push(queue, ["young"])
    taken = await harness.pop(queue, auto_ack=True)
    assert taken.data == ["young"]
    lane = await harness.lane(taken.group)
    assert (lane.committed, lane.expired, lane.ready_at) == (2, 1, None)


async def test_a_broker_lets_messages_expire_in_queues_that_nobody_reads(harness: Harness) -> None:
    queue = await harness.queue(ttl_seconds=10)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1])
    harness.clock.advance(10)
    assert (queue.id, group.id) in await harness.store.messages.expiring()
    await harness.broker._engine.scheduler_loop.expire()
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 2
