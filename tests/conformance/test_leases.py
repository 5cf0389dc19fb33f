"""Leases: renewed, released, expired, and which message an expired one is charged to."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

import pytest

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.store.contract.values import DeadFilter, Nack, PopCall, PopClaim, PopResult, Renewal
from tests.conformance.harness import Harness

EXPIRED = "Partition lease expired"


async def test_renewing_extends_and_never_shortens(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    await harness.push(queue, [0])
    taken = await harness.pop(queue)
    ends_at = harness.clock() + 30_000_000
    renewed = await harness.renew(taken.lease, seconds=10)
    assert (renewed.renewed, renewed.expires_at) == (1, ends_at)
    renewed = await harness.renew(taken.lease, seconds=100)
    assert (renewed.renewed, renewed.expires_at) == (1, harness.clock() + 100_000_000)
    harness.clock.advance(99)
    assert not await harness.pop(queue)
    assert (await harness.ack(taken)).state == "ok"


async def test_renewing_reaches_every_lane_of_the_lease(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    for name in "abcdef":
        await harness.push(queue, [name], partition=name)
    taken = await harness.pop(queue, partitions=6)
    assert len(taken.lanes) == 6
    renewed = await harness.renew(taken.lease, seconds=90)
    assert (renewed.renewed, renewed.expires_at) == (6, harness.clock() + 90_000_000)
    leased = await harness.store.messages.leased(taken.lease)
    assert {one.ends_at for one in leased} == {harness.clock() + 90_000_000}
    assert {one.partition for one in leased} == {lane.partition for lane in taken.lanes}


async def test_renewals_of_one_call_do_not_depend_on_each_other(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    for name in "ab":
        await harness.push(queue, [name], partition=name)
    one, two = await harness.pop(queue), await harness.pop(queue)
    await harness.ack(one)
    never = LeaseId(two.group.id, uuid4())
    renewals = [Renewal(one.lease, 60), Renewal(two.lease, 90), Renewal(never, 60), Renewal(two.lease, 40)]
    outcomes = await harness.store.messages.renew(renewals)
    assert [outcome.renewed for outcome in outcomes] == [0, 1, 0, 1]
    [leased] = await harness.store.messages.leased(two.lease)
    assert leased.ends_at == harness.clock() + 90_000_000
    assert await harness.store.messages.renew([]) == []


async def test_a_lease_that_ended_or_never_was_cannot_be_renewed(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    await harness.push(queue, [0])
    await harness.push(queue, [1], partition="other")
    finished, lost = await harness.pop(queue), await harness.pop(queue)
    await harness.ack(finished)
    harness.clock.advance(30)
    for lease in (finished.lease, lost.lease, LeaseId(lost.group.id, uuid4()), LeaseId(2**62, uuid4())):
        renewed = await harness.renew(lease, seconds=60)
        assert (renewed.renewed, renewed.expires_at) == (0, None)
        assert await harness.store.messages.leased(lease) == []
    assert await harness.pop(queue), "a refused renewal must not hold the lane"


async def test_another_groups_lease_cannot_be_renewed_or_released_by_its_token(harness: Harness) -> None:
    queue = await harness.queue()
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, [0])
    taken = await harness.pop(queue, one)
    crossed = LeaseId(two.id, taken.token)
    assert (await harness.renew(crossed, seconds=60)).renewed == 0
    assert await harness.store.messages.release(crossed) == 0
    assert not await harness.pop(queue, one)


async def test_releasing_gives_the_lane_back_at_once_without_charge(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    await harness.push(queue, [0, 1, 2])
    for _ in range(3):
        taken = await harness.pop(queue)
        assert (taken.data, taken.lane.attempts) == ([0, 1, 2], 0)
        assert await harness.store.messages.release(taken.lease) == 1
        assert await harness.store.messages.release(taken.lease) == 0
        assert (await harness.ack(taken)).state == "lost"
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_one_lane_of_a_lease_can_be_released_alone(harness: Harness) -> None:
    queue = await harness.queue()
    for name in "abc":
        await harness.push(queue, [name], partition=name)
    taken = await harness.pop(queue, partitions=3)
    lane = taken.lanes[1]
    assert await harness.store.messages.release(taken.lease, partition=lane.partition) == 1
    assert await harness.store.messages.release(taken.lease, partition=lane.partition) == 0
    assert (await harness.pop(queue)).lane.partition == lane.partition
    assert len(await harness.store.messages.leased(taken.lease)) == 2
    assert await harness.store.messages.release(taken.lease) == 2


async def test_a_released_lane_goes_on_behind_what_was_finished(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    await harness.ack(taken, 1)
    await harness.store.messages.release(taken.lease)
    assert await harness.drain(queue) == [1, 2]


async def test_a_lease_that_ran_out_cannot_be_released(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    harness.clock.advance(5)
    assert await harness.store.messages.release(taken.lease) == 0
    assert (await harness.pop(queue)).lane.attempts == 1, "the loss must still be charged"


async def test_a_lease_ends_at_its_end_and_not_before(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    harness.clock.advance(4.999_999)
    assert not await harness.pop(queue)
    assert (await harness.ack(taken, 1)).state == "ok"
    harness.clock.advance(0.000_001)
    assert (await harness.ack(taken)).state == "lost", "refused though nobody took the lane yet"
    assert (await harness.pop(queue)).data == [1]


async def test_a_lane_is_handed_over_without_loss(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    await harness.push(queue, [0, 1, 2, 3])
    slow = await harness.pop(queue)
    await harness.ack(slow, 1)
    harness.clock.advance(6)
    heir = await harness.pop(queue)
    assert heir.data[0] == 1
    for stale in (
        harness.ordered_ack(slow, 4),
        harness.ordered_ack(slow, nack=Nack(1, charge=True, error="x")),
    ):
        assert (await harness.apply(stale)).state == "lost"
    assert (await harness.renew(slow.lease, seconds=60)).renewed == 0
    assert await harness.store.messages.release(slow.lease) == 0
    seen = heir.data
    assert (await harness.ack(heir)).state == "ok"
    assert seen + await harness.drain(queue) == [1, 2, 3]


async def test_a_lost_lease_is_charged_to_its_first_unfinished_message_alone(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=5)
    await harness.push(queue, [0, 1, 2, 3])
    taken = await harness.pop(queue)
    await harness.ack(taken, 1)
    harness.clock.advance(5)
    for position in (1, 2, 3):
        taken = await harness.pop(queue)
        assert taken.positions == [position], "one at a time, so that the poison is found alone"
        assert taken.lane.attempts == (1 if position == 1 else 0)
        if position == 1:
            assert (await harness.lane(taken.group)).error == EXPIRED
        await harness.ack(taken)


async def test_batches_are_whole_again_once_the_lost_one_is_passed(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=5)
    await harness.push(queue, list(range(8)))
    await harness.pop(queue, batch=3)
    harness.clock.advance(5)
    sizes = []
    while taken := await harness.pop(queue):
        sizes.append(len(taken.data))
        await harness.ack(taken)
    assert sizes == [1, 1, 1, 5]


async def test_a_pop_with_auto_ack_takes_of_each_lane_once(harness: Harness) -> None:
    """This also holds for a group whose lanes filled every pop so far: a suspected poison message comes alone."""
    queue = await harness.queue(lease_seconds=10)
    await harness.push(queue, [1])
    assert (await harness.pop(queue, batch=1, partitions=3)).data == [1]
    await harness.push(queue, [2])
    harness.clock.advance(20)
    assert (await harness.pop(queue, batch=3, partitions=3, auto_ack=True)).data == [1]
    assert (await harness.pop(queue, batch=3, partitions=3, auto_ack=True)).data == [2]


async def test_a_nack_or_release_does_not_end_the_search_for_the_poison(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=5)
    await harness.push(queue, [0, 1, 2])
    await harness.pop(queue)
    harness.clock.advance(5)
    await harness.nack(await harness.pop(queue))
    await harness.store.messages.release((await harness.pop(queue)).lease)
    assert (await harness.pop(queue)).positions == [0]


async def test_the_poison_dies_and_its_neighbours_live(harness: Harness) -> None:
    """The consumer dies whenever it holds message 2, whatever other messages it holds."""
    queue = await harness.queue(lease_seconds=5, retry_limit=2)
    await harness.push(queue, [0, 1, 2, 3, 4, 5])
    finished: list[int] = []
    deliveries = 0
    for _ in range(20):
        taken = await harness.pop(queue, batch=5)
        if not taken:
            break
        deliveries += 2 in taken.data
        if 2 in taken.data:
            harness.clock.advance(5)
        else:
            finished += taken.data
            assert (await harness.ack(taken)).state == "ok"
    assert finished == [0, 1, 3, 4, 5]
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.position, letter.attempts, letter.error) == (2, 3, EXPIRED)
    assert deliveries == 1 + 3, "once among others, then alone as often as its limit allows"


@pytest.mark.parametrize("limit", [0, 1, 3], ids=lambda limit: f"limit{limit}")
async def test_a_message_whose_consumer_dies_every_time_is_dead_lettered(harness: Harness, limit: int) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=limit)
    await harness.push(queue, ["killer"])
    deliveries = 0
    while await harness.pop(queue):
        deliveries += 1
        harness.clock.advance(5)
    assert deliveries == limit + 1
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.attempts, letter.error) == (limit + 1, EXPIRED)
    lane = (await harness.store.groups.lanes((await harness.group(queue)).id))[0]
    assert (lane.committed, lane.head, lane.ready_at) == (1, 1, None)
    await harness.push(queue, ["next"])
    assert await harness.drain(queue) == ["next"]


async def test_lost_leases_and_nacks_add_up(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=2)
    await harness.push(queue, ["bad"])
    await harness.pop(queue)
    harness.clock.advance(5)
    assert not (await harness.nack(await harness.pop(queue), error="second")).dead
    taken = await harness.pop(queue)
    assert taken.lane.attempts == 2
    assert (await harness.nack(taken, error="third")).dead


async def test_a_lost_lease_backs_off_nobody_else(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    await harness.push(queue, ["a"], partition="a")
    await harness.pop(queue)
    await harness.push(queue, ["b"], partition="b")
    assert await harness.drain(queue) == ["b"]


async def test_a_partly_acked_lease_that_is_lost_is_not_charged_to_the_acked(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=0)
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    await harness.ack(taken, 2)
    harness.clock.advance(5)
    assert not await harness.drain(queue)
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert [letter.position for letter in letters] == [2]


async def test_an_auto_acked_batch_is_never_charged(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=0)
    await harness.push(queue, [0, 1])
    await harness.pop(queue, batch=1, auto_ack=True)
    harness.clock.advance(60)
    assert await harness.drain(queue) == [1]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_the_lane_shows_its_lease(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue, batch=2)
    lane = await harness.lane(taken.group)
    assert (lane.leased_until, lane.lease_ends_at) == (2, harness.clock() + 30_000_000)
    assert (lane.committed, lane.head, lane.attempts, lane.error) == (0, 3, 0, None)
    harness.clock.advance(30)
    assert (await harness.lane(taken.group)).leased_until is None


async def test_clock_steps_of_the_brokers_host_do_not_matter(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    await harness.reopen(own_clock=True)
    queue = await harness.queue(lease_seconds=60)
    await harness.push(queue, [0])
    taken = await harness.pop(queue)
    real = time.time_ns
    try:
        for hours in (2, -2, 24 * 365):
            step = hours * 3_600_000_000_000
            monkeypatch.setattr(time, "time_ns", lambda step=step: real() + step)
            assert not await harness.pop(queue), "the lease must live on"
            await harness.push(queue, [hours])
            renewed = await harness.renew(taken.lease, seconds=60)
            assert renewed.expires_at is not None
            assert abs(renewed.expires_at - real() // 1000 - 60_000_000) < 30_000_000
    finally:
        monkeypatch.setattr(time, "time_ns", real)
    assert (await harness.ack(taken)).state == "ok"
    assert await harness.drain(queue) == [2, -2, 24 * 365]


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_pop_tells_of_leases_that_ran_out_and_of_messages_it_gave_up_on(
    harness: Harness, ordering: str
) -> None:
    queue = await harness.queue(lease_seconds=5, retry_limit=1, ordering=ordering)
    group = await harness.group(queue)
    for name in ("a", "b"):
        await harness.push(queue, [name], partition=name)

    async def pop(partition: PartitionId | None) -> PopResult:
        claim = PopClaim(UUID(harness.mint()), batch=10)
        call = PopCall(queue_id=queue.id, group_id=group.id, claims=[claim], partition=partition)
        return await harness.store.messages.pop(call)

    told: list[PopResult] = []
    for _ in range(3):
        for name in ("a", "b"):
            told.append(await pop((await harness.partition(queue, name)).id))
        harness.clock.advance(6)
    assert [(result.leases_lost, result.dead) for result in told] == [(0, 0)] * 2 + [(1, 0)] * 2 + [(1, 1)] * 2
    assert [[lane.attempts for lane in result.lanes[0]] for result in told] == [[0], [0], [1], [1], [], []]


@pytest.mark.parametrize("finished", [0, 1])
async def test_a_lease_released_before_anything_was_finished_leaves_the_last_one_known(
    harness: Harness, finished: int
) -> None:
    """The next messages were lost on their way together with the answer to the ack, which is repeated."""
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2])
    first = await harness.pop(queue, batch=1)
    await harness.ack(first)
    second = await harness.pop(queue)
    if finished:
        await harness.ack(second, 2)
    await harness.store.messages.release(second.lease)
    assert (await harness.ack(first)).repeated == (not finished)
    assert (await harness.apply(harness.ordered_ack(second, 2))).repeated == bool(finished)
    assert (await harness.pop(queue)).data == [1, 2][finished:]
