"""An ack finishes exactly the messages that it names, in any order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fairlane.broker.transact import AckStep
from fairlane.errors import AlreadyApplied, TransactionRefused
from fairlane.model.group import Seek
from fairlane.model.message import PushItem
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckItem
from fairlane.store.contract.values import DeadFilter, LaneAck, ToDeadLetter
from tests.conformance.harness import Harness
from tests.conformance.test_ack_by_id import codes, deliver, item, pop
from tests.conformance.test_retention import run, total


async def rest(harness: Harness, queue: str) -> list[Any]:
    """Return the remaining deliveries, batch by batch."""
    seen: list[Any] = []
    while batch := await harness.broker.pop(queue, batch=100):
        seen += [delivery.data for delivery in batch]
        await harness.broker.ack(batch)
    return seen


async def test_what_an_ack_does_not_name_comes_again_when_the_lease_ends(harness: Harness) -> None:
    batch = await deliver(harness, 5, lease_seconds=5)
    [outcome] = await harness.broker.ack(batch[4])
    assert (outcome.success, outcome.noop, outcome.lease_released) == (True, False, False)
    assert (await harness.broker.renew(batch.lease)).renewed == 1
    harness.clock.advance(60)
    assert await rest(harness, batch[0].queue) == [0, 1, 2, 3]


async def test_acks_in_any_order_end_the_lease_with_the_last(harness: Harness) -> None:
    for order in itertools.permutations(range(3)):
        batch = await deliver(harness, 3)
        await harness.broker.push(batch[0].queue, "next")
        for number, index in enumerate(order):
            [outcome] = await harness.broker.ack(batch[index])
            assert (outcome.success, outcome.noop, outcome.lease_released) == (True, False, number == 2)
            assert bool(await pop(harness.broker, batch)) == (number == 2)


async def test_what_was_finished_ahead_is_known_also_when_less_was_handed_out_since(harness: Harness) -> None:
    batch = await deliver(harness, 4)
    await harness.broker.ack(batch[2])
    await harness.broker.release(batch.lease)
    await harness.broker.pop(batch[0].queue, batch=1)
    [again, failed] = [
        (await harness.broker.ack_many([item(batch[2], lease=None, status=status)]))[0]
        for status in ("completed", "failed")
    ]
    assert (again.success, again.noop, failed.code) == (True, True, "committed")


async def test_one_call_may_leave_messages_out(harness: Harness) -> None:
    batch = await deliver(harness, 8)
    outcomes = await harness.broker.ack_many([item(batch[index]) for index in (7, 0, 3, 1, 4)])
    assert codes(outcomes) == [None] * 5
    assert not outcomes[0].lease_released
    await harness.broker.release(batch.lease)
    assert await rest(harness, batch[0].queue) == [2, 5, 6]


async def test_a_failure_does_not_bring_back_what_was_finished_before(harness: Harness) -> None:
    batch = await deliver(harness, 4)
    await harness.broker.ack(batch[2])
    [outcome] = await harness.broker.nack(batch[1], error="boom")
    assert outcome.lease_released
    again = await harness.broker.pop(batch[0].queue, batch=9)
    assert [(one.data, one.failed_attempts) for one in again] == [(0, 0), (1, 0)], "only a lane's first tells"
    await harness.broker.ack(again[0])
    await harness.broker.release(again.lease)
    [failed] = await harness.broker.pop(batch[0].queue, batch=9)
    assert (failed.data, failed.failed_attempts) == (1, 1)
    await harness.broker.ack(failed)
    assert await rest(harness, batch[0].queue) == [3]


async def test_an_exhausted_message_is_dead_lettered_at_once_if_all_before_it_are_finished(harness: Harness) -> None:
    """The earlier messages are finished by earlier acks or by the same call, as dead letters or not."""
    batch = await deliver(harness, 4, retry_limit=0)
    await harness.broker.ack(batch[1])
    outcomes = await harness.broker.ack_many([item(batch[0]), item(batch[2], status="failed")])
    assert [outcome.dead_lettered for outcome in outcomes] == [False, True]
    assert await rest(harness, batch[0].queue) == [3]
    batch = await deliver(harness, 3, retry_limit=0)
    outcomes = await harness.broker.ack_many([item(batch[0], status="dlq"), item(batch[1], status="failed")])
    assert [outcome.dead_lettered for outcome in outcomes] == [True, True]
    assert await rest(harness, batch[0].queue) == [2]


async def test_a_lost_lease_charges_the_first_message_that_is_open(harness: Harness) -> None:
    batch = await deliver(harness, 4, lease_seconds=5, retry_limit=0)
    await harness.broker.ack(batch[0])
    await harness.broker.ack(batch[2])
    harness.clock.advance(5)
    assert await rest(harness, batch[0].queue) == [3], "what was finished ahead is not charged in its stead"
    [letter] = await harness.broker.dead_letters.page(batch[0].queue)
    assert (letter.position, letter.attempts) == (1, 1)


async def test_the_last_word_may_come_while_another_holds_the_lane(harness: Harness) -> None:
    """The ack has no lease and is for messages that the lane's last holder was given."""
    batch = await deliver(harness, 3, lease_seconds=5)
    harness.clock.advance(5)
    assert codes(await harness.broker.ack_many([item(batch[1], lease=None)])) == [None]
    heir = await harness.broker.pop(batch[0].queue, batch=9)
    assert [one.data for one in heir] == [0]
    assert codes(await harness.broker.ack(heir)) == [None]
    assert await rest(harness, batch[0].queue) == [2]


async def test_a_seek_brings_back_what_was_finished_ahead(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    await harness.broker.ack(batch[1])
    await harness.broker.groups.seek(batch[0].queue, QUEUE_MODE, Seek("beginning"))
    assert await rest(harness, batch[0].queue) == [0, 1, 2]


async def test_a_message_is_dead_lettered_alone(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    [outcome] = await harness.broker.ack(batch[1], "dlq", error="unwanted")
    assert (outcome.success, outcome.dead_lettered, outcome.lease_released) == (True, True, False)
    [letter] = await harness.broker.dead_letters.page(batch[0].queue)
    assert (letter.position, letter.error) == (1, "unwanted")
    await harness.broker.release(batch.lease)
    assert await rest(harness, batch[0].queue) == [0, 2]
    assert len(await harness.broker.dead_letters.page(batch[0].queue)) == 1


async def test_what_was_finished_ahead_is_known_when_it_is_said_again(harness: Harness) -> None:
    batch = await deliver(harness, 3, retry_limit=0)
    await harness.broker.ack(batch[2], result={"charged": True})
    [again] = await harness.broker.ack(batch[2], result="other")
    assert (again.success, again.noop, again.result) == (True, True, b'{"charged":true}')
    for status in ("failed", "retry", "dlq"):
        assert codes(await harness.broker.ack(batch[2], status)) == ["committed"]
    assert (await harness.broker.renew(batch.lease)).renewed == 1, "the lease goes on"
    assert await harness.broker.dead_letters.page(batch[0].queue) == []
    outcomes = await harness.broker.ack(batch)
    assert [outcome.noop for outcome in outcomes] == [False, False, True]
    assert await rest(harness, batch[0].queue) == []


async def test_a_late_nack_of_what_was_finished_clamps_nothing(harness: Harness) -> None:
    batch = await deliver(harness, 4)
    await harness.broker.ack(batch[1])
    verdicts = [item(batch[0]), item(batch[1], "failed"), item(batch[2])]
    assert codes(await harness.broker.ack_many(verdicts)) == [None, "committed", None]
    await harness.broker.release(batch.lease)
    assert await rest(harness, batch[0].queue) == [3]


async def test_an_ack_that_is_repeated_after_its_lease_ended_is_told_from_a_stale_one(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    await harness.broker.ack(batch[2], result=1)
    await harness.broker.nack(batch[0])
    [again] = await harness.broker.ack(batch[2])
    assert (again.success, again.noop, again.result) == (True, True, b"1")
    assert codes(await harness.broker.ack(batch[1], check=False)) == ["lease_lost"]
    assert codes(await harness.broker.ack_many([item(batch[1]), item(batch[2])])) == ["lease_lost", "lease_lost"]


async def test_an_ack_without_a_lease_finishes_nothing_that_was_not_handed_out(harness: Harness) -> None:
    batch = await deliver(harness, 2)
    queue = batch[0].queue
    pushed = await harness.broker.push(queue, "not yet")
    ahead = item(batch[0], lease=None)
    ahead.transaction_id = pushed.transaction_id
    for status in ("completed", "failed", "retry", "dlq"):
        ahead.status = status
        [outcome] = await harness.broker.ack_many([ahead])
        assert codes([outcome]) == ["not_delivered"]
        assert "not delivered yet" in (outcome.error or "")
    ahead.status = "completed"
    outcomes = await harness.broker.ack_many([item(batch[1], lease=None), ahead])
    assert codes(outcomes) == [None, "not_delivered"]
    await harness.broker.release(batch.lease)
    assert await rest(harness, queue) == [0, "not yet"]
    assert await harness.broker.dead_letters.page(queue) == []


async def test_a_lane_that_nobody_read_is_finished_by_no_ack(harness: Harness) -> None:
    queue = harness.name("orders")
    pushed = [await harness.broker.push(queue, number) for number in range(3)]
    stored = await harness.store.queues.get("default", queue)
    assert stored is not None
    await harness.group(stored)
    partition = pushed[0].partition
    assert partition is not None
    named = [AckItem(transaction_id=one.transaction_id, partition=partition) for one in pushed]
    assert codes(await harness.broker.ack_many(named)) == ["not_delivered"] * 3
    assert await rest(harness, queue) == [0, 1, 2]


async def test_a_failure_without_a_lease_is_not_finished_by_a_later_ack(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    assert codes(await harness.broker.ack_many([item(batch[0], "failed", lease=None)])) == [None]
    assert codes(await harness.broker.ack_many([item(batch[1], lease=None)])) == [None]
    again = await harness.broker.pop(batch[0].queue, batch=9)
    assert [(one.data, one.failed_attempts) for one in again] == [(0, 1)]
    await harness.broker.ack(again)
    assert await rest(harness, batch[0].queue) == [2]


async def test_a_transaction_finishes_what_it_names_and_is_known_when_it_comes_again(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    out = harness.name("out")
    ack = AckStep(item(batch[1]), QUEUE_MODE)
    push = PushItem(queue=out, payload=b"1", transaction_id="once")
    for _ in range(2):
        await harness.broker.transact([ack, push])
    with pytest.raises(AlreadyApplied):
        await harness.broker.transact([ack, PushItem(queue=out, payload=b"2")])
    assert await rest(harness, out) == [1]
    await harness.broker.release(batch.lease)
    await harness.broker.transact([ack, push])
    assert await rest(harness, batch[0].queue) == [0, 2]


async def test_a_transaction_with_an_ack_of_what_was_not_handed_out_is_refused(harness: Harness) -> None:
    batch = await deliver(harness, 1)
    queue, out = batch[0].queue, harness.name("out")
    pushed = await harness.broker.push(queue, "not yet")
    ahead = item(batch[0], lease=None)
    ahead.transaction_id = pushed.transaction_id
    with pytest.raises(TransactionRefused, match="not delivered yet"):
        await harness.broker.transact([PushItem(queue=out, payload=b"1"), AckStep(ahead, QUEUE_MODE)])
    assert await rest(harness, out) == []
    await harness.broker.release(batch.lease)
    assert await rest(harness, queue) == [0, "not yet"]


async def test_any_broker_knows_what_was_finished_ahead(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    other = await harness.second_broker()
    assert codes(await other.ack_many([item(batch[2])])) == [None]
    assert codes(await harness.broker.ack_many([item(batch[0]), item(batch[1])])) == [None, None]
    assert (await other.renew(batch.lease)).renewed == 0, "all of it is finished"


async def test_places_of_what_was_finished_ahead_are_free_when_the_cursor_has_passed(harness: Harness) -> None:
    batch = await deliver(harness, 3, max_size=3)
    queue = await harness.store.queues.get("default", batch[0].queue)
    assert queue is not None
    await harness.broker.ack(batch[1])
    assert await harness.store.queues.depth(queue.id) == 3
    await harness.broker.ack(batch[0])
    assert await harness.store.queues.depth(queue.id) == 1
    await harness.broker.ack(batch[2])
    assert await harness.store.queues.depth(queue.id) == 0


async def test_what_was_finished_ahead_does_not_expire(harness: Harness) -> None:
    batch = await deliver(harness, 3, lease_seconds=5, retention_enabled=True, retention_seconds=60)
    queue = await harness.store.queues.get("default", batch[0].queue)
    assert queue is not None
    await harness.broker.ack(batch[1])
    harness.clock.advance(60)
    assert total(await run(harness), queue, "retention") == 3
    [lane] = await harness.broker.groups.lanes(queue.name, QUEUE_MODE)
    assert (lane.expired, lane.committed) == (2, 3)


@pytest.mark.parametrize("on_expiry", ["drop", "dead_letter"])
async def test_what_was_finished_ahead_is_not_too_old(harness: Harness, on_expiry: str) -> None:
    batch = await deliver(harness, 3, lease_seconds=5, ttl_seconds=60, on_expiry=on_expiry)
    await harness.broker.ack(batch[1])
    harness.clock.advance(60)
    assert await rest(harness, batch[0].queue) == []
    [lane] = await harness.broker.groups.lanes(batch[0].queue, QUEUE_MODE)
    assert lane.expired + lane.dead == 2


async def test_lanes_tell_what_waits_without_what_is_finished(harness: Harness) -> None:
    batch = await deliver(harness, 4)
    await harness.broker.ack_many([item(batch[1]), item(batch[2])])
    await harness.broker.release(batch.lease)
    [lane] = await harness.broker.groups.lanes(batch[0].queue, QUEUE_MODE)
    assert (lane.head - lane.committed, lane.skipped) == (4, 2)
    assert await rest(harness, batch[0].queue) == [0, 3]
    [[left]] = await harness.backend.sql(
        "SELECT count(*) FROM fairlane.skips WHERE partition_id = $1", batch[0].partition_id.id
    )
    assert left == 0, "nothing is kept of it once the cursor has passed"


async def test_a_deleted_message_does_not_keep_its_holders_lease(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    assert await harness.store.browse.delete(batch[1].partition_id, 1)
    assert not (await harness.broker.ack(batch[0]))[0].lease_released
    assert (await harness.broker.ack(batch[2]))[0].lease_released


async def test_settlements_name_ranges(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, list(range(10)))
    taken = await harness.pop(queue)
    ack = harness.ordered_ack(
        taken, 4, dead_letters=[ToDeadLetter(8, "bad")], results=[(3, b"3"), (8, b"8"), (9, b"9")]
    )
    ack.done = [(2, ack.done[0][1]), (5, 6), (8, 9)]
    acked = await harness.apply(ack)
    assert (acked.state, acked.before, acked.after, acked.finished) == ("ok", 0, 0, [])
    assert (await harness.apply(ack)).finished == [2, 3, 5, 8]
    results = [await harness.store.groups.result(taken.group.id, taken.lane.partition, at) for at in (3, 8, 9)]
    assert results == [b"3", b"8", None]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 1
    assert (await harness.ack(taken, 2)).after == 4
    assert (await harness.ack(taken, 5)).after == 6
    assert (await harness.ack(taken)).released


async def test_a_cumulative_settlement_finishes_all_that_lies_below(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, list(range(3)))
    taken = await harness.pop(queue)
    plain = LaneAck(partition=taken.lane.partition, group_id=taken.group.id, token=taken.token, done=[(0, 3)])
    assert (await harness.apply(plain)).released


async def test_a_cumulative_ack_without_a_lease_finishes_its_message_alone(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    assert codes(await harness.broker.ack_many([item(batch[1], lease=None, cumulative=True)])) == [None]
    await harness.broker.release(batch.lease)
    assert await rest(harness, batch[0].queue) == [0, 2]


async def test_what_was_said_before_a_nack_that_came_too_late_knows_that_the_lease_ended(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    await harness.broker.ack(batch[1])
    said = [item(batch[0], status="dlq"), item(batch[1], status="failed"), item(batch[2])]
    outcomes = await harness.broker.ack_many(said)
    assert codes(outcomes) == [None, "committed", None]
    assert [outcome.lease_released for outcome in outcomes] == [True, False, True]
