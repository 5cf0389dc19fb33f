"""Pop at the store: ready lanes are leased to one holder each, longest-ready first, in position order."""

from __future__ import annotations

from uuid import uuid4

import pytest

from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.limits import MESSAGE_BYTES_MAX, POP_BYTES_MAX
from fairlane.model.queue import Queue
from fairlane.store.contract.values import PopCall, PopClaim, PopResult
from tests.conformance.harness import Harness


async def claim(harness: Harness, queue: Queue, group: Group, *wants: tuple[int, int]) -> PopResult:
    """Make one call with a claim for each (batch, partitions)."""
    claims = [PopClaim(uuid4(), batch, partitions) for batch, partitions in wants]
    return await harness.store.messages.pop(PopCall(queue_id=queue.id, group_id=group.id, claims=claims))


def shape(result: PopResult) -> list[list[tuple[str, int, int]]]:
    return [[(lane.name, lane.first, lane.upto) for lane in lanes] for lanes in result.lanes]


async def test_an_empty_queue_yields_nothing(harness: Harness) -> None:
    queue = await harness.queue()
    taken = await harness.pop(queue)
    assert not taken
    assert taken.next_at is None
    await harness.partition(queue, "empty lane")
    assert not await harness.pop(queue)


async def test_a_batch_is_what_asked_for_or_what_there_is(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2, 3, 4])
    taken = await harness.pop(queue, batch=3)
    assert (taken.data, taken.positions) == ([0, 1, 2], [0, 1, 2])
    await harness.ack(taken)
    assert (await harness.pop(queue, batch=3)).data == [3, 4]


async def test_a_batch_spans_segments(harness: Harness) -> None:
    queue = await harness.queue()
    for start in range(0, 10, 2):
        await harness.push(queue, [start, start + 1])
    taken = await harness.pop(queue, batch=5)
    assert taken.data == [0, 1, 2, 3, 4]
    await harness.ack(taken, 3)
    await harness.store.messages.release(taken.lease)
    assert (await harness.pop(queue, batch=5)).data == [3, 4, 5, 6, 7]


async def test_a_held_partition_yields_nothing_to_others(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["a", "b"])
    assert (await harness.pop(queue, batch=1)).data == ["a"]
    assert not await harness.pop(queue)
    assert not await harness.pop(queue, partition=(await harness.partition(queue)).id)
    assert not await harness.pop(queue, auto_ack=True)


async def test_a_held_partition_does_not_delay_another(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["a1", "a2"], partition="a")
    assert (await harness.pop(queue, batch=1)).data == ["a1"]
    await harness.push(queue, ["b1"], partition="b")
    assert (await harness.pop(queue)).data == ["b1"]


async def test_groups_hold_a_partition_each_for_themselves(harness: Harness) -> None:
    queue = await harness.queue()
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, ["a", "b"])
    first = await harness.pop(queue, one)
    second = await harness.pop(queue, two)
    assert first.data == second.data == ["a", "b"]
    await harness.ack(first)
    assert not await harness.pop(queue, two)
    assert (await harness.ack(second)).state == "ok"


async def test_the_batch_is_a_budget_over_all_lanes_of_a_claim(harness: Harness) -> None:
    queue = await harness.queue()
    a, b, c = [partition.name for partition in await harness.neighbours(queue, 3)]
    for name in (a, b, c):
        await harness.push(queue, [1, 2, 3], partition=name)
        harness.clock.advance(1)
    taken = await harness.pop(queue, batch=5, partitions=10)
    assert [(lane.name, lane.upto - lane.first) for lane in taken.lanes] == [(a, 3), (b, 2)]
    assert [(lane.name, lane.first) for lane in (await harness.pop(queue, partitions=10)).lanes] == [(c, 0)]


async def test_a_claim_gets_no_more_lanes_than_it_wants(harness: Harness) -> None:
    queue = await harness.queue()
    for name in ("a", "b", "c"):
        await harness.push(queue, [name], partition=name)
    assert len((await harness.pop(queue, partitions=2)).lanes) == 2
    assert len((await harness.pop(queue, partitions=2)).lanes) == 1


async def test_claims_of_one_call_share_the_lanes_and_none_gets_anothers(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    names = [partition.name for partition in await harness.neighbours(queue, 5)]
    for name in names:
        await harness.push(queue, [1, 2], partition=name)
        harness.clock.advance(1)
    result = await claim(harness, queue, group, (1, 1), (9, 2), (9, 1), (9, 9), (9, 1))
    taken = [[name for name, _, _ in lanes] for lanes in shape(result)]
    assert [len(lanes) for lanes in taken] == [1, 2, 1, 1, 0]
    assert sorted(name for lanes in taken for name in lanes) == sorted(names)
    assert shape(result)[0] == [(names[0], 0, 1)]


async def test_every_claim_has_a_lease_of_its_own(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    for name in "ab":
        await harness.push(queue, [name], partition=name)
    claims = [PopClaim(uuid4(), 1), PopClaim(uuid4(), 1)]
    call = PopCall(queue_id=queue.id, group_id=group.id, claims=claims)
    result = await harness.store.messages.pop(call)
    for one, [lane] in zip(claims, result.lanes, strict=True):
        [leased] = await harness.store.messages.leased(LeaseId(group.id, one.token))
        assert leased.partition == lane.partition


async def test_lanes_come_longest_ready_first(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    third, first, second = await harness.neighbours(queue, 3)
    for number, partition in enumerate((first, second, third)):
        await harness.push(queue, [number, number], partition=partition.name)
        harness.clock.advance(1)
    seen = []
    for _ in range(6):
        taken = await harness.pop(queue, group, batch=1)
        seen += taken.data
        harness.clock.advance(1)
        await harness.ack(taken)
    assert seen == [0, 1, 2] * 2


async def test_only_the_lane_named_is_taken(harness: Harness) -> None:
    queue = await harness.queue()
    for name in ("a", "b"):
        await harness.push(queue, [name], partition=name)
    wanted = await harness.partition(queue, "b")
    taken = await harness.pop(queue, partition=wanted.id, partitions=5)
    assert taken.data == ["b"]
    assert not await harness.pop(queue, partition=wanted.id)
    unknown = PartitionId(0, 2**62)
    assert not await harness.pop(queue, partition=unknown)
    assert (await harness.pop(queue)).data == ["a"]


async def test_a_lane_of_another_queue_is_not_taken(harness: Harness) -> None:
    queue, other = await harness.queue(), await harness.queue()
    await harness.push(other, ["secret"])
    foreign = await harness.partition(other)
    assert not await harness.pop(queue, partition=foreign.id)
    assert (await harness.pop(other)).data == ["secret"]


async def test_auto_ack_finishes_at_delivery(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue, group, batch=2, auto_ack=True)
    assert taken.data == [0, 1]
    lane = await harness.lane(group)
    assert (lane.committed, lane.leased_until) == (2, None)
    assert await harness.store.messages.leased(taken.lease) == []
    assert (await harness.pop(queue, group, auto_ack=True)).data == [2]
    assert not await harness.pop(queue, group, auto_ack=True)
    assert (await harness.lane(group)).ready_at is None
    await harness.push(queue, [3])
    assert (await harness.pop(queue, group, auto_ack=True)).data == [3]


async def test_the_lease_lasts_as_long_as_the_queue_says_unless_the_call_says(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=40)
    for name in ("a", "b"):
        await harness.push(queue, [name], partition=name)
    assert (await harness.pop(queue)).lane.lease_ends_at == harness.clock() + 40_000_000
    assert (await harness.pop(queue, lease_seconds=5)).lane.lease_ends_at == harness.clock() + 5_000_000
    harness.clock.advance(6)
    assert (await harness.pop(queue)).lane.lease_ends_at == harness.clock() + 40_000_000


async def test_an_empty_answer_tells_when_a_sleeping_lane_is_due(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    await harness.push(queue, ["a"])
    taken = await harness.pop(queue)
    assert (await harness.pop(queue)).next_at == harness.clock() + 30_000_000
    await harness.nack(taken, delay_ms=7_000)
    assert (await harness.pop(queue)).next_at == harness.clock() + 7_000_000


async def test_a_delivery_counts_the_failed_attempts_of_its_first_message(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=9)
    await harness.push(queue, ["a", "b"])
    for attempts in range(3):
        taken = await harness.pop(queue)
        assert taken.lane.attempts == attempts
        await harness.nack(taken)
    taken = await harness.pop(queue)
    await harness.ack(taken, 1)
    await harness.store.messages.release(taken.lease)
    taken = await harness.pop(queue)
    assert (taken.data, taken.lane.attempts) == (["b"], 0)


async def test_a_pop_of_a_group_or_queue_that_is_gone_says_so(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue, "doomed")
    await harness.push(queue, ["a"])
    await harness.store.groups.delete(group.id)
    result = await claim(harness, queue, group, (1, 1), (1, 1))
    assert result.gone
    assert result.lanes == [[], []]
    call = PopCall(queue_id=2**62, group_id=2**62, claims=[PopClaim(uuid4(), 1)])
    assert (await harness.store.messages.pop(call)).gone


async def test_a_group_of_another_queue_takes_nothing(harness: Harness) -> None:
    queue, other = await harness.queue(), await harness.queue()
    stranger = await harness.group(other, "stranger")
    await harness.push(queue, ["a"])
    result = await claim(harness, queue, stranger, (1, 1))
    assert result.lanes == [[]]
    assert (await harness.pop(queue)).data == ["a"]


async def test_an_answer_is_bounded_in_bytes_and_never_empty_for_it(harness: Harness) -> None:
    queue = await harness.queue()
    big = "x" * (MESSAGE_BYTES_MAX - 100)
    for _ in range(3):
        await harness.push(queue, [big] * 3)
    taken = await harness.pop(queue, batch=100)
    delivered = taken.lane.upto - taken.lane.first
    assert 1 <= delivered * len(big) <= POP_BYTES_MAX
    assert delivered < 9
    assert (await harness.ack(taken)).released
    assert (await harness.pop(queue, batch=1)).lane.first == delivered


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_pop_takes_what_fits_into_its_bytes_and_at_least_one_message(harness: Harness, ordering: str) -> None:
    queue = await harness.queue(ordering=ordering)
    for _ in range(3):
        await harness.push(queue, ["x" * 10_000] * 3)
    taken = await harness.pop(queue, batch=100, bytes_max=45_000)
    assert 1 <= taken.lane.upto - taken.lane.first <= 4
    small = await harness.pop(queue, await harness.group(queue, "other"), batch=100, bytes_max=1)
    assert small.lane.upto - small.lane.first == 1


async def test_a_thousand_lanes_are_all_served_once(harness: Harness) -> None:
    queue = await harness.queue()
    partitions = await harness.store.queues.ensure_partitions(queue.id, [f"{n:04}" for n in range(1000)])
    await harness.store.messages.push([harness.slice(queue, p, [p.name]) for p in partitions])
    group = await harness.group(queue)
    seen: list[str] = []
    while lanes := (await claim(harness, queue, group, *[(100, 100)] * 3)).lanes:
        names = [lane.name for each in lanes for lane in each]
        if not names:
            break
        seen += names
    assert sorted(seen) == [f"{n:04}" for n in range(1000)]


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_slow_pop_takes_no_lane_twice(harness: Harness, ordering: str) -> None:
    """A claim over several lanes may take several statements, the last of them after the lease of the first."""
    queue = await harness.queue(ordering=ordering, lease_seconds=5)
    group = await harness.group(queue)
    await harness.push(queue, ["y0", "y1", "y2"], partition="y")
    assert (await harness.pop(queue, group, batch=1, auto_ack=True)).data == ["y0"]
    harness.clock.advance(1)
    await harness.push(queue, ["z0"], partition="z")
    harness.clock.step = 20
    result = await claim(harness, queue, group, (5, 5))
    harness.clock.step = 0
    assert sorted(shape(result)[0]) == [("y", 1, 3), ("z", 0, 1)]
    assert result.leases_lost == 0
