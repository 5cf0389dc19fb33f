"""Transactions: acks and pushes to any queues, applied together or not at all."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from fairlane.model.ids import PartitionId
from fairlane.model.names import DEFAULT_TENANT
from fairlane.store.contract.ack_rules import only_repeats
from fairlane.store.contract.values import (
    DeadFilter,
    Duplicates,
    Full,
    Gone,
    LaneAck,
    Nack,
    Slice,
    Stored,
    ToDeadLetter,
)
from tests.conformance.harness import Harness, Taken


async def forward(harness: Harness, count: int = 2) -> tuple[Taken, list[Slice]]:
    """Return a leased batch of one queue and slices for two others, for one commit."""
    source = await harness.queue("source", retry_limit=0)
    await harness.push(source, list(range(count)))
    taken = await harness.pop(source)
    targets = [await harness.queue("target") for _ in range(2)]
    return taken, [harness.slice(queue, await harness.partition(queue, "p"), ["out"], ids=["out"]) for queue in targets]


async def nothing_happened(harness: Harness, taken: Taken, slices: list[Slice]) -> None:
    lane = await harness.lane(taken.group)
    assert (lane.committed, lane.leased_until, lane.attempts) == (taken.lane.first, taken.lane.upto, 0)
    for one in slices:
        assert await harness.store.messages.read(one.partition, 0, 10) == []
        assert await harness.store.messages.find(one.partition, one.transaction_ids[0]) is None
    assert await harness.store.dead_letters.count(taken.group.queue_id, DeadFilter()) == 0


async def test_acks_and_pushes_over_queues_are_applied_together(harness: Harness) -> None:
    taken, slices = await forward(harness)
    acked, pushed = await harness.store.messages.transact([harness.ordered_ack(taken, 2)], slices)
    assert [(one.state, one.after, one.released) for one in acked] == [("ok", 2, True)]
    assert all(isinstance(one, Stored) for one in pushed)
    assert (await harness.lane(taken.group)).committed == 2
    for one in slices:
        assert len(await harness.store.messages.read(one.partition, 0, 10)) == 1


async def test_a_transaction_may_only_push_or_only_ack_or_do_nothing(harness: Harness) -> None:
    taken, slices = await forward(harness)
    assert await harness.store.messages.transact([], []) == ([], [])
    acked, pushed = await harness.store.messages.transact([], slices)
    assert (acked, [type(one) for one in pushed]) == ([], [Stored, Stored])
    acked, pushed = await harness.store.messages.transact([harness.ordered_ack(taken, 1)], [])
    assert ([one.after for one in acked], pushed) == ([1], [])


async def test_a_lost_lease_refuses_everything(harness: Harness) -> None:
    taken, slices = await forward(harness)
    stale = harness.ordered_ack(taken, 2)
    stale.token = uuid4()
    acked, _ = await harness.store.messages.transact([stale], slices)
    assert acked[0].state == "lost"
    await nothing_happened(harness, taken, slices)


async def test_a_lease_that_ran_out_refuses_everything(harness: Harness) -> None:
    taken, slices = await forward(harness)
    harness.clock.advance(300)
    acked, _ = await harness.store.messages.transact([harness.ordered_ack(taken, 2)], slices)
    assert (acked[0].state, acked[0].repeated) == ("lost", False)
    for one in slices:
        assert await harness.store.messages.read(one.partition, 0, 10) == []


async def test_one_refused_ack_undoes_the_others(harness: Harness) -> None:
    good, slices = await forward(harness)
    bad, _ = await forward(harness)
    for refused in (
        LaneAck(partition=PartitionId(0, 2**62), group_id=1, token=None, done=[(0, 1)]),
        LaneAck(partition=bad.lane.partition, group_id=2**62, token=bad.token, done=[(0, 1)]),
        LaneAck(partition=bad.lane.partition, group_id=bad.group.id, token=uuid4(), done=[(0, 1)]),
    ):
        for acks in ([harness.ordered_ack(good, 2), refused], [refused, harness.ordered_ack(good, 2)]):
            acked, _ = await harness.store.messages.transact(acks, slices)
            assert acked[acks.index(refused)].state != "ok"
            await nothing_happened(harness, good, slices)


async def test_a_full_queue_refuses_everything(harness: Harness) -> None:
    taken, slices = await forward(harness)
    full = await harness.queue(max_size=1)
    await harness.push(full, [0])
    over = harness.slice(full, await harness.partition(full), [1])
    _, pushed = await harness.store.messages.transact([harness.ordered_ack(taken, 2)], [*slices, over])
    assert pushed[-1] == Full(1, 1)
    await nothing_happened(harness, taken, slices)
    assert await harness.store.queues.depth(full.id) == 1


async def test_a_deleted_queue_refuses_everything(harness: Harness) -> None:
    taken, slices = await forward(harness)
    doomed = await harness.queue()
    late = harness.slice(doomed, await harness.partition(doomed), [1])
    await harness.store.queues.delete(DEFAULT_TENANT, doomed.name)
    _, pushed = await harness.store.messages.transact([harness.ordered_ack(taken, 2)], [late, *slices])
    assert pushed[0] == Gone()
    await nothing_happened(harness, taken, slices)


async def test_a_duplicate_applies_nothing_until_it_is_left_out(harness: Harness) -> None:
    """The caller removes duplicates and repeats the call, which makes the retry idempotent."""
    taken, slices = await forward(harness)
    await harness.store.messages.push([slices[1]])
    acks = [harness.ordered_ack(taken, 2)]
    _, pushed = await harness.store.messages.transact(acks, slices)
    assert isinstance(pushed[1], Duplicates)
    await nothing_happened(harness, taken, slices[:1])
    acked, pushed = await harness.store.messages.transact(acks, slices[:1])
    assert acked[0].state == "ok"
    assert isinstance(pushed[0], Stored)


async def test_a_nack_or_dead_letter_below_the_cursor_refuses_everything(harness: Harness) -> None:
    taken, slices = await forward(harness, 4)
    await harness.ack(taken, 2)
    for late in (
        harness.ordered_ack(taken, nack=Nack(1, charge=True, error="late")),
        harness.ordered_ack(taken, 3, dead_letters=[ToDeadLetter(0, "late")]),
    ):
        await harness.store.messages.transact([late], slices)
        for one in slices:
            assert await harness.store.messages.read(one.partition, 0, 10) == []
        lane = await harness.lane(taken.group)
        assert (lane.committed, lane.leased_until) == (2, 4)
    assert await harness.store.dead_letters.count(taken.group.queue_id, DeadFilter()) == 0


async def test_a_transaction_may_nack_and_dead_letter(harness: Harness) -> None:
    taken, slices = await forward(harness, 4)
    ack = harness.ordered_ack(taken, 2, dead_letters=[ToDeadLetter(1, "bad")], nack=Nack(2, charge=True, error="worse"))
    [acked], pushed = await harness.store.messages.transact([ack], slices)
    assert (acked.state, acked.dead, acked.after) == ("ok", True, 3)
    assert all(isinstance(one, Stored) for one in pushed)
    assert await harness.store.dead_letters.count(taken.group.queue_id, DeadFilter()) == 2


async def test_a_repeated_transaction_is_told_from_a_stale_one(harness: Harness) -> None:
    """After an unknown outcome the same calls are repeated: the ack is `repeated`, the pushes are duplicates."""
    taken, slices = await forward(harness)
    acks = [harness.ordered_ack(taken, 2)]
    await harness.store.messages.transact(acks, slices)
    acked, pushed = await harness.store.messages.transact(acks, slices)
    assert (acked[0].state, acked[0].repeated) == ("lost", True)
    assert all(isinstance(one, Duplicates) for one in pushed)
    acked, _ = await harness.store.messages.transact(acks, [])
    assert acked[0].repeated


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_transaction_whose_acks_are_only_repeats_pushes_nothing_that_is_not_known(
    harness: Harness, ordering: str
) -> None:
    """The answer was lost, and each repeat pushes a new id. The first lease ends with the call; the second stays."""
    transact = harness.store.messages.transact
    for leased in (True, False):
        source, target = await harness.queue("source", ordering=ordering), await harness.queue("target")
        out = await harness.partition(target)
        await harness.push(source, [0, 1, 2])
        for upto in (1, 2):
            taken = await harness.pop(source, batch=upto)
            ack = finishing(taken, upto, leased=leased, unordered=ordering == "unordered")
            _, [pushed] = await transact([ack], [harness.slice(target, out, [upto])])
            assert isinstance(pushed, Stored)
            for slices in ([harness.slice(target, out, [upto])], []):
                acked, _ = await transact([ack], slices)
                assert only_repeats([ack], acked)
            assert await harness.drain(target) == [upto]
        ack = finishing(taken, 3, leased=leased, unordered=ordering == "unordered")
        acked, _ = await transact([ack], [harness.slice(target, out, ["new"])])
        assert not only_repeats([ack], acked), "what is new makes it another transaction"
        assert await harness.drain(target) == ["new"]


def finishing(taken: Taken, upto: int, *, leased: bool, unordered: bool) -> LaneAck:
    """Return an ack of the messages below `upto` of the only lane taken."""
    where: dict[str, Any] = {"partition": taken.lane.partition, "group_id": taken.group.id}
    where["token"] = taken.token if leased else None
    if unordered:
        return LaneAck(**where, unordered=True, done=[(taken.lane.first, upto)])
    return LaneAck(**where, done=[(0, upto)])


async def test_a_consumer_may_push_into_the_lane_it_acks(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0])
    partition = await harness.partition(queue)
    for number in range(3):
        taken = await harness.pop(queue)
        assert taken.data == [number]
        acked, pushed = await harness.store.messages.transact(
            [harness.ordered_ack(taken, taken.lane.upto)], [harness.slice(queue, partition, [number + 1])]
        )
        assert acked[0].released
        assert isinstance(pushed[0], Stored)
        assert pushed[0].first == number + 1
    assert await harness.drain(queue) == [3]


async def test_an_ack_makes_room_for_the_push_beside_it(harness: Harness) -> None:
    queue = await harness.queue(max_size=1)
    await harness.push(queue, [0])
    taken = await harness.pop(queue)
    partition = await harness.partition(queue, "next")
    _, pushed = await harness.store.messages.transact(
        [harness.ordered_ack(taken, 1)], [harness.slice(queue, partition, [1])]
    )
    assert isinstance(pushed[0], Stored)
    assert (pushed[0].depth, pushed[0].capacity) == (1, 1)
    assert await harness.store.queues.depth(queue.id) == 1
    assert await harness.drain(queue) == [1]


async def test_a_sum_of_tokens_is_conserved(harness: Harness) -> None:
    """Tokens move between queues by ack and push, and some calls are refused."""
    queues = [await harness.queue(f"bank{n}") for n in range(3)]
    for number in range(9):
        await harness.push(queues[number % 3], [number])
    for step in range(30):
        source, target = queues[step % 3], queues[(step + 1 + step % 2) % 3]
        taken = await harness.pop(source, batch=1)
        if not taken:
            continue
        ack = harness.ordered_ack(taken, taken.lane.upto)
        if step % 4 == 0:
            ack.token = uuid4()
        slices = [harness.slice(target, await harness.partition(target), taken.data)]
        acked, _ = await harness.store.messages.transact([ack], slices)
        if acked[0].state == "lost":
            await harness.store.messages.release(taken.lease)
    left = [token for queue in queues for token in await harness.drain(queue)]
    assert sorted(left) == list(range(9))


async def test_two_messages_with_one_id_may_have_two_verdicts(harness: Harness) -> None:
    """A queue without a window stores an id as often as it is pushed."""
    queue = await harness.queue(dedup_seconds=0)
    for number in range(2):
        await harness.broker.push(queue.name, number, transaction_id="x")
    batch = await harness.broker.pop(queue.name, batch=2)
    async with harness.broker.transaction() as transaction:
        transaction.ack(batch[0], "dlq")
        transaction.ack(batch[1], "completed")
    assert [letter.position for letter in await harness.broker.dead_letters.page(queue.name)] == [0]
