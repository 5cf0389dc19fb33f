"""Pauses: paused, blocked and parked lanes deliver nothing, lose nothing, and resume where they stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.model.group import Seek
from fairlane.store.contract.values import DeadFilter
from tests.conformance.harness import Harness

POLICIES = ("block", "park")


async def use_up_attempts(harness: Harness, queue: object, **options: object) -> None:
    """Fail the first message of the only ready lane until no attempt is left."""
    while taken := await harness.pop(queue, **options):  # type: ignore[arg-type]
        await harness.nack(taken, error="poison")


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    other = await harness.queue("other")
    await harness.push(queue, [0])
    await harness.push(other, ["other"])
    assert await harness.store.pauses.pause(queue.id)
    await harness.push(queue, [1])
    assert not await harness.pop(queue)
    assert not await harness.pop(queue, group, partition=(await harness.partition(queue)).id)
    assert (await harness.pop(other)).data == ["other"]
    assert await harness.store.pauses.resume(queue.id)
    assert (await harness.pop(queue)).data == [0, 1]


async def test_a_paused_group_does_not_pause_another(harness: Harness) -> None:
    queue = await harness.queue()
    paused, other = await harness.group(queue, "paused"), await harness.group(queue, "other")
    await harness.push(queue, [0])
    assert await harness.store.pauses.pause(queue.id, group_id=paused.id)
    assert not await harness.pop(queue, paused)
    assert await harness.pop(queue, other)
    assert await harness.store.pauses.resume(queue.id, group_id=paused.id)
    assert await harness.pop(queue, paused)


async def test_a_paused_partition_is_paused_for_every_group_and_alone(harness: Harness) -> None:
    queue = await harness.queue()
    before = await harness.group(queue, "before")
    partition = await harness.partition(queue, "paused")
    await harness.push(queue, ["paused"], partition="paused")
    await harness.push(queue, ["other"], partition="other")
    assert await harness.store.pauses.pause(queue.id, partition=partition.id)
    after = await harness.group(queue, "after")
    for group in (before, after):
        assert await harness.drain(queue, group) == ["other"]
        assert (await harness.lane(group, partition.id)).stopped == "paused"
    await harness.push(queue, ["more"], partition="paused")
    assert await harness.store.pauses.resume(queue.id, partition=partition.id)
    for group in (before, after):
        assert await harness.drain(queue, group) == ["paused", "more"]


async def test_one_lane_is_paused_for_one_group(harness: Harness) -> None:
    queue = await harness.queue()
    group, other = await harness.group(queue, "paused"), await harness.group(queue, "other")
    partition = await harness.partition(queue)
    await harness.push(queue, [0])
    assert await harness.store.pauses.pause(queue.id, group_id=group.id, partition=partition.id)
    assert not await harness.pop(queue, group)
    assert (await harness.lane(group)).stopped == "parked"
    assert await harness.drain(queue, other) == [0]
    assert await harness.store.pauses.resume(queue.id, group_id=group.id, partition=partition.id)
    assert await harness.drain(queue, group) == [0]


async def test_who_holds_a_lease_when_its_lane_is_paused_may_finish(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue, batch=1)
    await harness.store.pauses.pause(queue.id)
    await harness.store.pauses.pause(queue.id, partition=taken.lane.partition)
    assert (await harness.ack(taken)).state == "ok"
    assert not await harness.pop(queue)
    await harness.store.pauses.resume(queue.id)
    assert not await harness.pop(queue), "the partition is paused by itself"
    await harness.store.pauses.resume(queue.id, partition=taken.lane.partition)
    assert (await harness.pop(queue)).data == [1]


async def test_what_is_paused_can_be_seen_and_survives(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue, "p")
    nothing = await harness.store.pauses.paused(queue.id)
    assert (nothing.queue_at, nothing.groups, nothing.partitions) == (None, {}, {})
    await harness.store.pauses.pause(queue.id)
    await harness.store.pauses.pause(queue.id, group_id=group.id)
    await harness.store.pauses.pause(queue.id, partition=partition.id)
    await harness.reopen()
    paused = await harness.store.pauses.paused(queue.id)
    at = harness.clock()
    assert (paused.queue_at, paused.groups, paused.partitions) == (at, {group.name: at}, {"p": at})
    harness.clock.advance(1)
    await harness.store.pauses.pause(queue.id)
    assert (await harness.store.pauses.paused(queue.id)).queue_at == at, "it is paused since the first time"


async def test_what_is_not_there_cannot_be_paused(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    assert not await harness.store.pauses.pause(2**40)
    assert not await harness.store.pauses.pause(queue.id, group_id=2**40)
    assert not await harness.store.pauses.pause(queue.id, group_id=2**40, partition=partition.id)
    other = await harness.partition(await harness.queue("other"), "p")
    assert not await harness.store.pauses.pause(queue.id, partition=other.id)


async def test_a_long_poll_of_a_paused_queue_is_answered_when_it_is_resumed(harness: Harness) -> None:
    broker = harness.broker
    name = harness.name("paused")
    await broker.push(name, 0)
    await broker.pauses.pause(name)
    poll = asyncio.create_task(broker.pop(name, wait=20))
    await asyncio.sleep(0.1)
    assert not poll.done()
    await broker.pauses.resume(name)
    async with asyncio.timeout(1.5):
        assert [delivery.data for delivery in await poll] == [0]


@pytest.mark.parametrize("policy", POLICIES)
async def test_poison_stops_its_lane_and_no_other(harness: Harness, policy: str) -> None:
    queue = await harness.queue(retry_limit=1, on_exhausted=policy)
    await harness.push(queue, ["poison", "behind"], partition="sick")
    await use_up_attempts(harness, queue, batch=1)
    group = await harness.group(queue)
    await harness.push(queue, ["more"], partition="sick")
    await harness.push(queue, ["well"], partition="healthy")
    assert await harness.drain(queue) == ["well"]
    lane = await harness.lane(group, (await harness.partition(queue, "sick")).id)
    assert (lane.committed, lane.attempts, lane.error, lane.ready_at) == (0, 2, "poison", None)
    assert lane.stopped == ("blocked" if policy == "block" else "parked")
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_consumer_that_dies_every_time_stops_the_lane_too(harness: Harness, policy: str) -> None:
    queue = await harness.queue(retry_limit=1, lease_seconds=1, on_exhausted=policy)
    await harness.push(queue, ["poison", "behind"])
    for _ in range(2):
        assert await harness.pop(queue)
        harness.clock.advance(1)
    taken = await harness.pop(queue)
    assert not taken
    assert taken.next_at is None
    lane = await harness.lane(taken.group)
    assert (lane.attempts, lane.stopped) == (2, "blocked" if policy == "block" else "parked")


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_resumed_lane_begins_its_attempts_anew_in_order(harness: Harness, policy: str) -> None:
    queue = await harness.queue(retry_limit=1, on_exhausted=policy)
    await harness.push(queue, ["poison", "behind"])
    await use_up_attempts(harness, queue, batch=1)
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    assert await harness.store.pauses.resume(queue.id, group_id=group.id, partition=partition.id)
    taken = await harness.pop(queue)
    assert taken.data == ["poison", "behind"]
    assert taken.lane.attempts == 0
    await harness.nack(taken)
    await use_up_attempts(harness, queue)
    assert (await harness.lane(group)).attempts == 2
    assert await harness.store.pauses.resume_lanes(group.id) == 1
    assert await harness.drain(queue) == ["poison", "behind"]
    assert await harness.store.pauses.resume_lanes(group.id) == 0


async def test_a_blocked_lane_goes_on_when_its_message_is_taken_away(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, on_exhausted="block")
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [0, 1, 2, 3])
    await use_up_attempts(harness, queue, batch=1)
    assert await harness.store.browse.dead_letter(partition.id, group.id, 0, "given up by hand") == "dead"
    await use_up_attempts(harness, queue, batch=1)
    assert (await harness.lane(group)).committed == 1
    assert await harness.store.browse.delete(partition.id, 1)
    await use_up_attempts(harness, queue, batch=1)
    assert (await harness.lane(group)).stopped == "blocked"
    await harness.store.groups.seek(group.id, Seek("position", 3))
    assert await harness.drain(queue) == [3]


async def test_a_parked_lane_stays_parked_whatever_becomes_of_its_message(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, on_exhausted="park")
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [0, 1])
    await use_up_attempts(harness, queue, batch=1)
    assert await harness.store.browse.delete(partition.id, 0)
    assert not await harness.pop(queue)
    await harness.store.browse.clear(queue.id)
    await harness.push(queue, [2])
    assert not await harness.pop(queue)
    assert (await harness.lane(group)).stopped == "parked"
    assert await harness.store.pauses.resume_lanes(group.id) == 1
    assert await harness.drain(queue) == [2]


@pytest.mark.parametrize(
    "change", [{"retry_limit": 5}, {"on_exhausted": "dead_letter"}], ids=lambda change: next(iter(change))
)
async def test_a_blocked_lane_goes_on_when_its_queue_is_configured_to(harness: Harness, change: dict[str, Any]) -> None:
    queue = await harness.queue(retry_limit=0, on_exhausted="block")
    await harness.push(queue, ["poison", "behind"])
    await use_up_attempts(harness, queue, batch=1)
    await harness.configure(queue, **{"retry_limit": 0, "on_exhausted": "block", **change})
    assert await harness.drain(queue) == (["poison", "behind"] if "retry_limit" in change else ["behind"])


async def test_a_lane_that_is_not_stopped_is_not_resumed(harness: Harness) -> None:
    queue = await harness.queue(retry_delay_ms=60_000)
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [0])
    await harness.nack(await harness.pop(queue))
    assert not await harness.store.pauses.resume(queue.id, group_id=group.id, partition=partition.id)
    assert not await harness.pop(queue), "it backs off as before"


async def test_a_stopped_lane_keeps_its_place_in_the_depth(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, on_exhausted="block", max_size=2)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1])
    await use_up_attempts(harness, queue, batch=1)
    assert await harness.store.queues.depth(queue.id) == 2
    await harness.store.pauses.resume_lanes(group.id)
    assert await harness.drain(queue) == [0, 1]
    assert await harness.store.queues.depth(queue.id) == 0


async def test_leases_are_kept_and_given_back_beside_many_stopped_lanes(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, on_exhausted="park")
    for number in range(5):
        await harness.push(queue, [number], partition=f"sick {number}")
        await use_up_attempts(harness, queue)
    await harness.push(queue, ["well"], partition="well")
    taken = await harness.pop(queue)
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 1
    assert len(await harness.store.messages.leased(taken.lease)) == 1
    assert await harness.store.messages.release(taken.lease) == 1
    assert await harness.drain(queue) == ["well"]


async def test_of_many_queues_those_that_are_paused_are_told_at_once(harness: Harness) -> None:
    queues = [await harness.queue() for _ in range(3)]
    await harness.store.pauses.pause(queues[1].id)
    assert await harness.store.pauses.queues([queue.id for queue in queues]) == {queues[1].id}
    await harness.store.pauses.resume(queues[1].id)
    assert await harness.store.pauses.queues([queue.id for queue in queues]) == set()


@pytest.mark.parametrize("policy", POLICIES)
async def test_stopped_lanes_are_found_among_all_others(harness: Harness, policy: str) -> None:
    queue = await harness.queue(retry_limit=1, on_exhausted=policy)
    await harness.push(queue, ["poison", "behind"], partition="sick")
    await use_up_attempts(harness, queue, batch=1)
    await harness.pop(queue)
    await harness.push(queue, ["well"], partition="healthy")
    [found] = await harness.store.statistics.stopped([queue.id])
    assert (found.queue_id, found.partition, found.error) == (queue.id, "sick", "poison")
    assert found.parked == (policy == "park")
    assert found.failed_at is not None
    assert await harness.store.statistics.stopped([]) == []
    group = await harness.group(queue)
    await harness.store.pauses.resume_lanes(group.id)
    assert await harness.store.statistics.stopped([queue.id]) == []
    await harness.store.pauses.pause(queue.id, partition=(await harness.partition(queue, "healthy")).id)
    await harness.pop(queue)
    assert await harness.store.statistics.stopped([queue.id]) == [], "a person paused that one"
