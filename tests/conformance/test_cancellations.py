"""Cancelled messages: never delivered again, and distinct from finished ones and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.model.group import Group, Seek
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckStatus, RenewOutcome
from fairlane.model.queue import Queue
from fairlane.model.verdict import ack_item
from fairlane.store.contract.cancellations import CancelledLane
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import (
    AckResult,
    DeadFilter,
    LaneAck,
    Nack,
    ScheduledSlice,
    ToDeadLetter,
)
from tests.conformance.harness import Harness, Taken, answer

ORDERINGS = ("per_key", "unordered")


async def filled(harness: Harness, count: int, **options: Any) -> tuple[Queue, Group, PartitionId]:
    """A queue with `count` messages 0, 1, ... in one partition, and the group of its queue mode."""
    queue = await harness.queue("jobs", **options)
    group = await harness.group(queue)
    await harness.push(queue, list(range(count)))
    return queue, group, (await harness.partition(queue)).id


async def cancel(
    harness: Harness, partition: PartitionId, position: int, group_id: int = 0, store: Store | None = None
) -> dict[int, str]:
    """Cancel a message. Returns the state for each group, without that for groups to come."""
    lanes = await (store or harness.store).cancellations.cancel(partition, group_id, position)
    return {lane.group_id: lane.state for lane in lanes if lane.group_id}


def verdicts(taken: Taken, *done: int, nack: int | None = None, dead: int | None = None) -> LaneAck:
    [partition] = {lane.partition for lane in taken.lanes}
    return LaneAck(
        partition=partition,
        group_id=taken.group.id,
        token=taken.token,
        done=[(position, position + 1) for position in done],
        nacks=[] if nack is None else [Nack(nack, True, "boom", 0)],
        dead_letters=[] if dead is None else [ToDeadLetter(dead, "no use")],
    )


async def ack(harness: Harness, ack: LaneAck, queue: Queue) -> AckResult:
    ack.unordered = queue.options.ordering == "unordered"
    return await harness.apply(ack)


async def rest(harness: Harness, queue: Queue, group: Group | None = None) -> list[Any]:
    """Pop and ack, message by message, until nothing is ready."""
    seen: list[Any] = []
    while taken := await harness.pop(queue, group, batch=1):
        seen += taken.data
        assert (await ack(harness, verdicts(taken, *taken.positions), queue)).state == "ok"
    return seen


# Messages that wait


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("position", [0, 2, 4])
async def test_a_cancelled_message_is_never_delivered_and_the_others_are(
    harness: Harness, ordering: str, position: int
) -> None:
    queue, group, partition = await filled(harness, 5, ordering=ordering)
    assert await cancel(harness, partition, position) == {group.id: "cancelled"}
    assert await rest(harness, queue) == [number for number in range(5) if number != position]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0
    assert await harness.store.cancellations.at(partition, position) == {0, group.id}
    lane = await harness.lane(group)
    assert (lane.committed, lane.head, lane.dead) == (5, 5, 0)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_lane_whose_only_message_is_cancelled_is_empty_and_wakes_for_the_next(
    harness: Harness, ordering: str
) -> None:
    queue, _, partition = await filled(harness, 1, ordering=ordering)
    await cancel(harness, partition, 0)
    assert not await harness.pop(queue)
    await harness.push(queue, ["next"])
    assert await rest(harness, queue) == ["next"]


async def test_a_retrying_lane_goes_on_when_its_message_is_cancelled(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2, retry_delay_ms=60_000)
    await harness.nack(await harness.pop(queue, batch=1))
    assert not await harness.pop(queue)
    assert await cancel(harness, partition, 0) == {group.id: "cancelled"}
    assert await rest(harness, queue) == [1]
    assert (await harness.lane(group)).attempts == 0


async def test_a_blocked_lane_goes_on_when_its_message_is_cancelled(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2, retry_limit=0, on_exhausted="block")
    await harness.nack(await harness.pop(queue, batch=1))
    assert not await harness.pop(queue)
    assert (await harness.lane(group)).stopped == "blocked"
    await cancel(harness, partition, 0)
    assert await rest(harness, queue) == [1]


async def test_a_failed_message_of_an_unordered_queue_is_not_retried_when_it_is_cancelled(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2, ordering="unordered")
    taken = await harness.pop(queue, batch=1)
    await ack(harness, verdicts(taken, nack=0), queue)
    assert await cancel(harness, partition, 0) == {group.id: "cancelled"}
    assert await rest(harness, queue) == [1]
    assert (await harness.lane(group)).committed == 2


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_cancelled_message_takes_no_place_in_a_limited_queue(harness: Harness, ordering: str) -> None:
    queue, _, partition = await filled(harness, 2, ordering=ordering, max_size=2)
    await cancel(harness, partition, 0)
    assert await harness.store.queues.depth(queue.id) == 1
    taken = await harness.pop(queue)
    await cancel(harness, partition, 1)
    assert await harness.store.queues.depth(queue.id) == 0
    await harness.push(queue, ["a", "b"])
    assert taken.data == [1]


# Messages that are held


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_cancelling_a_held_message_ends_its_lease_and_the_lane_goes_on(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 2, ordering=ordering)
    taken = await harness.pop(queue, batch=1)
    [lane] = [one for one in await harness.store.cancellations.cancel(partition, 0, 0) if one.group_id]
    assert lane == CancelledLane(group.id, "cancelled", taken.token)
    assert await harness.store.messages.leased(taken.lease) == []
    assert await rest(harness, queue) == [1]


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("verdict", ["done", "failed", "dead"])
@pytest.mark.parametrize("batch", [1, 3])
async def test_an_ack_of_a_cancelled_message_is_refused(
    harness: Harness, ordering: str, verdict: str, batch: int
) -> None:
    queue, _, partition = await filled(harness, 3, ordering=ordering)
    taken = await harness.pop(queue, batch=batch)
    await cancel(harness, partition, 0)
    late = {"done": verdicts(taken, 0), "failed": verdicts(taken, nack=0), "dead": verdicts(taken, 0, dead=0)}[verdict]
    if verdict == "dead" and ordering == "unordered":
        late.done = []
    acked = await ack(harness, late, queue)
    assert acked.cancelled == [0]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0
    if batch == 3:
        assert (await ack(harness, verdicts(taken, 1, 2), queue)).cancelled == []
    assert await rest(harness, queue) == ([1, 2] if batch == 1 else [])


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_the_other_messages_of_a_batch_stay_leased(harness: Harness, ordering: str, position: int) -> None:
    queue, group, partition = await filled(harness, 3, ordering=ordering)
    taken = await harness.pop(queue)
    await cancel(harness, partition, position)
    others = [number for number in range(3) if number != position]
    outcome = await harness.renew(taken.lease, seconds=600)
    assert (outcome.renewed, outcome.cancelled) == (1, [(partition, position)])
    assert not await harness.pop(queue), "the batch is still held"
    acked = await ack(harness, verdicts(taken, *others), queue)
    assert (acked.state, acked.released, acked.cancelled) == ("ok", True, [])
    assert (await harness.lane(group)).committed == 3
    assert not await harness.pop(queue)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_one_ack_of_a_whole_batch_names_the_cancelled_message(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 4, ordering=ordering)
    taken = await harness.pop(queue)
    await cancel(harness, partition, 2)
    whole = verdicts(taken)
    whole.done = [(0, 4)]
    assert (await ack(harness, whole, queue)).cancelled == [2]
    assert (await harness.lane(group)).committed == 4


async def test_a_cumulative_ack_finishes_the_others_and_names_only_its_last_message(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 6)
    await harness.ack(await harness.pop(queue, batch=2))
    taken = await harness.pop(queue)
    await cancel(harness, partition, 3)
    through = verdicts(taken)
    through.done, through.cumulative = [(0, 6)], True
    assert (await harness.apply(through)).cancelled == []
    assert (await harness.lane(group)).committed == 6


async def test_an_ack_behind_a_nack_of_the_same_call_names_the_cancelled_message(harness: Harness) -> None:
    queue, _, partition = await filled(harness, 3)
    broker = harness.broker
    batch = await broker.pop(queue.name, batch=3)
    await cancel(harness, partition, 2)
    statuses: list[AckStatus] = ["completed", "failed", "completed"]
    items = [ack_item(message, status) for message, status in zip(batch, statuses, strict=True)]
    outcomes = await broker.ack_many(items)
    assert [outcome.code for outcome in outcomes] == [None, None, "cancelled"]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_renewing_a_lease_that_a_cancellation_ended_says_so(harness: Harness, ordering: str) -> None:
    queue, _, partition = await filled(harness, 1, ordering=ordering)
    taken = await harness.pop(queue)
    await cancel(harness, partition, 0)
    assert await harness.renew(taken.lease, seconds=60) == RenewOutcome(0, None, [(partition, 0)])
    found = await harness.store.cancellations.of_leases([taken.lease])
    assert found == [(taken.lease, partition, 0)]
    other = await harness.pop(queue)
    assert not other


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_releasing_or_losing_a_lease_does_not_bring_a_cancelled_message_back(
    harness: Harness, ordering: str
) -> None:
    queue, group, partition = await filled(harness, 3, ordering=ordering, lease_seconds=10)
    taken = await harness.pop(queue)
    await cancel(harness, partition, 1)
    await harness.store.messages.release(taken.lease)
    taken = await harness.pop(queue, batch=2)
    assert taken.data == ([0] if ordering == "per_key" else [0, 2])
    await cancel(harness, partition, 0)
    harness.clock.advance(11)
    assert await rest(harness, queue) == [2]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0
    assert (await harness.lane(group)).committed == 3


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_whose_lease_ran_out_can_be_cancelled(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 2, ordering=ordering, lease_seconds=10)
    taken = await harness.pop(queue, batch=1)
    harness.clock.advance(11)
    [lane] = [one for one in await harness.store.cancellations.cancel(partition, 0, 0) if one.group_id]
    assert lane == CancelledLane(group.id, "cancelled", None), "nobody holds it"
    assert (await ack(harness, verdicts(taken, 0), queue)).cancelled == [0]
    assert await rest(harness, queue) == [1]


# Which groups


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_every_group_that_has_not_finished_it_loses_a_cancelled_message(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 2, ordering=ordering)
    other, third = await harness.group(queue, "other"), await harness.group(queue, "third")
    taken = await harness.pop(queue, other, batch=1)
    await ack(harness, verdicts(taken, 0), queue)
    assert await cancel(harness, partition, 0) == {
        group.id: "cancelled",
        other.id: "finished",
        third.id: "cancelled",
    }
    assert await harness.store.cancellations.at(partition, 0) == {0, group.id, third.id}
    for one in (group, other, third, await harness.group(queue, "new")):
        assert await rest(harness, queue, one) == [1]


async def test_one_group_may_lose_it_alone(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2)
    other = await harness.group(queue, "other")
    assert await cancel(harness, partition, 0, group.id) == {group.id: "cancelled"}
    assert await rest(harness, queue, group) == [1]
    assert await rest(harness, queue, other) == [0, 1]
    assert await rest(harness, queue, await harness.group(queue, "new")) == [0, 1]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_that_no_group_reads_yet_is_cancelled_for_those_to_come(
    harness: Harness, ordering: str
) -> None:
    queue = await harness.queue("jobs", ordering=ordering)
    await harness.push(queue, [0, 1, 2])
    partition = (await harness.partition(queue)).id
    assert [one.state for one in await harness.store.cancellations.cancel(partition, 0, 1)] == ["cancelled"]
    assert [one.state for one in await harness.store.cancellations.cancel(partition, 0, 1)] == ["already"]
    group = await harness.group(queue)
    assert await harness.store.cancellations.at(partition, 1) == {0, group.id}
    assert await rest(harness, queue, group) == [0, 2]


# Repeats and races


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_cancelling_twice_is_the_same_as_once(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 2, ordering=ordering)
    second = await harness.open_second()
    assert await cancel(harness, partition, 0) == {group.id: "cancelled"}
    assert await cancel(harness, partition, 0, store=second) == {group.id: "already"}
    assert await rest(harness, queue) == [1]
    assert await cancel(harness, partition, 0) == {group.id: "already"}


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_finished_message_cannot_be_cancelled(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 3, ordering=ordering)
    taken = await harness.pop(queue)
    await ack(harness, verdicts(taken, 1), queue)
    assert await cancel(harness, partition, 1) == {group.id: "finished"}
    assert await harness.store.cancellations.at(partition, 1) == set()
    dead = verdicts(taken, dead=0)
    dead.done = [] if ordering == "unordered" else [(0, 1)]
    await ack(harness, dead, queue)
    assert await cancel(harness, partition, 0) == {group.id: "finished"}, "a dead letter is finished, too"


async def test_a_message_that_is_not_there_cannot_be_cancelled(harness: Harness) -> None:
    queue, _, partition = await filled(harness, 2)
    assert await harness.store.cancellations.cancel(partition, 0, 2) == []
    await harness.store.browse.delete(partition, 1)
    assert await harness.store.cancellations.cancel(partition, 0, 1) == []
    assert await harness.store.cancellations.cancel(PartitionId(0, 2**40), 0, 0) == []
    assert await rest(harness, queue) == [0]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_of_a_cancel_and_an_ack_at_the_same_moment_one_wins(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 12, ordering=ordering)
    second = await harness.open_second()
    for position in range(12):
        taken = await harness.pop(queue, batch=1)
        done = verdicts(taken, position)
        done.unordered = ordering == "unordered"
        cancelled, acked = await asyncio.gather(
            cancel(harness, partition, position, store=second), answer(harness.apply(done))
        )
        if cancelled == {group.id: "cancelled"}:
            assert acked.cancelled == [position]
        else:
            assert (cancelled, acked.state, acked.cancelled) == ({group.id: "finished"}, "ok", [])
    assert await rest(harness, queue) == []


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_cancel_during_a_pop_ends_the_lease_that_the_pop_made(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 2, ordering=ordering)
    stopped = harness.stopped_pop(queue, group, batch=1)
    async with asyncio.TaskGroup() as tasks, stopped as (taken, arrived):
        cancelling = tasks.create_task(cancel(harness, partition, 0))
        await arrived(cancelling)
    assert cancelling.result() == {group.id: "cancelled"}
    assert (await ack(harness, verdicts(taken, 0), queue)).cancelled == [0]
    assert await rest(harness, queue) == [1]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_transaction_that_acks_a_cancelled_message_stores_nothing(harness: Harness, ordering: str) -> None:
    queue, _, partition = await filled(harness, 2, ordering=ordering)
    target = await harness.queue("target")
    to = await harness.partition(target)
    taken = await harness.pop(queue)
    await cancel(harness, partition, 0)
    for done in ([0], [0, 1]):
        late = verdicts(taken, *done)
        late.unordered = ordering == "unordered"
        slice_ = harness.slice(target, to, ["pushed"])
        [acked], _ = await harness.store.messages.transact([late], [slice_])
        assert acked.cancelled == [0]
        assert not await harness.pop(target)
    kept = verdicts(taken, 1)
    kept.unordered = ordering == "unordered"
    [acked], _ = await harness.store.messages.transact([kept], [harness.slice(target, to, ["pushed"])])
    assert (acked.state, acked.cancelled) == ("ok", [])
    assert (await harness.pop(target)).data == ["pushed"]


# What stays


async def test_a_cancellation_survives_a_restart(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2)
    await cancel(harness, partition, 0)
    await harness.reopen()
    assert await harness.store.cancellations.at(partition, 0) == {0, group.id}
    assert await rest(harness, queue) == [1]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_seek_does_not_bring_a_cancelled_message_back(harness: Harness, ordering: str) -> None:
    queue, group, partition = await filled(harness, 4, ordering=ordering)
    other = await harness.group(queue, "other")
    await cancel(harness, partition, 1)
    await cancel(harness, partition, 3, group.id)
    assert await rest(harness, queue, group) == [0, 2]
    assert await rest(harness, queue, other) == [0, 2, 3]
    for one in (group, other):
        await harness.store.groups.seek(one.id, Seek("beginning"))
    assert await rest(harness, queue, group) == [0, 2]
    assert await rest(harness, queue, other) == [0, 2, 3]


async def test_cancelled_messages_are_listed_with_their_groups(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    await harness.group(queue, "other")
    await cancel(harness, partition, 0)
    await cancel(harness, partition, 2, group.id)
    found = await harness.store.cancellations.among([(partition, position) for position in range(3)])
    assert found == {(partition, 0): {"", "__QUEUE_MODE__", "other"}, (partition, 2): {"__QUEUE_MODE__"}}


@pytest.mark.parametrize("how", ["message", "group", "queue"])
async def test_records_of_cancelled_messages_are_deleted_with_what_they_belong_to(harness: Harness, how: str) -> None:
    queue, group, partition = await filled(harness, 2)
    taken = await harness.pop(queue)
    await cancel(harness, partition, 0)
    if how == "message":
        assert await harness.store.browse.delete(partition, 0)
    elif how == "group":
        await harness.store.groups.delete(group.id)
        assert await harness.store.cancellations.at(partition, 0) == {0}
        return
    else:
        await harness.store.queues.delete(queue.tenant, queue.name)
        await harness.store.queues.purge()
    assert await harness.store.cancellations.at(partition, 0) == set()
    assert await harness.store.cancellations.of_leases([taken.lease]) == []


# Scheduled messages


async def scheduled(harness: Harness, queue: Queue, ids: Sequence[str], delay_ms: int = 60_000) -> PartitionId:
    lane = await harness.partition(queue)
    part = harness.slice(queue, lane, list(ids), ids=ids)
    times = [harness.clock() + delay_ms * 1000] * len(ids)
    await harness.store.scheduled.add([ScheduledSlice(part, lane.name, list(times), [0] * len(ids))])
    return lane.id


async def test_a_cancelled_scheduled_message_never_comes_and_is_remembered(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await scheduled(harness, queue, ["a", "b"])
    cancellations = harness.store.cancellations
    assert await cancellations.cancel_scheduled(partition, "a")
    assert not await cancellations.cancel_scheduled(partition, "a"), "it is not scheduled anymore"
    assert not await cancellations.cancel_scheduled(partition, "c")
    known = [await cancellations.was_scheduled(partition, id) for id in ("a", "b", "c")]
    assert known == [True, False, False]
    harness.clock.advance(120)
    await harness.store.scheduled.append_due()
    assert await rest(harness, queue) == ["b"]
    assert await cancellations.was_scheduled(partition, "a")


async def test_of_a_cancel_and_the_appending_of_a_due_message_one_wins(harness: Harness) -> None:
    queue = await harness.queue()
    second = await harness.open_second()
    group = await harness.group(queue)
    cancelled = []
    for number in range(8):
        partition = await scheduled(harness, queue, [str(number)], delay_ms=1)
        harness.clock.advance(1)
        done, _ = await asyncio.gather(
            second.cancellations.cancel_scheduled(partition, str(number)), harness.store.scheduled.append_due()
        )
        cancelled += [str(number)] if done else []
    left = [str(number) for number in range(8) if str(number) not in cancelled]
    assert await rest(harness, queue, group) == left
