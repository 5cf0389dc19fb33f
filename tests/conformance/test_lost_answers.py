"""Lost answers: the caller gets an unknown outcome, and repeating the call does nothing twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane.broker.ack import AckRequest
from fairlane.broker.broker import Broker
from fairlane.broker.push_batch import PushFlight, PushRequest
from fairlane.errors import FairlaneError, OutcomeUnknown, StoreUnavailable
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_TENANT, QUEUE_MODE
from fairlane.model.outcome import AckItem
from fairlane.runtime.backoff import UNKNOWN_OUTCOME_PAUSES
from fairlane.store.contract.values import PopCall, PopClaim
from fairlane.store.postgres.connection import Database
from tests.conformance.harness import Harness
from tests.conformance.operation_driver import no_operations
from tests.lost_answers import APPLIED, AWAY, fails


async def transaction(broker: Broker, queue: str) -> None:
    async with broker.transaction() as transaction:
        transaction.push(queue, "once")


def push(broker: Broker, queue: str) -> Awaitable[Any]:
    return broker.push(queue, "once")


def scheduled(broker: Broker, queue: str) -> Awaitable[Any]:
    return broker.push(queue, "once", delay_ms=60_000)


CALLS = pytest.mark.parametrize(
    ("family", "verb", "call"),
    [("messages", "push", push), ("messages", "transact", transaction), ("scheduled", "add", scheduled)],
    ids=["push", "transaction", "schedule"],
)


@CALLS
async def test_a_call_whose_answer_was_lost_is_made_again_and_happens_once(
    harness: Harness, family: str, verb: str, call: Callable[[Broker, str], Awaitable[Any]]
) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)
    fails(getattr(harness.store, family), verb, APPLIED)
    await call(harness.broker, queue)
    waiting = (await harness.broker.scheduled.page(queue)).messages
    assert len(await harness.broker.pop(queue, batch=5)) + len(waiting) == 1


@CALLS
async def test_what_may_be_stored_is_not_said_to_be_refused(
    harness: Harness, family: str, verb: str, call: Callable[[Broker, str], Awaitable[Any]]
) -> None:
    """The push was stored, its answer was lost, and then the store became unavailable."""
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)
    fails(getattr(harness.store, family), verb, APPLIED, AWAY)
    with pytest.raises(OutcomeUnknown, match="may not have been"):
        await call(harness.broker, queue)
    waiting = (await harness.broker.scheduled.page(queue)).messages
    assert len(await harness.broker.pop(queue, batch=5)) + len(waiting) == 1
    fails(getattr(harness.store, family), verb, AWAY)
    with pytest.raises(StoreUnavailable):
        await call(harness.broker, queue)


async def test_an_operation_that_may_be_enqueued_is_not_said_to_be_refused(harness: Harness) -> None:
    await no_operations(harness)
    await harness.broker._engine.operation_drain.stop()
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)
    fails(harness.store.operations, "enqueue", APPLIED, AWAY)
    request = PushRequest(DEFAULT_TENANT, [PushItem(queue=queue, payload=b"1")])
    [outcome] = await harness.broker._engine.pusher.run_enqueue(PushFlight([request]))
    assert isinstance(outcome, OutcomeUnknown)
    assert await harness.store.operations.depth() == 1
    await no_operations(harness)


async def test_a_push_is_made_again_without_the_messages_that_were_answered(harness: Harness) -> None:
    await no_operations(harness)
    await harness.broker._engine.operation_drain.stop()
    queue = harness.name("orders")
    known = PushItem(queue=queue, payload=b"1", partition="a", transaction_id="known")
    behind = PushItem(queue=queue, payload=b"2", partition="b", transaction_id="first")
    await harness.broker.push_many([known])
    pusher = harness.broker._engine.pusher
    await pusher.run_enqueue(PushFlight([PushRequest(DEFAULT_TENANT, [behind])]))
    fails(harness.store.operations, "enqueue", *[APPLIED] * (len(UNKNOWN_OUTCOME_PAUSES) + 1))
    again = PushItem(queue=queue, payload=b"3", partition="b", transaction_id="second")
    [outcomes] = await pusher.run(PushFlight([PushRequest(DEFAULT_TENANT, [known, again])]))
    assert isinstance(outcomes, list)
    assert [one.status for one in outcomes] == ["duplicate", "buffered"]
    await no_operations(harness)


async def test_acks_of_which_some_were_applied_are_not_said_to_be_refused(harness: Harness) -> None:
    """Acks of one lane go one at a time, and the second one met an unavailable store."""
    queue = harness.name("orders")
    for number in range(2):
        await harness.broker.push(queue, number)
    batch = await harness.broker.pop(queue, batch=2)
    requests = [
        AckRequest(
            DEFAULT_TENANT,
            QUEUE_MODE,
            [AckItem(transaction_id=one.transaction_id, partition=one.partition_id, lease=one.lease)],
        )
        for one in batch
    ]
    real = harness.store.messages.ack

    async def then_away(acks: Any) -> Any:
        fails(harness.store.messages, "ack", AWAY)
        return await real(acks)

    harness.store.messages.ack = then_away  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        await harness.broker._engine.acker.flush(requests)
    harness.store.messages.ack = real  # type: ignore[method-assign]
    assert [lane.committed for lane in await harness.broker.groups.lanes(queue, QUEUE_MODE)] == [1]


@pytest.mark.parametrize(("fault", "auto_ack"), [(AWAY, False), (AWAY, True), (APPLIED, True)])
async def test_lanes_that_were_claimed_before_the_store_went_away_are_delivered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, fault: FairlaneError, auto_ack: bool
) -> None:
    """PostgreSQL scans the lanes once more for a second claim, and gets no answer."""
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0])
    for _ in range(8):  # then a scan begins where the last one did
        await harness.nack(await harness.pop(queue, group), charge=False)
    claims = [PopClaim(harness.token(), 10) for _ in range(2)]
    call = PopCall(queue_id=queue.id, group_id=group.id, claims=claims, auto_ack=auto_ack)
    real, writes = Database.write, 0

    async def second_fails(database: Database, statement: str, *arguments: object) -> Any:
        nonlocal writes
        writes += 1
        if writes < 2:
            return await real(database, statement, *arguments)
        if fault is APPLIED:
            await real(database, statement, *arguments)
        raise fault

    monkeypatch.setattr(Database, "write", second_fails)
    popped = await harness.store.messages.pop(call)
    assert [len(lanes) for lanes in popped.lanes] == [1, 0]
