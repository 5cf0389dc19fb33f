"""Acks as consumers send them: by transactionId and status, with one outcome per message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.leases import LeasedBatch
from fairlane.errors import InvalidRequest, LeaseLost
from fairlane.model.batch import Batch
from fairlane.model.lease import LeaseId
from fairlane.model.message import Message
from fairlane.model.outcome import AckItem, AckOutcome, AckStatus
from tests.conformance.harness import Harness


async def deliver(harness: Harness, count: int, **options: Any) -> Batch[Any]:
    """Deliver a batch of the messages 0, 1, 2 and so on."""
    name = harness.name("orders")
    await harness.broker.queues.configure(name, **options)
    for number in range(count):
        await harness.broker.push(name, number)
    batch = await harness.broker.pop(name, batch=count)
    assert [delivery.data for delivery in batch] == list(range(count))
    return batch


def item(delivery: Message[Any], status: AckStatus = "completed", **words: Any) -> AckItem:
    values = {"partition": delivery.partition_id, "lease": delivery.lease, **words}
    return AckItem(transaction_id=delivery.transaction_id, status=status, **values)


async def pop(broker: Broker, batch: Batch[Any], count: int = 100) -> list[Any]:
    return [delivery.data for delivery in await broker.pop(batch[0].queue, batch=count)]


def codes(outcomes: Sequence[AckOutcome]) -> list[str | None]:
    for outcome in outcomes:
        assert outcome.success == (outcome.code is None)
        assert outcome.success == (outcome.error is None)
    return [outcome.code for outcome in outcomes]


@pytest.mark.parametrize("status", ["completed", "success"])
async def test_a_finished_message_is_not_delivered_again(harness: Harness, status: AckStatus) -> None:
    batch = await deliver(harness, 2)
    outcomes = await harness.broker.ack(batch, status)
    assert codes(outcomes) == [None, None]
    assert [outcome.noop for outcome in outcomes] == [False, False]
    assert outcomes[-1].lease_released
    assert await pop(harness.broker, batch) == []


async def test_messages_of_a_lease_that_are_gone_have_no_position(harness: Harness) -> None:
    """Messages may be moved or deleted between the read of a lease and the read of its messages."""
    batch = await deliver(harness, 3)
    partition, lease = batch[0].partition_id, LeaseId.parse(batch[0].lease)
    assert lease is not None
    segments = await harness.store.messages.read(partition, 1, 3)
    found = LeasedBatch(lease, range(3), 0, segments).positions()
    assert found == {batch[1].transaction_id: 1, batch[2].transaction_id: 2}
    assert LeasedBatch(lease, range(3), 0, []).positions() == {}


async def test_a_failed_message_and_all_behind_it_come_again_whatever_was_said_of_them(harness: Harness) -> None:
    """A call with [failed, completed] must not move the cursor past the failure."""
    batch = await deliver(harness, 4)
    outcomes = await harness.broker.ack_many(
        [item(batch[0]), item(batch[1], "failed", error="no"), item(batch[2]), item(batch[3])]
    )
    assert codes(outcomes) == [None, None, "redelivered", "redelivered"]
    assert not outcomes[1].dead_lettered
    assert await pop(harness.broker, batch) == [1, 2, 3]


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_items_with_and_without_a_position_are_all_found(harness: Harness, ordering: str) -> None:
    batch = await deliver(harness, 4, ordering=ordering)
    located = [
        AckItem(transaction_id="any", partition=one.partition_id, lease=one.lease, position=one.position)
        for one in (batch[2], batch[0])
    ]
    beyond = AckItem(transaction_id="any", partition=batch[0].partition_id, lease=batch[0].lease, position=9)
    outcomes = await harness.broker.ack_many([located[0], item(batch[3]), located[1], item(batch[1]), beyond])
    assert codes(outcomes) == [None, None, None, None, "unresolvable"]
    assert await pop(harness.broker, batch) == []


async def test_a_batch_of_failures_at_the_last_retry_loses_none(harness: Harness) -> None:
    """Only the first message is charged. The others wait behind it and do not become dead letters in its place."""
    batch = await deliver(harness, 3, retry_limit=1)
    queue = batch[0].queue
    await harness.broker.nack(batch, error="once")
    batch = await harness.broker.pop(queue, batch=3)
    outcomes = await harness.broker.nack(batch, error="twice")
    assert [outcome.dead_lettered for outcome in outcomes] == [True, False, False]
    assert codes(outcomes) == [None, "redelivered", "redelivered"]
    assert [letter.position for letter in await harness.broker.dead_letters.page(queue)] == [0]
    assert await pop(harness.broker, batch) == [1, 2]


async def test_an_ack_below_the_cursor_does_not_rewind_it(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    await harness.broker.ack(batch)
    for lease in (batch.lease, None):
        [outcome] = await harness.broker.ack_many([item(batch[0], lease=lease)])
        assert (outcome.success, outcome.noop) == (True, True)
    assert await pop(harness.broker, batch) == []


async def test_a_cumulative_ack_of_the_middle_completes_what_is_before_and_keeps_the_lease(harness: Harness) -> None:
    batch = await deliver(harness, 4)
    [outcome] = await harness.broker.ack_many([item(batch[1], cumulative=True)])
    assert (outcome.success, outcome.noop, outcome.lease_released) == (True, False, False)
    assert (await harness.broker.renew(batch.lease)).renewed == 1
    [again] = await harness.broker.ack(batch[0])
    assert (again.success, again.noop) == (True, True)
    [inside] = await harness.broker.ack(batch[2])
    assert (inside.success, inside.noop) == (True, False)
    await harness.broker.release(batch.lease)
    assert await pop(harness.broker, batch) == [3]


@pytest.mark.parametrize("status", ["failed", "retry", "dlq"])
async def test_a_nack_below_the_cursor_is_refused_naming_committed(harness: Harness, status: AckStatus) -> None:
    batch = await deliver(harness, 3, retry_limit=0)
    await harness.broker.ack_many([item(batch[1], cumulative=True)])
    [outcome] = await harness.broker.ack(batch[0], status)
    assert codes([outcome]) == ["committed"]
    assert "committed" in (outcome.error or "")
    assert not outcome.dead_lettered
    assert await harness.broker.dead_letters.page(batch[0].queue) == []
    assert (await harness.broker.renew(batch.lease)).renewed == 1, "the lease goes on"


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
@pytest.mark.parametrize("leased", [True, False], ids=["leased", "bare"])
async def test_an_unknown_id_is_unresolvable_and_burns_no_lease(
    harness: Harness, status: AckStatus, leased: bool
) -> None:
    batch = await deliver(harness, 2)
    unknown = item(batch[0], status, lease=batch.lease if leased else None)
    unknown.transaction_id = "never pushed"
    [outcome] = await harness.broker.ack_many([unknown])
    assert codes([outcome]) == ["unresolvable"]
    assert "unresolv" in (outcome.error or "")
    assert (await harness.broker.renew(batch.lease)).renewed == 1
    assert codes(await harness.broker.ack(batch)) == [None, None]


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
@pytest.mark.parametrize("other", [False, True], ids=["the same broker", "another broker"])
@pytest.mark.parametrize("located", [False, True], ids=["by id", "by position"])
async def test_a_repeated_ack_is_known_while_the_rest_of_its_lease_is_held(
    harness: Harness, ordering: str, other: bool, located: bool
) -> None:
    batch = await deliver(harness, 4, ordering=ordering)
    broker = await harness.second_broker() if other else harness.broker
    last = [item(one, position=one.position if located else None, cumulative=False) for one in (batch[3], batch[2])]
    assert codes(await harness.broker.ack_many(last)) == [None, None]
    outcomes = await broker.ack_many(last)
    assert [(outcome.code, outcome.noop) for outcome in outcomes] == [(None, True)] * 2
    assert (await harness.broker.renew(batch.lease)).renewed == 1


async def test_an_id_that_is_stored_but_not_in_the_lease_is_not_finished_by_it(harness: Harness) -> None:
    batch = await deliver(harness, 1)
    pushed = await harness.broker.push(batch[0].queue, "later")
    later = item(batch[0])
    later.transaction_id = pushed.transaction_id
    [outcome] = await harness.broker.ack_many([later])
    assert codes([outcome]) == ["unresolvable"]
    await harness.broker.ack(batch)
    assert await pop(harness.broker, batch) == ["later"]


async def test_one_unknown_id_does_not_fail_its_neighbours(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    unknown = item(batch[1])
    unknown.transaction_id = "never pushed"
    outcomes = await harness.broker.ack_many([item(batch[0]), unknown, item(batch[2])])
    assert codes(outcomes) == [None, "unresolvable", None]
    await harness.broker.release(batch.lease)
    assert await pop(harness.broker, batch) == [1]


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
async def test_a_stale_lease_refuses_every_item(harness: Harness, status: AckStatus) -> None:
    batch = await deliver(harness, 2, lease_seconds=5, retry_limit=9)
    harness.clock.advance(5)
    with pytest.raises(LeaseLost, match="the lease of 2 of 2 messages ended"):
        await harness.broker.ack(batch, status)
    outcomes = await harness.broker.ack(batch, status, check=False)
    assert codes(outcomes) == ["lease_lost", "lease_lost"]
    assert all("lease" in (outcome.error or "") for outcome in outcomes)
    heir = await harness.broker.pop(batch[0].queue)
    assert (heir[0].data, heir[0].failed_attempts) == (0, 1)
    assert codes(await harness.broker.ack(batch, status, check=False)) == ["lease_lost", "lease_lost"]
    assert codes(await harness.broker.ack(heir)) == [None]


@pytest.mark.parametrize("lease", ["x", "1.2.3", "0-0", "9" * 300, "1.00000000-0000-7000-8000-000000000000"])
async def test_a_lease_that_never_was_refuses_every_item(harness: Harness, lease: str) -> None:
    batch = await deliver(harness, 2)
    outcomes = await harness.broker.ack_many([item(one, lease=lease) for one in batch])
    assert codes(outcomes) == ["lease_lost", "lease_lost"]
    assert (await harness.broker.renew(lease)).renewed == 0
    assert await harness.broker.release(lease) == 0
    assert codes(await harness.broker.ack(batch)) == [None, None]


async def test_another_groups_lease_refuses_every_item(harness: Harness) -> None:
    queue = harness.name("orders")
    for number in range(2):
        await harness.broker.push(queue, number)
    mine = await harness.broker.pop(queue, group="mine", batch=2)
    theirs = await harness.broker.pop(queue, group="theirs", batch=2)
    crossed = [item(one, lease=theirs.lease) for one in mine]
    assert codes(await harness.broker.ack_many(crossed, group="mine")) == ["lease_lost", "lease_lost"]
    assert codes(await harness.broker.ack_many(crossed, group="nobody")) == ["lease_lost", "lease_lost"]
    for batch in (mine, theirs):
        assert codes(await harness.broker.ack(batch)) == [None, None]


async def test_a_nack_lets_go_of_the_lane_also_when_it_dead_letters(harness: Harness) -> None:
    """With retry limit 1, batch 5 and one poison message, every other message is handled exactly once."""
    batch = await deliver(harness, 5, retry_limit=1)
    queue = batch[0].queue
    handled: list[int] = []
    while batch:
        for delivery in batch:
            if delivery.data == 2:
                [outcome] = await harness.broker.nack(delivery, error="poison")
                assert outcome.lease_released
                break
            handled.append(delivery.data)
            await harness.broker.ack(delivery)
        batch = await harness.broker.pop(queue, batch=5)
    assert handled == [0, 1, 3, 4]
    [letter] = await harness.broker.dead_letters.page(queue)
    assert (letter.position, letter.attempts, letter.error) == (2, 2, "poison")


async def test_acking_the_last_message_releases_the_lease(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    for delivery in batch[:2]:
        assert not (await harness.broker.ack(delivery))[0].lease_released
    assert (await harness.broker.ack(batch[2]))[0].lease_released
    renewed = await harness.broker.renew(batch.lease)
    assert (renewed.renewed, renewed.expires_at) == (0, None)


async def test_a_retry_charges_nothing(harness: Harness) -> None:
    batch = await deliver(harness, 2, retry_limit=0)
    for _ in range(4):
        outcomes = await harness.broker.ack(batch, "retry")
        assert codes(outcomes) == [None, "redelivered"]
        assert not outcomes[0].dead_lettered
        batch = await harness.broker.pop(batch[0].queue, batch=2)
        assert (batch[0].data, batch[0].failed_attempts) == (0, 0)


async def test_a_retry_clamps_the_cursor_like_a_failure(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    outcomes = await harness.broker.ack_many([item(batch[0]), item(batch[1], "retry"), item(batch[2])])
    assert codes(outcomes) == [None, None, "redelivered"]
    assert await pop(harness.broker, batch) == [1, 2]


async def test_a_dead_lettered_message_is_passed_at_once(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    outcomes = await harness.broker.ack_many([item(batch[0]), item(batch[1], "dlq", error="unwanted"), item(batch[2])])
    assert codes(outcomes) == [None, None, None]
    assert [outcome.dead_lettered for outcome in outcomes] == [False, True, False]
    [letter] = await harness.broker.dead_letters.page(batch[0].queue)
    assert (letter.position, letter.error) == (1, "unwanted")
    assert await pop(harness.broker, batch) == []


async def test_the_order_of_items_in_a_call_does_not_matter(harness: Harness) -> None:
    batch = await deliver(harness, 4)
    outcomes = await harness.broker.ack_many([item(batch[3]), item(batch[1]), item(batch[2], "failed"), item(batch[0])])
    assert codes(outcomes) == ["redelivered", None, None, None]
    assert await pop(harness.broker, batch) == [2, 3]


async def test_a_delay_is_instead_of_the_backoff(harness: Harness) -> None:
    batch = await deliver(harness, 1, retry_delay_ms=60_000)
    await harness.broker.ack(batch, "failed", delay_ms=2_000)
    harness.clock.advance(1.9)
    assert await pop(harness.broker, batch) == []
    harness.clock.advance(0.1)
    assert await pop(harness.broker, batch) == [0]


async def test_a_lane_backs_off_and_others_go_on(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue, retry_delay_ms=1_000)
    await harness.broker.push(queue, "bad", partition="a")
    [bad] = await harness.broker.pop(queue)
    await harness.broker.push(queue, "good", partition="b")
    await harness.broker.nack(bad)
    [good] = await harness.broker.pop(queue)
    assert good.data == "good"
    harness.clock.advance(1)
    [again] = await harness.broker.pop(queue)
    assert (again.data, again.failed_attempts) == ("bad", 1)


async def test_one_call_acks_lanes_of_one_lease(harness: Harness) -> None:
    queue = harness.name("orders")
    for name in "abc":
        await harness.broker.push(queue, name, partition=name)
        await harness.broker.push(queue, name * 2, partition=name)
    batch = await harness.broker.pop(queue, batch=6, partitions=3)
    assert len(batch) == 6
    assert {delivery.lease for delivery in batch} == {batch.lease}
    last = [delivery for delivery in batch if len(delivery.data) == 2]
    assert codes(await harness.broker.ack(last)) == [None, None, None]
    assert len(await harness.broker.pop(queue, batch=6, partitions=3)) == 0


async def test_a_result_is_kept_and_given_to_whoever_acks_again(harness: Harness) -> None:
    batch = await deliver(harness, 2)
    await harness.broker.ack(batch[0], result={"charged": True})
    [again] = await harness.broker.ack(batch[0], result="other")
    assert (again.noop, again.result) == (True, b'{"charged":true}')
    [none] = await harness.broker.ack(batch[1])
    assert (none.noop, none.result) == (False, None)
    [again] = await harness.broker.ack(batch[1])
    assert (again.success, again.noop, again.result) == (True, True, None)


async def test_repeating_the_last_ack_of_a_lease_succeeds(harness: Harness) -> None:
    """The answer was lost on the way. The consumer must not see a refusal."""
    batch = await deliver(harness, 3)
    assert codes(await harness.broker.ack(batch)) == [None, None, None]
    again = await harness.broker.ack(batch)
    assert codes(again) == [None, None, None]
    assert all(outcome.noop for outcome in again)


async def test_an_ack_without_a_lease_finishes_what_is_not_yet_committed(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    outcomes = await harness.broker.ack_many([item(one, lease=None) for one in batch[:2]])
    assert codes(outcomes) == [None, None]
    await harness.broker.release(batch.lease)
    assert await pop(harness.broker, batch) == [2]


async def test_an_auto_acked_message_needs_no_ack(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.push(queue, 1)
    batch = await harness.broker.pop(queue, auto_ack=True)
    assert batch.lease == batch[0].lease == ""
    [outcome] = await harness.broker.ack(batch)
    assert (outcome.success, outcome.noop) == (True, True)


async def test_any_broker_takes_the_ack(harness: Harness) -> None:
    batch = await deliver(harness, 3)
    other = await harness.second_broker()
    outcomes = await other.ack_many([item(batch[0]), item(batch[1], "failed")])
    assert codes(outcomes) == [None, None]
    assert await pop(other, batch) == [1, 2]


async def test_a_group_made_again_by_one_broker_is_known_to_the_others(harness: Harness) -> None:
    other = await harness.second_broker()
    queue = harness.name("orders")
    await harness.broker.push(queue, 1)
    for broker in (harness.broker, other):
        batch = await broker.pop(queue, group="g")
        await broker.ack(batch, "retry")
    await other.groups.delete(queue, "g")
    batch = await other.pop(queue, group="g")
    assert [delivery.data for delivery in batch] == [1]
    assert codes(await harness.broker.ack(batch)) == [None]


async def test_a_call_without_items_is_answered(harness: Harness) -> None:
    assert await harness.broker.ack([]) == []
    assert await harness.broker.ack_many([]) == []


async def test_an_unknown_status_is_refused_and_changes_nothing(harness: Harness) -> None:
    batch = await deliver(harness, 2)
    with pytest.raises(InvalidRequest, match="status"):
        await harness.broker.ack_many([item(batch[0]), item(batch[1], "done")])  # type: ignore[arg-type]
    await harness.broker.release(batch.lease)
    assert await pop(harness.broker, batch) == [0, 1]


async def test_concurrent_acks_of_one_lane_are_each_answered(harness: Harness) -> None:
    batch = await deliver(harness, 20)
    answers = await asyncio.gather(*(harness.broker.ack(delivery) for delivery in batch))
    assert all(answer[0].success for answer in answers)
    assert await pop(harness.broker, batch) == []
