"""Ack at the store: one ack per lane, fenced by its lease. A cursor never moves back."""

from __future__ import annotations

from uuid import uuid4

from fairlane.model.ids import PartitionId
from fairlane.store.contract.values import DeadFilter, LaneAck, Nack, ToDeadLetter
from tests.conformance.harness import Harness


async def test_finishing_the_batch_releases_the_lease(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue, batch=2)
    acked = await harness.ack(taken)
    assert (acked.state, acked.before, acked.after) == ("ok", 0, 2)
    assert acked.released
    assert not acked.dead
    assert await harness.store.messages.leased(taken.lease) == []
    assert (await harness.pop(queue)).data == [2]


async def test_the_rest_of_a_partly_finished_batch_stays_leased(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    acked = await harness.ack(taken, 2)
    assert (acked.before, acked.after, acked.released) == (0, 2, False)
    assert not await harness.pop(queue)
    [leased] = await harness.store.messages.leased(taken.lease)
    assert (leased.first, leased.upto, leased.committed) == (0, 3, 2)
    acked = await harness.ack(taken)
    assert (acked.before, acked.after, acked.released) == (2, 3, True)


async def test_a_cursor_never_moves_back(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    await harness.ack(taken, 2)
    acked = await harness.ack(taken, 1)
    assert (acked.state, acked.before, acked.after, acked.released) == ("ok", 2, 2, False)
    without = LaneAck(partition=taken.lane.partition, group_id=taken.group.id, token=None, done=[(0, 1)])
    acked = await harness.apply(without)
    assert (acked.state, acked.before, acked.after) == ("ok", 2, 2)
    await harness.store.messages.release(taken.lease)
    assert (await harness.pop(queue)).data == [2]


async def test_a_drained_lane_is_not_ready(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    await harness.ack(taken)
    lane = await harness.lane(taken.group)
    assert (lane.ready_at, lane.committed, lane.head) == (None, 2, 2)


async def test_a_lane_with_more_is_ready_at_once(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue, batch=1)
    harness.clock.advance(3)
    await harness.ack(taken)
    assert (await harness.lane(taken.group)).ready_at == harness.clock()


async def test_what_is_pushed_during_a_lease_is_ready_after_it(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0])
    taken = await harness.pop(queue)
    await harness.push(queue, [1])
    assert not await harness.pop(queue)
    assert (await harness.ack(taken)).released
    assert (await harness.pop(queue)).data == [1]


async def test_an_ack_with_a_lease_that_never_was_is_refused(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    for nack in (None, Nack(0, charge=True, error="x")):
        forged = harness.ordered_ack(taken, 0 if nack else 2, nack=nack)
        forged.token = uuid4()
        acked = await harness.apply(forged)
        assert (acked.state, acked.released, acked.repeated) == ("lost", False, False)
    lane = await harness.lane(taken.group)
    assert (lane.committed, lane.attempts, lane.leased_until) == (0, 0, 2)


async def test_an_ack_with_another_groups_lease_is_refused(harness: Harness) -> None:
    queue = await harness.queue()
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, [0, 1])
    mine, theirs = await harness.pop(queue, one), await harness.pop(queue, two)
    crossed = harness.ordered_ack(mine, 2)
    crossed.token = theirs.token
    assert (await harness.apply(crossed)).state == "lost"
    assert (await harness.lane(one)).committed == (await harness.lane(two)).committed == 0


async def test_an_ack_with_a_lease_on_another_lane_is_refused(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["a"], partition="a")
    await harness.push(queue, ["b"], partition="b")
    one, two = await harness.pop(queue), await harness.pop(queue)
    crossed = harness.ordered_ack(one, 1)
    crossed.token = two.token
    assert (await harness.apply(crossed)).state == "lost"
    assert (await harness.ack(one)).state == (await harness.ack(two)).state == "ok"


async def test_repeating_the_ack_that_finished_a_lease_is_told_from_a_stale_one(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2, 3])
    first = await harness.pop(queue, batch=2)
    await harness.ack(first)
    again = await harness.ack(first)
    assert (again.state, again.repeated) == ("lost", True)
    assert (await harness.lane(first.group)).committed == 2
    second = await harness.pop(queue, batch=2)
    again = await harness.ack(first)
    assert (again.state, again.repeated) == ("lost", True), "also while the next batch is leased"
    await harness.ack(second)
    stale = await harness.ack(first)
    assert stale.state == "lost"
    assert (await harness.lane(first.group)).committed == 4


async def test_an_ack_without_a_lease_finishes_what_is_not_yet_committed(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [0, 1, 2])
    bare = LaneAck(partition=partition.id, group_id=group.id, token=None, done=[(0, 3)])
    acked = await harness.apply(bare)
    assert (acked.state, acked.before, acked.after, acked.limit) == ("ok", 0, 0, 0), "nobody was given anything"
    await harness.pop(queue, group, batch=2)
    harness.clock.advance(5)
    acked = await harness.apply(bare)
    assert (acked.state, acked.before, acked.after, acked.limit) == ("ok", 0, 2, 2)
    assert (await harness.pop(queue, group)).data == [2]


async def test_an_ack_without_a_lease_releases_a_lease_only_when_its_batch_is_finished(
    harness: Harness,
) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2, 3])
    taken = await harness.pop(queue, batch=3)
    bare = LaneAck(partition=taken.lane.partition, group_id=taken.group.id, token=None, done=[(0, 2)])
    assert not (await harness.apply(bare)).released
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 1
    bare.done = [(0, 3)]
    assert (await harness.apply(bare)).released
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 0
    assert (await harness.pop(queue)).data == [3]


async def test_an_ack_without_a_lease_drains_a_lane_for_good(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [0, 1])
    await harness.pop(queue, group)
    await harness.apply(LaneAck(partition=partition.id, group_id=group.id, token=None, done=[(0, 2)]))
    assert not await harness.pop(queue, group)
    assert (await harness.lane(group)).ready_at is None
    await harness.push(queue, [2])
    assert (await harness.pop(queue, group)).data == [2]


async def test_a_dead_lettered_message_is_dead_at_once(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2, 3])
    taken = await harness.pop(queue)
    acked = await harness.apply(
        harness.ordered_ack(taken, 3, dead_letters=[ToDeadLetter(0, "rotten"), ToDeadLetter(2, "mouldy")])
    )
    assert (acked.state, acked.after) == ("ok", 3)
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert {(letter.position, letter.error) for letter in letters} == {(0, "rotten"), (2, "mouldy")}
    assert (await harness.lane(taken.group)).dead == 2
    await harness.store.messages.release(taken.lease)
    assert await harness.drain(queue) == [3]


async def test_what_is_committed_is_not_dead_lettered(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    await harness.ack(taken, 2)
    await harness.apply(
        harness.ordered_ack(taken, 3, dead_letters=[ToDeadLetter(1, "late"), ToDeadLetter(2, "in time")])
    )
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert [letter.position for letter in letters] == [2]


async def test_one_settlement_may_finish_dead_letter_and_nack(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2, 3])
    taken = await harness.pop(queue)
    acked = await harness.apply(
        harness.ordered_ack(taken, 2, dead_letters=[ToDeadLetter(1, "bad")], nack=Nack(2, charge=True, error="later"))
    )
    assert (acked.state, acked.after, acked.released, acked.dead) == ("ok", 2, True, False)
    again = await harness.pop(queue)
    assert (again.data, again.lane.attempts) == ([2, 3], 1)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 1


async def test_results_are_kept_with_the_acked_messages(harness: Harness) -> None:
    queue = await harness.queue()
    other = await harness.group(queue, "other")
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    await harness.apply(harness.ordered_ack(taken, 3, results=[(0, b'{"ok":1}'), (2, b"null")]))

    async def result(position: int, group_id: int = taken.group.id) -> bytes | None:
        return await harness.store.groups.result(group_id, taken.lane.partition, position)

    assert [await result(position) for position in range(4)] == [b'{"ok":1}', None, b"null", None]
    assert await result(0, other.id) is None


async def test_a_refused_ack_keeps_no_result(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0])
    taken = await harness.pop(queue)
    forged = harness.ordered_ack(taken, 1, results=[(0, b"1")])
    forged.token = uuid4()
    await harness.apply(forged)
    assert await harness.store.groups.result(taken.group.id, taken.lane.partition, 0) is None


async def test_a_stale_ack_keeps_no_result_of_what_another_finished(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    await harness.push(queue, [0])
    stale = await harness.pop(queue)
    harness.clock.advance(5)
    await harness.ack(await harness.pop(queue))
    acked = await harness.apply(harness.ordered_ack(stale, 1, results=[(0, b'"stale"')]))
    assert (acked.state, acked.repeated) == ("lost", False)
    assert await harness.store.groups.result(stale.group.id, stale.lane.partition, 0) is None


async def test_settlements_of_one_call_do_not_depend_on_each_other(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    for name in "abcde":
        await harness.push(queue, [name, name], partition=name)
    taken = {}
    for name in "abcde":
        partition = await harness.partition(queue, name)
        taken[name] = await harness.pop(queue, partition=partition.id)
    stale = harness.ordered_ack(taken["b"], 2)
    stale.token = uuid4()
    missing = harness.ordered_ack(taken["c"], 2)
    missing.partition = PartitionId(0, 2**62)
    acked = await harness.store.messages.ack(
        [
            harness.ordered_ack(taken["e"], nack=Nack(0, charge=True, error="dead")),
            stale,
            harness.ordered_ack(taken["a"], 2),
            missing,
            harness.ordered_ack(taken["d"], 1),
        ]
    )
    assert [one.state for one in acked] == ["ok", "lost", "ok", "gone", "ok"]
    assert [one.dead for one in acked] == [True, False, False, False, False]
    assert [one.released for one in acked] == [True, False, True, False, False]
    assert await harness.store.messages.ack([]) == []


async def test_one_call_settles_several_groups_of_one_lane(harness: Harness) -> None:
    queue = await harness.queue()
    groups = [await harness.group(queue, name) for name in ("one", "two", "three")]
    await harness.push(queue, [0, 1])
    taken = [await harness.pop(queue, group) for group in groups]
    acked = await harness.store.messages.ack(
        [harness.ordered_ack(each, upto) for each, upto in zip(taken, (2, 0, 1), strict=True)]
    )
    assert [one.after for one in acked] == [2, 0, 1]
    assert [(await harness.lane(group)).committed for group in groups] == [2, 0, 1]
