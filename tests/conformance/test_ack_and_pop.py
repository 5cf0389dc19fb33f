"""Ack and pop in one transaction: what a consumer finished, and its next messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fairlane.broker.admission import Limit
from fairlane.broker.broker import Broker
from fairlane.errors import BrokerFailed, FairlaneError, StoreUnavailable
from fairlane.model.batch import Batch
from fairlane.model.group import Group
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_TENANT, QUEUE_MODE
from fairlane.model.outcome import AckItem, AckStatus
from fairlane.model.queue import Queue
from fairlane.store.contract.values import AckResult, LaneAck, Nack, PopCall, PopClaim, ToDeadLetter
from tests.conformance.harness import Harness, Taken
from tests.conformance.operation_driver import no_operations
from tests.conformance.test_unordered import unordered, unordered_ack
from tests.lost_answers import APPLIED, AWAY, fails
from tests.until import until


async def ack_and_pop(
    harness: Harness, queue: Queue, group: Group, acks: Sequence[LaneAck], *, batch: int = 10, **more: Any
) -> tuple[list[AckResult], Taken]:
    """Apply acks and pop once."""
    claim = PopClaim(uuid4(), batch, more.pop("partitions", 1))
    call = PopCall(queue_id=queue.id, group_id=group.id, claims=[claim], **more)
    acked, popped = await harness.store.messages.ack_and_pop(acks, call)
    assert not popped.gone
    [lanes] = popped.lanes
    return acked, Taken(group, claim.token, lanes, popped.next_at)


async def test_the_next_messages_of_a_lane_come_with_the_ack_of_the_last(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2, 3])
    first = await harness.pop(queue, batch=2)
    [acked], second = await ack_and_pop(harness, queue, first.group, [harness.ordered_ack(first, 2)], batch=2)
    assert (acked.state, acked.before, acked.after, acked.released) == ("ok", 0, 2, True)
    assert second.data == [2, 3]
    [leased] = await harness.store.messages.leased(second.lease)
    assert (leased.first, leased.upto, leased.committed) == (2, 4, 2)
    [acked], third = await ack_and_pop(harness, queue, first.group, [harness.ordered_ack(second, 4)])
    assert (acked.after, acked.released, third.data) == (4, True, [])
    assert (await harness.lane(first.group)).ready_at is None


async def test_the_rest_of_a_lease_stays_leased_and_other_lanes_are_delivered(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1, 2], partition="a")
    first = await harness.pop(queue)
    await harness.push(queue, ["b"], partition="b")
    [acked], second = await ack_and_pop(harness, queue, first.group, [harness.ordered_ack(first, 1)], partitions=5)
    assert (acked.state, acked.after, acked.released) == ("ok", 1, False)
    assert second.data == ["b"]
    assert (await harness.ack(first)).state == "ok"


async def test_messages_behind_a_failure_that_comes_too_late_are_delivered_by_the_same_call(harness: Harness) -> None:
    queue = harness.name("orders")
    for number in range(3):
        await harness.broker.push(queue, number)
    first = await harness.broker.pop(queue, batch=2)
    await harness.broker.ack(first.messages[:1])
    statuses: tuple[AckStatus, ...] = ("failed", "completed")
    acks = [
        AckItem(transaction_id=one.transaction_id, partition=one.partition_id, status=status, lease=one.lease)
        for one, status in zip(first, statuses, strict=True)
    ]
    answer = await harness.broker.ack_and_pop(acks, queue)
    assert [outcome.success for outcome in answer.outcomes] == [False, True]
    assert [one.data for one in answer.batch] == [2]


async def test_a_lost_lease_is_refused_and_the_pop_answers(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=10)
    await harness.push(queue, [0, 1])
    first = await harness.pop(queue, batch=1)
    harness.clock.advance(11)
    [acked], again = await ack_and_pop(harness, queue, first.group, [harness.ordered_ack(first, 1)])
    assert (acked.state, acked.repeated) == ("lost", False)
    assert (again.data, again.lane.attempts) == ([0], 1)


async def test_repeated_acks_are_no_ops_and_the_pop_answers(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0], partition="a")
    await harness.push(queue, [1], partition="b")
    first = await harness.pop(queue)
    acks = [harness.ordered_ack(first, 1)]
    _, second = await ack_and_pop(harness, queue, first.group, acks)
    [acked], third = await ack_and_pop(harness, queue, first.group, acks)
    assert (acked.state, acked.repeated, third.data) == ("lost", True, [])
    await harness.store.messages.release(second.lease)
    [acked], third = await ack_and_pop(harness, queue, first.group, acks)
    assert (acked.repeated, third.data, third.lane.attempts) == (True, [1], 0)


async def test_a_failed_message_is_delivered_again_by_the_same_call(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    first = await harness.pop(queue)
    nack = harness.ordered_ack(first, 0, nack=Nack(0, charge=True, error="boom"))
    [acked], again = await ack_and_pop(harness, queue, first.group, [nack])
    assert (acked.state, acked.released) == ("ok", True)
    assert (again.data, again.lane.attempts) == ([0, 1], 1)


async def test_a_lane_that_waits_after_a_failure_is_left_to_its_backoff(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0], partition="a")
    first = await harness.pop(queue)
    await harness.push(queue, [1], partition="b")
    nack = harness.ordered_ack(first, 0, nack=Nack(0, charge=True, error="boom", delay_ms=5000))
    [acked], second = await ack_and_pop(harness, queue, first.group, [nack], partitions=2)
    assert (acked.state, second.data) == ("ok", [1])
    _, nothing = await ack_and_pop(harness, queue, first.group, [harness.ordered_ack(second, 1)])
    assert (nothing.data, nothing.next_at) == ([], harness.clock() + 5_000_000)


async def test_messages_behind_a_dead_letter_are_delivered_by_the_same_call(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    first = await harness.pop(queue, batch=1)
    dead = harness.ordered_ack(first, 1, dead_letters=[ToDeadLetter(0, "bad")])
    [acked], second = await ack_and_pop(harness, queue, first.group, [dead])
    assert (acked.state, second.data) == ("ok", [1])
    assert (await harness.lane(first.group)).dead == 1


async def test_several_lanes_and_several_pops_share_a_call(harness: Harness) -> None:
    queue = await harness.queue()
    for name in ("a", "b", "c"):
        await harness.push(queue, [f"{name}0", f"{name}1"], partition=name)
    taken = [await harness.pop(queue, batch=1) for _ in range(3)]
    group = taken[0].group
    lost = harness.ordered_ack(taken[2], taken[2].lane.upto)
    lost.token = uuid4()
    acks = [lost, *(harness.ordered_ack(one, one.lane.upto) for one in (taken[1], taken[0]))]
    claims = [PopClaim(uuid4(), 5), PopClaim(uuid4(), 5), PopClaim(uuid4(), 5)]
    acked, popped = await harness.store.messages.ack_and_pop(
        acks, PopCall(queue_id=queue.id, group_id=group.id, claims=claims)
    )
    assert [one.state for one in acked] == ["lost", "ok", "ok"]
    found = [Taken(group, claim.token, lanes).data for claim, lanes in zip(claims, popped.lanes, strict=True)]
    assert sorted(found) == [[], ["a1"], ["b1"]]


async def test_acks_of_a_paused_queue_are_applied_and_nothing_is_delivered(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    first = await harness.pop(queue, batch=1)
    await harness.store.pauses.pause(queue.id)
    [acked], second = await ack_and_pop(harness, queue, first.group, [harness.ordered_ack(first, 1)])
    assert (acked.state, second.data) == ("ok", [])
    await harness.store.pauses.resume(queue.id)
    assert (await harness.pop(queue)).data == [1]


async def test_a_deleted_queue_is_gone_for_both(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0])
    first = await harness.pop(queue)
    await harness.store.queues.delete(DEFAULT_TENANT, queue.name)
    call = PopCall(queue_id=queue.id, group_id=first.group.id, claims=[PopClaim(uuid4(), 1)])
    [acked], popped = await harness.store.messages.ack_and_pop([harness.ordered_ack(first, 1)], call)
    assert (acked.state, popped.gone) == ("gone", True)


async def test_finished_messages_leave_room_in_a_full_queue(harness: Harness) -> None:
    queue = await harness.queue(max_size=3)
    await harness.push(queue, [0, 1, 2])
    first = await harness.pop(queue, batch=2)
    [acked], second = await ack_and_pop(harness, queue, first.group, [harness.ordered_ack(first, 2)])
    assert (acked.after, second.data) == (2, [2])
    assert (await harness.push(queue, [3, 4])).depth == 3


async def test_a_result_is_kept_with_the_ack(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0, 1])
    first = await harness.pop(queue, batch=1)
    ack = harness.ordered_ack(first, 1, results=[(0, b'{"n":1}')])
    _, second = await ack_and_pop(harness, queue, first.group, [ack])
    assert second.data == [1]
    assert await harness.store.groups.result(first.group.id, first.lane.partition, 0) == b'{"n":1}'


async def test_an_ack_of_a_cancelled_message_says_so(harness: Harness) -> None:
    queue = await harness.queue()
    [cancelled, _] = ids = [harness.mint(), harness.mint()]
    await harness.push(queue, [0, 1], ids=ids)
    taken = await harness.broker.pop(queue.name, batch=1)
    await harness.broker.cancel(queue.name, cancelled)
    item = AckItem(transaction_id=cancelled, partition=taken[0].partition_id, lease=taken.lease)
    answer = await harness.broker.ack_and_pop([item], queue.name)
    assert [one.code for one in answer.outcomes] == ["cancelled"]
    assert [one.data for one in answer.batch] == [1]


async def test_consumers_of_an_unordered_queue_ack_and_pop(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, list(range(8)))
    one, two = await harness.pop(queue, batch=3), await harness.pop(queue, batch=2)
    acks = [
        unordered_ack(one, (0, 2), nacks=[Nack(2, charge=True, error="boom")]),
        unordered_ack(two, 3, dead_letters=[ToDeadLetter(4, "bad")]),
    ]
    acked, more = await ack_and_pop(harness, queue, one.group, acks, batch=2)
    assert [(one.state, one.died, one.released) for one in acked] == [("ok", [], True), ("ok", [4], True)]
    assert more.data == [2, 5]
    stale = unordered_ack(one, 2)
    [refused], rest = await ack_and_pop(harness, queue, one.group, [stale])
    assert (refused.state, refused.lost, rest.data) == ("lost", [2], [6, 7])
    ends = [unordered_ack(more, 2, 5), unordered_ack(rest, (6, 8))]
    acked, nothing = await ack_and_pop(harness, queue, one.group, ends)
    assert [one.state for one in acked] == ["ok", "ok"]
    assert not nothing
    assert (await harness.lane(one.group)).committed == 8


class Calls:
    """The calls of the verbs of the log."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        messages = harness.store.messages
        for verb in ("ack", "pop", "ack_and_pop"):
            monkeypatch.setattr(messages, verb, self._noted(verb, getattr(messages, verb)))

    def _noted(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            self.made.append(verb)
            return call(*arguments)

        return noted

    def taken(self) -> list[str]:
        made, self.made = self.made, []
        return made


def acks_of(batch: Batch[Any]) -> list[AckItem]:
    return [
        AckItem(transaction_id=one.transaction_id, partition=one.partition_id, lease=batch.lease, position=one.position)
        for one in batch
    ]


def data(batch: Batch[Any]) -> list[Any]:
    return [one.data for one in batch]


async def filled(harness: Harness, *payloads: Any, **options: Any) -> str:
    """Create a queue with messages in one partition."""
    name = harness.name("orders")
    await harness.broker.queues.configure(name, **options)
    await harness.broker.push_many([PushItem(queue=name, payload=msgspec.json.encode(one)) for one in payloads])
    return name


async def acked_upto(broker: Broker, queue: str, position: int) -> bool:
    [lane] = await broker.groups.lanes(queue, QUEUE_MODE)
    return lane.committed == position


async def test_a_consumer_makes_one_call_of_the_store_per_batch(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, queue = harness.broker, await filled(harness, 0, 1, 2, 3)
    batch = await broker.pop(queue)
    calls = Calls(harness, monkeypatch)
    for number in (1, 2, 3):
        answer = await broker.ack_and_pop(acks_of(batch), queue)
        assert [(one.success, one.lease_released) for one in answer.outcomes] == [(True, True)]
        batch = answer.batch
        assert data(batch) == [number]
    assert calls.taken() == ["ack_and_pop"] * 3


async def test_consumers_that_come_together_share_a_call(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, queue = harness.broker, harness.name("orders")
    for number in range(5):
        await broker.push_many(
            [PushItem(queue=queue, payload=b"%d" % one, partition=str(number)) for one in (number, number + 10)]
        )
    batches = [await broker.pop(queue) for _ in range(5)]
    calls = Calls(harness, monkeypatch)
    answers = await asyncio.gather(*(broker.ack_and_pop(acks_of(batch), queue) for batch in batches))
    assert calls.taken() == ["ack_and_pop"]
    assert sorted(data(one.batch)[0] for one in answers) == [10, 11, 12, 13, 14]
    assert all(one.lease_released for answer in answers for one in answer.outcomes)


async def test_the_acks_are_applied_while_the_pop_waits(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, 0)
    batch = await broker.pop(queue)
    waiting = asyncio.create_task(broker.ack_and_pop(acks_of(batch), queue, wait=30))
    await until(lambda: acked_upto(broker, queue, 1))
    assert not waiting.done()
    assert broker.process.telemetry.ack.items == 1, "they count before the pop ends"
    await broker.push(queue, 1)
    answer = await waiting
    assert ([one.success for one in answer.outcomes], data(answer.batch)) == ([True], [1])


async def test_a_poll_that_is_cancelled_has_acked_and_holds_nothing(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, 0)
    batch = await broker.pop(queue)
    waiting = asyncio.create_task(broker.ack_and_pop(acks_of(batch), queue, wait=30))
    await until(lambda: acked_upto(broker, queue, 1))
    waiting.cancel()
    await asyncio.wait([waiting])
    await broker.push(queue, 1)
    assert data(await broker.pop(queue, batch=5)) == [1]


@pytest.mark.parametrize("fault", [APPLIED, AWAY], ids=["lost", "refused"])
async def test_a_call_without_an_answer_is_repeated_without_a_charge(harness: Harness, fault: FairlaneError) -> None:
    """If it was applied, the messages that it leased are released, and its acks are no-ops."""
    broker, queue = harness.broker, await filled(harness, 0, 1)
    batch = await broker.pop(queue)
    fails(harness.store.messages, "ack_and_pop", fault)
    answer = await broker.ack_and_pop(acks_of(batch), queue, wait=30)
    assert [(one.success, one.noop) for one in answer.outcomes] == [(True, fault is APPLIED)]
    assert (data(answer.batch), answer.batch[0].failed_attempts) == ([1], 0)


async def test_a_failed_pop_does_not_hide_the_outcomes_of_the_acks(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, 0, 1)
    batch = await broker.pop(queue)
    fails(harness.store.messages, "ack_and_pop", AWAY)
    fails(harness.store.messages, "pop", AWAY)
    answer = await broker.ack_and_pop(acks_of(batch), queue)
    assert [(one.success, one.noop) for one in answer.outcomes] == [(True, False)]
    assert isinstance(answer.error, StoreUnavailable)
    assert not answer.batch


async def test_a_consumer_learns_of_a_lost_lease_and_gets_messages(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, 0, 1, lease_seconds=10)
    batch = await broker.pop(queue)
    harness.clock.advance(11)
    answer = await broker.ack_and_pop(acks_of(batch), queue)
    assert [one.code for one in answer.outcomes] == ["lease_lost"]
    assert (data(answer.batch), answer.batch[0].failed_attempts) == ([0], 1)


async def test_verdicts_of_one_request_have_their_own_outcomes(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("orders")
    for name in "abcd":
        await broker.push(queue, name, partition=name)
    batch = await broker.pop(queue, batch=4, partitions=4)
    acks = acks_of(batch)
    acks[1].status, acks[2].status = "failed", "dlq"
    acks[3].transaction_id, acks[3].position = "unknown", None
    answer = await broker.ack_and_pop(acks, queue)
    assert [(one.success, one.dead_lettered, one.code) for one in answer.outcomes] == [
        (True, False, None),
        (True, False, None),
        (True, True, None),
        (False, False, "unresolvable"),
    ]
    assert (data(answer.batch), answer.batch[0].failed_attempts) == (["b"], 1)


async def test_acks_go_through_while_pops_are_paused(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, 0, 1)
    batch = await broker.pop(queue)
    await broker.pauses.pause_pops(True)
    try:
        answer = await broker.ack_and_pop(acks_of(batch), queue, wait=30)
    finally:
        await broker.pauses.pause_pops(False)
    assert ([one.success for one in answer.outcomes], data(answer.batch)) == ([True], [])
    assert data(await broker.pop(queue)) == [1]


async def test_acks_of_another_queue_and_a_pop_of_a_new_one_are_two_calls(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, queue, other = harness.broker, await filled(harness, 0), await filled(harness, 1)
    batch = await broker.pop(queue)
    calls = Calls(harness, monkeypatch)
    answer = await broker.ack_and_pop(acks_of(batch), other)
    assert ([one.success for one in answer.outcomes], data(answer.batch)) == ([True], [1])
    again = await broker.ack_and_pop(acks_of(answer.batch), harness.name("new"))
    assert ([one.success for one in again.outcomes], data(again.batch)) == ([True], [])
    assert calls.taken() == ["ack", "pop", "ack"]


async def test_an_ack_without_a_lease_takes_the_way_of_all_acks(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, queue = harness.broker, await filled(harness, 0, 1)
    [ack] = acks_of(await broker.pop(queue))
    ack.lease = None
    calls = Calls(harness, monkeypatch)
    answer = await broker.ack_and_pop([ack], queue)
    assert ([one.success for one in answer.outcomes], data(answer.batch)) == ([True], [1])
    assert calls.taken() == ["ack", "pop"]
    assert data((await broker.ack_and_pop([], queue)).batch) == []


async def test_a_group_with_a_limit_gets_the_next_messages_for_those_it_finished(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, *range(4), max_running=2)
    batch = await broker.pop(queue, batch=5)
    assert data(batch) == [0, 1]
    answer = await broker.ack_and_pop(acks_of(batch), queue, batch=5)
    assert data(answer.batch) == [2, 3]


async def test_an_ack_behind_operations_becomes_one_and_the_pop_answers(harness: Harness) -> None:
    await no_operations(harness)
    broker, queue = harness.broker, await filled(harness, 0, 1)
    await broker.push(queue, "other", partition="other")
    await broker._engine.operation_drain.stop()
    batch = await broker.pop(queue, batch=2)
    first, second = acks_of(batch)
    broker._engine.admission.limits = {"ack": Limit(-1.0, 10)}
    [outcome] = await broker.ack_many([first])
    assert outcome.durability == "store"
    broker._engine.admission.limits = {}
    answer = await broker.ack_and_pop([second], queue)
    assert [(one.durability, one.reason) for one in answer.outcomes] == [("store", "maintaining_order")]
    assert data(answer.batch) == ["other"]
    await no_operations(harness)


async def test_another_tenant_can_ack_nothing_here(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, 0)
    batch = await broker.pop(queue)
    tenant = harness.name("tenant")
    await broker.tenants.create(tenant)
    stranger = broker.of(tenant)
    await stranger.push(queue, "theirs")
    answer = await stranger.ack_and_pop(acks_of(batch), queue)
    assert [one.success for one in answer.outcomes] == [False]
    assert data(answer.batch) == ["theirs"]
    assert [one.success for one in await broker.ack(batch)] == [True]


async def test_a_defect_after_the_pop_loses_no_messages(harness: Harness) -> None:
    broker, queue = harness.broker, await filled(harness, 0, 1)
    batch = await broker.pop(queue)
    await broker.ack(batch)
    fails(harness.store.groups, "result", BrokerFailed("the result of the first message cannot be read"))
    answer = await broker.ack_and_pop(acks_of(batch), queue)
    assert [(one.success, one.noop) for one in answer.outcomes] == [(True, True)]
    assert data(answer.batch) == [1]
