"""A broker with a journal, and calls that its store does not accept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlane.broker.ack import AckRequest
from fairlane.broker.admission import Limit
from fairlane.broker.broker import Broker
from fairlane.broker.flags import PUSHES_PAUSED
from fairlane.broker.push_batch import PushFlight, PushRequest
from fairlane.errors import JournalFull, OutcomeUnknown, Overloaded, StoreUnavailable
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_TENANT, QUEUE_MODE
from fairlane.model.outcome import AckItem
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import PartitionLocked
from tests.lost_answers import APPLIED, AWAY, fails
from tests.until import until

QUEUE = "orders"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose drain is stopped, so that entries stay in its journal."""
    async with Broker.open("sqlite:///:memory:", journal=str(tmp_path)) as broker:
        assert broker._engine.journal_drain is not None
        await broker._engine.journal_drain.stop()
        yield broker


@asynccontextmanager
async def broker_with_waiting_lane(directory: Path) -> AsyncIterator[Broker]:
    """A broker with a small journal that holds one message of the partition `waits`. Its drain is stopped."""
    async with Broker.open("sqlite:///:memory:", journal=str(directory), journal_bytes_max=5_000) as broker:
        assert broker._engine.journal_drain is not None
        await broker._engine.journal_drain.stop()
        await broker.queues.configure(QUEUE)
        fails(broker._engine.store.messages, "push", AWAY)
        await broker.push(QUEUE, 0, partition="waits")
        assert kept(broker) == 1
        yield broker


def kept(broker: Broker) -> int:
    assert broker._engine.journal is not None
    return broker._engine.journal.state().messages


def requests(count: int) -> list[PushRequest]:
    return [
        PushRequest(DEFAULT_TENANT, [PushItem(queue=QUEUE, payload=b"1", transaction_id="the id")])
        for _ in range(count)
    ]


@pytest.mark.parametrize("fault", [APPLIED, AWAY], ids=["unknown", "away"])
async def test_producers_of_one_id_in_one_flush_are_all_in_the_journal_when_the_store_fails(
    broker: Broker, fault: StoreUnavailable
) -> None:
    await broker.queues.configure(QUEUE)
    fails(broker._engine.store.messages, "push", *[fault] * 4)
    answers = await broker._engine.write_router.push(None, requests(3))
    assert [[one.status for one in answer] for answer in answers if isinstance(answer, list)] == [["buffered"]] * 3
    ids = {one.operation_id for answer in answers if isinstance(answer, list) for one in answer}
    assert (len(ids), kept(broker)) == (1, 1), "one message, of which all three hear"


async def test_producers_of_one_id_in_one_flush_all_get_the_error(broker: Broker) -> None:
    await broker.queues.configure(QUEUE)
    fails(broker._engine.store.messages, "push", AWAY)
    assert await broker._engine.pusher.flush_or_wait(PushFlight(requests(3))) == [AWAY] * 3


@pytest.mark.parametrize("lease", [True, False], ids=["leased", "unleased"])
async def test_a_nack_that_no_lease_fences_never_goes_to_the_journal_for_it_could_be_charged_twice(
    broker: Broker, lease: bool
) -> None:
    await broker.push(QUEUE, 1)
    [one] = await broker.pop(QUEUE)
    nack = AckItem(
        transaction_id=one.transaction_id,
        partition=one.partition_id,
        status="failed",
        lease=one.lease if lease else None,
    )
    router = broker._engine.write_router
    fails(broker._engine.store, "check_health", *[AWAY] * 1000)
    router.health.mark_unavailable("the disk is full")
    if lease:
        [outcome] = await broker.ack_many([nack])
        assert outcome.durability == "journal"
        return
    with pytest.raises(StoreUnavailable, match="without a lease"):
        await broker.ack_many([nack])
    assert kept(broker) == 0
    router.health.mark_available()
    fails(broker._engine.store.messages, "ack", APPLIED)
    with pytest.raises(OutcomeUnknown):
        await broker.ack_many([nack])
    assert kept(broker) == 0


async def test_an_ack_that_may_be_applied_is_not_refused_by_a_journal_that_cannot_take_it(broker: Broker) -> None:
    await broker.push(QUEUE, 1)
    [one] = await broker.pop(QUEUE)
    fails(broker._engine.store.messages, "ack", APPLIED)
    fails(broker._engine.journal, "append", JournalFull("the disk is full"))
    with pytest.raises(OutcomeUnknown):
        await broker.ack(one)


async def test_acks_of_which_some_became_operations_are_not_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition of the second ack is locked, and the journal cannot take the request."""
    items = []
    for partition in ("free", "held"):
        await broker.push(QUEUE, 1, partition=partition)
        [one] = await broker.pop(QUEUE, partition=partition)
        items.append(AckItem(transaction_id=one.transaction_id, partition=one.partition_id, lease=one.lease))
    enqueue = broker._engine.store.operations.enqueue

    async def lock_second(operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        return [*await enqueue(operations[:1]), PartitionLocked()]

    monkeypatch.setattr(broker._engine.store.operations, "enqueue", lock_second)
    fails(broker._engine.journal, "append", JournalFull("the disk is full"))
    [answer] = await broker._engine.write_router.enqueue_acks(None, [AckRequest(DEFAULT_TENANT, QUEUE_MODE, items)])
    assert isinstance(answer, OutcomeUnknown)


async def test_a_push_of_which_the_journal_took_a_part_is_not_refused(tmp_path: Path) -> None:
    async with broker_with_waiting_lane(tmp_path) as broker:
        fails(broker._engine.store.messages, "push", AWAY)
        large = PushItem(queue=QUEUE, partition="other", payload=b"1" * 6_000, transaction_id="large")
        small = PushItem(queue=QUEUE, partition="waits", payload=b"1", transaction_id="small")
        with pytest.raises(OutcomeUnknown, match="part of this push was accepted"):
            await broker.push_many([small, large])
        assert kept(broker) == 2


async def test_a_push_of_which_the_journal_refused_a_part_stores_nothing(tmp_path: Path) -> None:
    async with broker_with_waiting_lane(tmp_path) as broker:
        large = PushItem(queue=QUEUE, partition="waits", payload=b"1" * 6_000, transaction_id="large")
        small = PushItem(queue=QUEUE, partition="other", payload=b"1", transaction_id="small")
        with pytest.raises(JournalFull):
            await broker.push_many([large, small])
        assert not await broker.pop(QUEUE, partition="other")


async def test_a_push_that_is_cancelled_while_it_is_appended_is_not_overtaken(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the commit it is unknown whether the journal has the push, so later pushes of its partition follow it."""
    assert broker._engine.journal is not None
    assert broker._engine.journal_drain is not None
    append, committing, commits = broker._engine.journal.append, asyncio.Event(), asyncio.Event()

    async def slow(*values: Any) -> Any:
        committing.set()
        await commits.wait()
        return await append(*values)

    await broker.push(QUEUE, 0)
    monkeypatch.setattr(broker._engine.journal, "append", slow)
    fails(broker._engine.store.messages, "push", AWAY)
    first = asyncio.ensure_future(
        broker._engine.write_router.push(None, [PushRequest(DEFAULT_TENANT, [PushItem(queue=QUEUE, payload=b"1")])])
    )
    await committing.wait()
    first.cancel()
    await asyncio.wait([first])
    committing.clear()
    second = asyncio.create_task(broker.push(QUEUE, 2))
    follows = asyncio.create_task(committing.wait())
    await asyncio.wait([second, follows], return_when=asyncio.FIRST_COMPLETED)
    assert not second.done(), "it follows, into the journal"
    commits.set()
    outcome = await second
    assert (outcome.durability, outcome.reason) == ("journal", "maintaining_order")
    broker._engine.journal_drain.start()
    await until(lambda: broker._engine.journal is not None and not broker._engine.journal.state().entries)
    got: list[Any] = []
    while len(got) < 3:
        batch = await broker.pop(QUEUE, partition="Default", batch=10, wait=10)
        got += [message.data for message in batch]
        await broker.ack(list(batch))
    assert got == [0, 1, 2]


async def test_a_journal_that_only_grows_though_the_store_is_there_refuses_pushes_and_then_acks(broker: Broker) -> None:
    """Otherwise a store slower than its producers would be noticed only when the broker's disk is full."""
    broker._engine.admission.limits = {"push": Limit(2.0, 5), "ack": Limit(2.0, 8)}
    await broker.push_many([PushItem(queue=QUEUE, payload=b"1") for _ in range(4)])
    batch = await broker.pop(QUEUE, batch=4)
    await broker._engine.flags.set(PUSHES_PAUSED, True)
    for number in range(10):
        assert (await broker.push(QUEUE, number)).reason == "maintenance", "that is what maintenance is for"
    await broker._engine.flags.set(PUSHES_PAUSED, False)
    for number in range(5):
        assert (await broker.push(QUEUE, number)).reason == "maintaining_order"
    with pytest.raises(Overloaded) as refused:
        await broker.push_many([PushItem(queue=queue, payload=b"1") for queue in (QUEUE, "other")])
    assert (refused.value.depth, kept(broker)) == (15, 15)
    assert refused.value.retry_after >= 1
    assert (await broker.push("third", 1)).status == "queued", "no other lane is held up"
    assert not await broker.pop("other"), "nothing of the refused request was stored"

    broker._engine.write_router.health.up = False
    [first] = await broker.ack(batch[0])
    assert (first.durability, kept(broker)) == ("journal", 16)
    broker._engine.write_router.health.up = True
    for delivery in list(batch)[1:3]:
        assert (await broker.ack(delivery))[0].reason == "maintaining_order"
    broker._engine.admission.limits = {"push": Limit(2.0, 2), "ack": Limit(2.0, 2)}
    with pytest.raises(Overloaded):
        await broker.ack(batch[3])


async def test_what_an_outage_left_in_the_journal_refuses_nothing(broker: Broker) -> None:
    broker._engine.admission.limits = {"push": Limit(2.0, 5)}
    broker._engine.write_router.health.up = False
    for number in range(10):
        assert (await broker.push(QUEUE, number)).reason == "store_unavailable"
    broker._engine.write_router.health.up = True
    for number in range(5):
        assert (await broker.push(QUEUE, number)).reason == "maintaining_order"


async def test_an_ack_that_waits_in_the_journal_is_explained(broker: Broker) -> None:
    await broker.push_many([PushItem(queue=QUEUE, payload=b"1") for _ in range(2)])
    batch = await broker.pop(QUEUE, batch=2)
    broker._engine.write_router.health.up = False
    for delivery in batch:
        await broker.ack(delivery)
    broker._engine.write_router.health.up = True
    found = await broker.pauses.explain(QUEUE, "Default")
    assert (found.reason, found.acks) == ("leased", 2)
    assert found.sentence.endswith("2 acks of it are accepted and wait to be applied.")


async def test_a_push_that_may_become_an_operation_is_not_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store enqueues the message, but too late, and the journal cannot take it meanwhile."""
    router, operations = broker._engine.write_router, broker._engine.store.operations
    enqueue, commits = operations.enqueue, asyncio.Event()
    await broker._engine.operation_drain.stop()
    [waiting] = await router.enqueue(None, requests(1))
    assert isinstance(waiting, list)
    assert waiting[0].durability == "store"

    async def slow(new: Sequence[NewOperation]) -> list[EnqueueResult]:
        await commits.wait()
        return await enqueue(new)

    monkeypatch.setattr(operations, "enqueue", slow)
    router.timeout.seconds = 0.1
    fails(broker._engine.journal, "append", JournalFull("the disk is full"))
    item = PushItem(queue=QUEUE, payload=b"1", transaction_id="another id")
    [answer] = await router.push(None, [PushRequest(DEFAULT_TENANT, [item], can_wait=False)])
    commits.set()
    assert isinstance(answer, OutcomeUnknown)
