"""Unordered queues: many consumers share a partition, and each message is acked separately."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from fairlane.errors import Conflict, InvalidRequest
from fairlane.model.group import Group, Seek
from fairlane.model.lease import LeaseId
from fairlane.model.queue import Queue, queue_options
from fairlane.model.segment import messages
from fairlane.store.contract.values import (
    AckResult,
    DeadFilter,
    Full,
    LaneAck,
    Nack,
    PopCall,
    PopClaim,
    Stored,
    ToDeadLetter,
)
from tests.conformance.harness import Harness, Taken


async def unordered(harness: Harness, **options: Any) -> Queue:
    return await harness.queue("jobs", ordering="unordered", **options)


def unordered_ack(taken: Taken, *done: int | tuple[int, int], **more: Any) -> LaneAck:
    """Ack messages of the only partition taken; a number stands for one position."""
    [partition] = {lane.partition for lane in taken.lanes}
    ranges = [(one, one + 1) if isinstance(one, int) else one for one in done]
    more.setdefault("token", taken.token)
    return LaneAck(partition=partition, group_id=taken.group.id, unordered=True, done=ranges, **more)


async def apply_unordered(harness: Harness, verdicts: LaneAck) -> AckResult:
    [acked] = await harness.store.messages.ack([verdicts])
    return acked


async def finish(harness: Harness, taken: Taken) -> None:
    done = [(lane.first, lane.upto) for lane in taken.lanes]
    assert (await apply_unordered(harness, unordered_ack(taken, *done))).state == "ok"


async def drain(harness: Harness, queue: Queue, group: Group | None = None) -> list[Any]:
    seen: list[Any] = []
    while taken := await harness.pop(queue, group, batch=7):
        seen += taken.data
        await finish(harness, taken)
    return seen


async def test_consumers_share_a_partition_and_no_message_is_in_two_hands(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, list(range(10)))
    one, two, three = [await harness.pop(queue, batch=4) for _ in range(3)]
    assert [one.data, two.data, three.data] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert not await harness.pop(queue)
    await finish(harness, two)
    await harness.push(queue, [10])
    assert (await harness.pop(queue)).data == [10], "what is in other hands keeps nothing back"
    lane = await harness.lane(one.group)
    assert (lane.committed, lane.head) == (0, 11)
    await finish(harness, one)
    assert (await harness.lane(one.group)).committed == 8


@pytest.mark.parametrize("partitions", [1, 2, 9])
@pytest.mark.parametrize("batch", [1, 3, 4, 100])
async def test_claims_of_one_call_share_out_lanes_of_any_length(harness: Harness, batch: int, partitions: int) -> None:
    """A lane serves several claims and a claim takes from several lanes. Each message has one holder."""
    queue = await unordered(harness)
    group = await harness.group(queue)
    sizes = {"a": 1, "b": 7, "c": 3, "d": 4, "e": 2}
    for name, size in sizes.items():
        await harness.push(queue, list(range(size)), partition=name)
    taken: dict[str, list[tuple[int, int]]] = {name: [] for name in sizes}
    while True:
        claims = [PopClaim(uuid4(), batch, partitions) for _ in range(3)]
        result = await harness.store.messages.pop(PopCall(queue_id=queue.id, group_id=group.id, claims=claims))
        if not any(result.lanes):
            break
        for claim, lanes in zip(claims, result.lanes, strict=True):
            assert sum(lane.upto - lane.first for lane in lanes) <= batch
            assert len({lane.partition for lane in lanes}) <= partitions
            held = await harness.store.messages.leased(LeaseId(group.id, claim.token))
            assert sorted((one.partition, one.first, one.upto) for one in held) == sorted(
                (lane.partition, lane.first, lane.upto) for lane in lanes
            )
            for lane in lanes:
                taken[lane.name].append((lane.first, lane.upto))
                found = [bytes(message.raw) for message in messages(lane.segments, lane.first, lane.upto)]
                assert found == [b"%d" % number for number in range(lane.first, lane.upto)]
    for name, size in sizes.items():
        rising = sorted(taken[name])
        assert [first for first, _ in rising] == [0, *(upto for _, upto in rising[:-1])]
        assert rising[-1][1] == size
    await harness.push(queue, ["more"], partition="c")
    assert (await harness.pop(queue, group)).data == ["more"], "a lane that was emptied wakes up again"


async def test_each_message_is_acked_for_itself_in_any_order(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, list(range(5)))
    taken = await harness.pop(queue)
    for position in (3, 1):
        acked = await apply_unordered(harness, unordered_ack(taken, position))
        assert (acked.state, acked.released) == ("ok", False)
    assert await harness.store.queues.depth(queue.id) == 3
    held = await harness.store.messages.leased(taken.lease)
    assert [(one.first, one.upto) for one in held] == [(0, 1), (2, 3), (4, 5)]
    acked = await apply_unordered(harness, unordered_ack(taken, (0, 5)))
    assert (acked.state, acked.finished, acked.released) == ("ok", [1, 3], True)
    assert await harness.store.queues.depth(queue.id) == 0
    assert (await harness.lane(taken.group)).committed == 5


async def test_repeating_an_ack_finds_it_done(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    await finish(harness, taken)
    acked = await apply_unordered(harness, unordered_ack(taken, (0, 2)))
    assert (acked.state, acked.finished, acked.lost) == ("ok", [0, 1], [])


async def test_a_failed_message_comes_again_alone_and_its_neighbours_do_not(harness: Harness) -> None:
    queue = await unordered(harness, retry_delay_ms=1_000)
    await harness.push(queue, list(range(4)))
    taken = await harness.pop(queue)
    nack = Nack(2, charge=True, error="no luck")
    acked = await apply_unordered(harness, unordered_ack(taken, 0, 1, 3, nacks=[nack]))
    assert (acked.state, acked.died) == ("ok", [])
    empty = await harness.pop(queue)
    assert not empty
    assert empty.next_at == harness.clock() + 1_000_000
    harness.clock.advance(1)
    again = await harness.pop(queue)
    assert (again.data, again.lane.attempts) == ([2], 1)
    await finish(harness, again)
    assert await harness.store.queues.depth(queue.id) == 0


async def test_a_retry_waits_as_long_as_it_says_and_charges_nothing(harness: Harness) -> None:
    queue = await unordered(harness, retry_limit=0)
    await harness.push(queue, [0])
    for _ in range(3):
        taken = await harness.pop(queue)
        assert taken.lane.attempts == 0
        await apply_unordered(
            harness, unordered_ack(taken, nacks=[Nack(0, charge=False, error="later", delay_ms=5_000)])
        )
        harness.clock.advance(4.999)
        assert not await harness.pop(queue)
        harness.clock.advance(0.001)
    assert (await harness.pop(queue)).data == [0]


@pytest.mark.parametrize("limit", [0, 2], ids=lambda limit: f"limit{limit}")
async def test_a_message_is_dead_after_its_own_last_attempt(harness: Harness, limit: int) -> None:
    queue = await unordered(harness, retry_limit=limit)
    await harness.push(queue, ["bad", "good"])
    group = await harness.group(queue)
    for attempt in range(limit + 1):
        taken = await harness.pop(queue, group)
        nack = Nack(0, charge=True, error=f"attempt {attempt}")
        acked = await apply_unordered(harness, unordered_ack(taken, *([1] if attempt == 0 else []), nacks=[nack]))
        assert acked.died == ([0] if attempt == limit else [])
    assert not await harness.pop(queue, group)
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.position, letter.attempts, letter.error) == (0, limit + 1, f"attempt {limit}")
    assert await harness.store.queues.depth(queue.id) == 0
    assert (await harness.lane(group)).dead == 1


async def test_what_a_lost_claim_left_open_comes_again_one_by_one_and_its_first_is_charged(harness: Harness) -> None:
    queue = await unordered(harness, lease_seconds=5)
    await harness.push(queue, list(range(4)))
    taken = await harness.pop(queue)
    await apply_unordered(harness, unordered_ack(taken, 1))
    harness.clock.advance(5)
    assert (await apply_unordered(harness, unordered_ack(taken, 0))).state == "lost"
    seen = []
    while again := await harness.pop(queue):
        seen.append((again.data, again.lane.attempts))
        await finish(harness, again)
    assert seen == [([0], 1), ([2], 0), ([3], 0)]


async def test_the_poison_dies_and_its_neighbours_live_unordered(harness: Harness) -> None:
    queue = await unordered(harness, retry_limit=2, lease_seconds=5)
    await harness.push(queue, ["a", "b", "poison", "c"])
    done = []
    for _ in range(12):
        taken = await harness.pop(queue)
        if "poison" in taken.data:
            harness.clock.advance(5)
            continue
        done += taken.data
        if taken:
            await finish(harness, taken)
    assert sorted(done) == ["a", "b", "c"]
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.position, letter.error) == (2, "Partition lease expired")


async def test_a_renewed_claim_lives_on_and_a_released_one_is_not_charged(harness: Harness) -> None:
    queue = await unordered(harness, lease_seconds=5)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    renewed = await harness.renew(taken.lease, seconds=60)
    assert (renewed.renewed, renewed.expires_at) == (1, harness.clock() + 60_000_000)
    harness.clock.advance(59)
    assert not await harness.pop(queue)
    assert await harness.store.messages.release(taken.lease) == 1
    assert await harness.store.messages.release(taken.lease) == 0
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 0
    again = await harness.pop(queue)
    assert (again.data, [lane.attempts for lane in again.lanes]) == ([0, 1], [0, 0])
    assert (await apply_unordered(harness, unordered_ack(taken, (0, 2)))).state == "lost"
    renewed = await harness.renew(again.lease, seconds=60)
    assert renewed.renewed == 1
    await finish(harness, again)


async def test_an_ack_without_a_lease_finishes_what_is_in_any_hand(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue, batch=2)
    acked = await apply_unordered(harness, unordered_ack(taken, 0, token=None))
    assert acked.state == "ok"
    acked = await apply_unordered(harness, unordered_ack(taken, 2, token=None))
    assert (acked.state, acked.lost) == ("lost", [2]), "it was handed to nobody yet"
    acked = await apply_unordered(harness, unordered_ack(taken, (0, 2)))
    assert (acked.finished, acked.lost) == ([0], [])


async def test_dead_lettered_messages_are_dead_at_once(harness: Harness) -> None:
    queue = await unordered(harness, max_size=3)
    await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    acked = await apply_unordered(harness, unordered_ack(taken, 0, dead_letters=[ToDeadLetter(1, "hopeless")]))
    assert (acked.state, acked.died) == ("ok", [1])
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.position, letter.error, letter.attempts) == (1, "hopeless", 1)
    assert await harness.store.queues.depth(queue.id) == 1
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 1
    assert await harness.store.queues.depth(queue.id) == 2


async def test_auto_acked_messages_are_finished_at_delivery(harness: Harness) -> None:
    queue = await unordered(harness, max_size=4)
    await harness.group(queue)
    await harness.push(queue, [0, 1, 2, 3])
    taken = await harness.pop(queue, batch=1)
    await apply_unordered(harness, unordered_ack(taken, nacks=[Nack(0, charge=True, error="x")]))
    assert (await harness.pop(queue, batch=3, auto_ack=True)).data == [0, 1, 2]
    assert await harness.store.queues.depth(queue.id) == 1
    assert (await harness.pop(queue, auto_ack=True)).data == [3]
    assert not await harness.pop(queue, auto_ack=True)


async def test_capacity_of_an_unordered_queue_counts_what_some_group_has_open(harness: Harness) -> None:
    queue = await unordered(harness, max_size=4)
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, [0, 1, 2, 3])
    of_one, of_two = await harness.pop(queue, one), await harness.pop(queue, two, batch=3)
    await apply_unordered(harness, unordered_ack(of_one, 1, 3))
    await apply_unordered(harness, unordered_ack(of_two, 0, 1))
    assert await harness.store.queues.depth(queue.id) == 3, "only 1 is finished by both"
    assert await harness.try_push(queue, [4, 5]) == Full(3, 4)
    await apply_unordered(harness, unordered_ack(of_two, nacks=[Nack(2, charge=True, error="x")]))
    await apply_unordered(harness, unordered_ack(of_one, 0, 2))
    assert await harness.store.queues.depth(queue.id) == 2
    assert isinstance(await harness.try_push(queue, [4, 5]), Stored)
    assert sorted(await drain(harness, queue, one)) == [4, 5]
    assert sorted(await drain(harness, queue, two)) == [2, 3, 4, 5]
    assert await harness.store.queues.depth(queue.id) == 0


async def test_a_limit_set_later_counts_what_is_open(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, list(range(6)))
    taken = await harness.pop(queue, batch=4)
    await apply_unordered(harness, unordered_ack(taken, 1, 2, nacks=[Nack(3, charge=True, error="x")]))
    queue = await harness.configure(queue, ordering="unordered", max_size=5)
    assert await harness.store.queues.depth(queue.id) == 4
    assert (await harness.push(queue, [6])).depth == 5


async def test_a_seek_ends_claims_and_forgets_attempts(harness: Harness) -> None:
    queue = await unordered(harness, max_size=10)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue, group)
    await apply_unordered(harness, unordered_ack(taken, 1, nacks=[Nack(0, charge=True, error="x")]))
    await harness.store.groups.seek(group.id, Seek("beginning"))
    assert await harness.store.queues.depth(queue.id) == 3
    assert (await apply_unordered(harness, unordered_ack(taken, 2))).state == "lost"
    again = await harness.pop(queue, group)
    assert (again.data, again.lane.attempts) == ([0, 1, 2], 0)
    await harness.store.groups.seek(group.id, Seek("end"))
    assert await harness.store.queues.depth(queue.id) == 0
    assert not await harness.pop(queue, group)


async def test_a_deleted_message_is_nobodys(harness: Harness) -> None:
    queue = await unordered(harness, max_size=10)
    group = await harness.group(queue)
    stored = await harness.push(queue, list(range(6)))
    assert stored.first == 0
    partition = (await harness.partition(queue)).id
    taken = await harness.pop(queue, group, batch=3)
    await apply_unordered(harness, unordered_ack(taken, 0, nacks=[Nack(2, charge=True, error="x")]))
    for position in (0, 1, 2, 4):
        assert await harness.store.browse.delete(partition, position)
    assert await harness.store.queues.depth(queue.id) == 2
    acked = await apply_unordered(harness, unordered_ack(taken, 1))
    assert (acked.lost, acked.finished) == ([], [1])
    assert await drain(harness, queue, group) == [3, 5]
    assert await harness.store.queues.depth(queue.id) == 0


async def test_a_group_that_is_deleted_leaves_nothing_behind(harness: Harness) -> None:
    queue = await unordered(harness, max_size=3)
    one = await harness.group(queue, "one")
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue, one)
    await apply_unordered(harness, unordered_ack(taken, 0, nacks=[Nack(1, charge=True, error="x")]))
    await harness.group(queue, "two")
    await harness.store.groups.delete(one.id)
    assert (await apply_unordered(harness, unordered_ack(taken, 2))).state == "gone"
    assert await harness.store.queues.depth(queue.id) == 3
    assert await harness.store.queues.delete(queue.tenant, queue.name)


async def test_verdicts_in_a_transaction_are_applied_together_or_not_at_all(harness: Harness) -> None:
    source, sink = await unordered(harness), await harness.queue()
    await harness.push(source, [0, 1, 2])
    taken = await harness.pop(source)
    out = harness.slice(sink, await harness.partition(sink), ["out"])
    stale = unordered_ack(taken, 1, token=harness.token())
    acked, _ = await harness.store.messages.transact([unordered_ack(taken, 0), stale], [out])
    assert acked[1].lost == [1]
    assert await harness.store.queues.depth(source.id) == 3
    acked, pushed = await harness.store.messages.transact([unordered_ack(taken, 0, 2)], [out])
    assert acked[0].state == "ok"
    assert isinstance(pushed[0], Stored)
    assert (await harness.store.queues.depth(source.id), await harness.store.queues.depth(sink.id)) == (1, 1)


async def test_results_are_kept_for_messages_of_unordered_queues(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    await apply_unordered(harness, unordered_ack(taken, 1, results=[(1, b'"well"')]))
    assert await harness.store.groups.result(taken.group.id, taken.lane.partition, 1) == b'"well"'


async def test_a_queue_with_partitions_stays_ordered_or_unordered(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.configure(queue, ordering="unordered")
    await harness.push(queue, [0])
    with pytest.raises(Conflict):
        await harness.configure(queue, ordering="per_key")
    for option in ("delay_seconds", "window_seconds", "ttl_seconds", "max_wait_seconds"):
        with pytest.raises(InvalidRequest):
            queue_options(ordering="unordered", **{option: 1})


async def test_a_paused_partition_of_an_unordered_queue_hands_nothing_out(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, [0, 1])
    group = await harness.group(queue)
    taken = await harness.pop(queue, group, batch=1)
    await apply_unordered(harness, unordered_ack(taken, nacks=[Nack(0, charge=True, error="x")]))
    partition = taken.lane.partition
    assert await harness.store.pauses.pause(queue.id, partition=partition)
    assert not await harness.pop(queue, group)
    assert await harness.store.pauses.resume(queue.id, partition=partition)
    assert (await harness.pop(queue, group)).data == [0, 1]


async def test_every_message_of_an_unordered_queue_ends_once_while_consumers_race(harness: Harness) -> None:
    queue = await unordered(harness, max_size=1_000, retry_limit=1)
    group = await harness.group(queue)
    stores = [harness.store, await harness.open_second()]
    for lane in range(2):
        await harness.push(queue, [[lane, n] for n in range(100)], partition=f"p{lane}")
    done: list[Any] = []

    async def consume(number: int) -> None:
        store = stores[number % 2]
        idle = 0
        while idle < 3:
            taken = await harness.pop(queue, group, batch=9, store=store)
            if not taken:
                idle += 1
                await asyncio.sleep(0.005)
                continue
            for partition in {lane.partition for lane in taken.lanes}:
                mine = [lane for lane in taken.lanes if lane.partition == partition]
                bad = [p for lane in mine for p in range(lane.first, lane.upto) if p % 10 == number]
                good = [(p, p + 1) for lane in mine for p in range(lane.first, lane.upto) if p % 10 != number]
                unordered_ack = LaneAck(
                    unordered=True,
                    partition=partition,
                    group_id=group.id,
                    token=taken.token,
                    done=good,
                    nacks=[Nack(p, charge=True, error="x") for p in bad],
                )
                [acked] = await store.messages.ack([unordered_ack])
                assert (acked.lost, acked.finished) == ([], [])
                done.extend((partition, p) for p, _ in good)

    await asyncio.gather(*(consume(number) for number in range(4)))
    assert not await harness.pop(queue, group)
    dead = await harness.store.dead_letters.count(queue.id, DeadFilter())
    assert len(done) == len(set(done))
    assert len(done) + dead == 200
    assert await harness.store.queues.depth(queue.id) == 0


async def test_the_engine_settles_messages_of_unordered_queues_each_for_itself(harness: Harness) -> None:
    broker = harness.broker
    name = harness.name("jobs")
    await broker.queues.configure(name, ordering="unordered")
    for n in range(4):
        await broker.push(name, n)
    batch = await broker.pop(name, batch=4)
    assert [one.data for one in batch] == [0, 1, 2, 3]
    [failed] = await broker.nack(batch[1], error="x")
    assert failed.success
    outcomes = await broker.ack([batch[0], batch[2], batch[3]])
    assert [one.success for one in outcomes] == [True] * 3
    [again] = await broker.ack(batch[3])
    assert again.success
    assert again.noop
    [lost] = await broker.ack(batch[1], check=False)
    assert (lost.success, lost.code) == (False, "lease_lost")
    second = await broker.pop(name, batch=4)
    assert [(one.data, one.failed_attempts) for one in second] == [(1, 1)]
    async with broker.transaction() as transaction:
        transaction.ack(list(second))
        transaction.push(name, "next")
    assert await broker.queues.depth(name) == 1


async def test_numbers_of_an_unordered_queue_are_of_its_messages(harness: Harness) -> None:
    queue = await unordered(harness)
    group = await harness.group(queue)
    await harness.push(queue, list(range(10)))
    taken = await harness.pop(queue, group, batch=6)
    await apply_unordered(harness, unordered_ack(taken, 1, 2, nacks=[Nack(4, charge=True, error="x", delay_ms=1_000)]))
    lane = await harness.lane(group)
    assert (lane.committed, lane.skipped, lane.in_flight) == (0, 2, 3)
    [stats] = await harness.store.statistics.queues([queue.id])
    assert (stats.total, stats.unfinished, stats.leased, stats.pending) == (10, 8, 3, 5)
    [of_group] = await harness.store.statistics.groups([queue.id])
    assert (of_group.lag, of_group.leases, of_group.leased) == (8, 1, 3)
    [partition] = await harness.store.statistics.partitions(queue.id)
    assert (partition.unfinished, partition.leased) == (8, 3)
    [lagging] = await harness.store.statistics.lagging([queue.id], oldest_before=harness.clock() + 1)
    assert lagging.offset_lag == 8


async def test_what_one_call_says_of_a_claim_in_several_verdicts_is_applied_one_after_the_other(
    harness: Harness,
) -> None:
    queue = await unordered(harness)
    await harness.push(queue, list(range(20)))
    whole, cut, twice = [await harness.pop(queue, batch=5) for _ in range(3)]
    fails = [Nack(position, charge=True, error="x") for position in (2, 6)]
    acked = await harness.store.messages.ack(
        [
            *(unordered_ack(whole, (0, 2), (3, 5)), unordered_ack(whole, nacks=fails[:1])),
            *(unordered_ack(cut, 5), unordered_ack(cut, (5, 7)), unordered_ack(cut, nacks=fails[1:])),
            *(unordered_ack(twice, (10, 15)), unordered_ack(twice, (10, 15))),
        ]
    )
    assert [one.state for one in acked] == ["ok"] * 7
    assert [one.released for one in acked] == [True, True, False, False, False, True, True]
    assert [one.finished for one in acked[:5]] == [[], [], [], [5], [6]]
    assert sorted(one.finished for one in acked[5:]) == [[], [10, 11, 12, 13, 14]]
    held = await harness.store.messages.leased(cut.lease)
    assert [(one.first, one.upto) for one in held] == [(7, 10)]
    again = await harness.pop(queue, batch=3)
    assert (again.data, [lane.attempts for lane in again.lanes]) == ([2, 15, 16], [1, 0])
    acked = await harness.store.messages.ack(
        [unordered_ack(cut, (7, 10)), unordered_ack(again, 2), unordered_ack(again, (15, 17))]
    )
    assert [(one.state, one.finished, one.released) for one in acked] == [("ok", [], True)] * 3
    assert (await harness.lane(again.group)).committed == 17
    assert await drain(harness, queue, again.group) == [17, 18, 19]


async def test_a_broker_acks_all_of_a_batch_that_has_old_and_new_messages_of_a_partition(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("mixed")
    await broker.queues.configure(name, ordering="unordered")
    for n in range(4):
        await broker.push(name, n)
    await broker.nack(await broker.pop(name, batch=1))
    batch = await broker.pop(name, batch=4)
    assert sorted(one.data for one in batch) == [0, 1, 2, 3]
    assert all(outcome.success for outcome in await broker.ack(batch))
    assert await broker.queues.depth(name) == 0
