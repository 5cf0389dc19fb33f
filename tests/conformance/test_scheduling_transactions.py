"""Messages that a transaction schedules: stored with its acks and pushes, or not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import AlreadyApplied, FairlaneError, InvalidRequest, OutcomeUnknown, TransactionRefused
from fairlane.model.message import Message, PushOptions
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.outcome import PushOutcome
from tests.conformance.harness import Harness
from tests.lost_answers import APPLIED, AWAY, fails


async def taken(harness: Harness, **options: Any) -> tuple[Broker, str, Message[Any]]:
    """Return a broker, an empty queue for the pushes of a transaction, and a leased message to ack in it."""
    broker, source, target = harness.broker, harness.name("jobs"), harness.name("later")
    await broker.push(source, "job")
    await broker.queues.configure(target, cell=f"same-as {source}", **options)
    [message] = await broker.pop(source)
    return broker, target, message


async def applied(broker: Broker, message: Message[Any], *pushes: tuple[str, Any, PushOptions]) -> list[PushOutcome]:
    """Ack a message and push others in one transaction. Returns the outcomes of the pushes."""
    async with broker.transaction() as transaction:
        transaction.ack(message)
        for queue, data, options in pushes:
            transaction.push(queue, data, **options)
    return [one for one in transaction.outcomes if isinstance(one, PushOutcome)]


async def waiting(broker: Broker, queue: str) -> list[str]:
    return [one.transaction_id for one in (await broker.scheduled.page(queue)).messages]


@pytest.mark.parametrize("options", [{}, {"ordering": "unordered"}], ids=["per_key", "unordered"])
async def test_acks_pushes_and_scheduled_messages_are_applied_together(harness: Harness, options: Any) -> None:
    broker, queue, message = await taken(harness, **options)
    at = harness.clock() + 90_000_000
    first, now, last = await applied(
        broker,
        message,
        (queue, "in a minute", {"transaction_id": "a", "delay_ms": timedelta(minutes=1)}),
        (queue, "now", {}),
        (queue, "at", {"transaction_id": "b", "deliver_at": at, "partition": "other"}),
    )
    assert (first.status, first.deliver_at) == ("scheduled", harness.clock() + 60_000_000)
    assert (now.status, now.deliver_at) == ("queued", None)
    assert (last.status, last.deliver_at) == ("scheduled", at)
    assert await waiting(broker, queue) == ["a", "b"]
    popped = await broker.pop(queue, batch=9, partitions=9)
    assert [one.data for one in popped] == ["now"]
    await broker.ack(popped)
    harness.clock.advance(91)
    await harness.store.scheduled.append_due()
    popped = await broker.pop(queue, batch=9, partitions=9)
    assert sorted(one.data for one in popped) == ["at", "in a minute"]
    assert not await broker.pop(message.queue)


async def test_a_time_that_has_passed_is_an_ordinary_push(harness: Harness) -> None:
    broker, queue, message = await taken(harness)
    passed: PushOptions = {"deliver_at": harness.clock() - 60_000_000}
    await applied(broker, message, (queue, 1, passed), (queue, 2, {"delay_ms": 0}))
    assert [one.data for one in await broker.pop(queue, batch=9)] == [1, 2]


async def test_a_refused_step_schedules_nothing(harness: Harness) -> None:
    broker, queue, message = await taken(harness)
    small = harness.name("small")
    await broker.queues.configure(small, max_size=1, cell=f"same-as {queue}")
    await broker.push(small, 0)
    later: PushOptions = {"delay_ms": 1000}
    with pytest.raises(TransactionRefused) as refused:
        await applied(broker, message, (queue, "later", later), (small, 1, {}))
    assert refused.value.index == 2
    assert message.lease is not None
    await broker.release(message.lease)
    with pytest.raises(TransactionRefused) as refused:
        await applied(broker, message, (queue, "later", later))
    assert refused.value.index == 0
    assert await waiting(broker, queue) == []
    assert len(await broker.pop(message.queue)) == 1


async def test_an_id_that_is_known_is_a_duplicate(harness: Harness) -> None:
    broker, queue, message = await taken(harness)
    await broker.push(queue, 0, transaction_id="stored")
    await broker.push(queue, 0, transaction_id="scheduled", delay_ms=5000)
    pushes: list[tuple[str, Any, PushOptions]] = [
        (queue, 1, {"transaction_id": id, "delay_ms": 1000}) for id in ("stored", "scheduled", "new", "new")
    ]
    statuses = [one.status for one in await applied(broker, message, *pushes)]
    assert statuses == ["duplicate", "duplicate", "scheduled", "duplicate"]
    assert await waiting(broker, queue) == ["new", "scheduled"]


async def test_a_repeated_transaction_schedules_nothing_twice(harness: Harness) -> None:
    broker, queue, message = await taken(harness)
    push: tuple[str, Any, PushOptions] = (queue, 1, {"delay_ms": 1000, "transaction_id": "x"})
    assert [one.status for one in await applied(broker, message, push)] == ["scheduled"]
    assert [one.status for one in await applied(broker, message, push)] == ["duplicate"]
    with pytest.raises(AlreadyApplied) as refused:
        await applied(broker, message, (queue, 1, {"delay_ms": 1000}))
    assert refused.value.index == 1
    assert await waiting(broker, queue) == ["x"]


@pytest.mark.parametrize("lost", [(APPLIED,), (APPLIED, AWAY)], ids=["once", "and then away"])
async def test_a_lost_answer_schedules_once(harness: Harness, lost: tuple[FairlaneError, ...]) -> None:
    broker, queue, message = await taken(harness)
    fails(harness.store.messages, "transact", *lost)
    try:
        [outcome] = await applied(broker, message, (queue, 1, {"delay_ms": 1000}))
        assert outcome.status == "scheduled"
    except OutcomeUnknown:
        assert len(lost) > 1
    assert len(await waiting(broker, queue)) == 1


async def test_a_queue_that_was_deleted_meanwhile_is_made_again(harness: Harness) -> None:
    broker, _, message = await taken(harness)
    queue = message.queue
    assert await harness.store.queues.delete(DEFAULT_TENANT, queue)
    async with broker.transaction() as transaction:
        transaction.push(queue, 1, transaction_id="x", delay_ms=1000)
    assert await waiting(broker, queue) == ["x"]


async def test_a_part_of_a_fan_in_cannot_be_scheduled(harness: Harness) -> None:
    broker, queue, message = await taken(harness)
    with pytest.raises(InvalidRequest, match="part 0: 'delay_ms' is no option here"):
        await broker.fan_in([(queue, 1, {"delay_ms": 1000})], (queue, "then"))
    assert await waiting(broker, queue) == []
    async with broker.transaction() as transaction:
        transaction.push(queue, "later", transaction_id="x", delay_ms=1000)
        transaction.fan_in([(queue, 1)], (queue, "then"))
        transaction.ack(message)
    assert await waiting(broker, queue) == ["x"]
    [part] = await broker.pop(queue)
    assert part.data == 1


@pytest.mark.parametrize(
    "bad",
    [{"delay_ms": -1}, {"delay_ms": "x"}, {"deliver_at": "soon"}, {"deliver_at": 5, "delay_ms": 5}],
    ids=["negative", "word", "time", "both"],
)
async def test_a_bad_time_is_refused_and_nothing_is_stored(harness: Harness, bad: Any) -> None:
    broker, queue, message = await taken(harness)
    with pytest.raises(InvalidRequest):
        await applied(broker, message, (queue, 1, {}), (queue, 2, bad))
    assert await waiting(broker, queue) == []
    assert not await broker.pop(queue)
    await broker.ack(message)
