"""Operations: the broker accepts pushes and acks, applies them later in order, and reports the results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest
import pytest_asyncio

from fairlane.broker.admission import Limit
from fairlane.broker.broker import Broker
from fairlane.errors import LaneWaiting, OutcomeUnknown, Overloaded, QueueFull, Unavailable
from fairlane.model.message import PushItem
from fairlane.model.operation import Operation
from fairlane.model.outcome import AckOutcome, PushOutcome
from fairlane.store.contract.operations import Application, ApplyResult, ClaimedBacklog
from tests.conformance.harness import Harness
from tests.conformance.operation_driver import no_operations
from tests.conformance.test_durability import process
from tests.until import until

BUSY = -1.0
"""A threshold that any use exceeds."""


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def alone(harness: Harness) -> AsyncIterator[None]:
    await no_operations(harness)
    yield
    await no_operations(harness)


def make_busy(broker: Broker, *, push: int = 10_000, ack: int = 50_000) -> None:
    broker._engine.admission.limits = {"push": Limit(BUSY, push), "ack": Limit(BUSY, ack)}


def make_calm(broker: Broker) -> None:
    broker._engine.admission.limits = {}


async def idle(broker: Broker) -> Broker:
    """A broker that accepts operations and applies none."""
    await broker._engine.operation_drain.stop()
    return broker


async def operation(harness: Harness, outcome: PushOutcome | AckOutcome) -> Operation:
    assert outcome.operation_id is not None
    found = await harness.store.operations.get("default", UUID(outcome.operation_id))
    assert found is not None
    return found


async def ended(harness: Harness, outcome: PushOutcome | AckOutcome) -> Operation:
    """Return an operation once it has ended. The clock advances meanwhile, so that retries become due."""

    async def over() -> bool:
        harness.clock.advance(0.05)
        return (await operation(harness, outcome)).status in ("completed", "failed")

    await until(over)
    return await operation(harness, outcome)


async def test_a_push_that_meets_a_busy_store_waits_and_is_stored(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("orders")
    assert (await broker.push(name, "x")).status == "queued"
    make_busy(broker)
    outcome = await broker.push(name, "y", transaction_id="the id")
    assert (outcome.status, outcome.reason, outcome.durability) == ("buffered", "system_busy", "store")
    assert outcome.queue_position == 1
    assert outcome.estimated_wait is not None
    done = await ended(harness, outcome)
    assert done.result is not None
    [item] = msgspec.json.decode(done.result)["items"]
    assert (item["status"], item["transaction_id"], item["position"]) == ("queued", "the id", 1)
    batch = await broker.pop(name, batch=5)
    assert [delivery.data for delivery in batch] == ["x", "y"]
    assert batch[1].id == item["message_id"]


@pytest.mark.parametrize("brokers", [1, 2])
async def test_x_is_stored_y_is_an_operation_and_so_must_z_be(harness: Harness, brokers: int) -> None:
    name = harness.name("orders")
    first = await idle(harness.broker)
    second = await harness.second_broker() if brokers == 2 else first
    if second is not first:
        await idle(second)
    assert (await first.push(name, "x")).status == "queued"
    make_busy(first)
    y = await first.push(name, "y")
    make_calm(first)
    z = await second.push(name, "z")
    elsewhere = await second.push(name, "elsewhere", partition="free")
    assert (y.status, y.reason) == ("buffered", "system_busy")
    assert (z.status, z.reason, z.queue_position) == ("buffered", "maintaining_order", 2)
    assert elsewhere.status == "queued"
    await harness.reopen()
    assert harness.broker
    await ended(harness, z)
    assert (await harness.broker.push(name, "after")).status == "queued"
    queue = await harness.store.queues.get("default", name)
    assert queue is not None
    partition = await harness.partition(queue)
    assert (await harness.pop(queue, partition=partition.id)).data == ["x", "y", "z", "after"]


async def test_a_push_that_meets_a_busy_store_and_a_long_queue_is_refused(harness: Harness) -> None:
    broker, name = await idle(harness.broker), harness.name("orders")
    make_busy(broker, push=2)
    for _ in range(2):
        assert (await broker.push(name, "waits")).status == "buffered"
    with pytest.raises(Overloaded) as refused:
        await broker.push(name, "refused")
    assert refused.value.retry_after >= 1
    assert refused.value.depth == 2
    assert await harness.store.operations.depth() == 2


async def test_a_transaction_that_meets_operations_is_refused_for_now(harness: Harness) -> None:
    broker, name = await idle(harness.broker), harness.name("orders")
    make_busy(broker)
    await broker.push(name, "waits")
    make_calm(broker)
    items = [PushItem(queue=queue, payload=b"1") for queue in (name, harness.name("other"))]
    with pytest.raises(LaneWaiting) as refused:
        await broker.transact(items)
    assert refused.value.retryable


async def test_an_operation_of_a_known_id_stores_nothing_and_names_the_first(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("orders")
    first = await broker.push(name, "first", transaction_id="a")
    make_busy(broker)
    items = [PushItem(queue=name, payload=b"1", transaction_id=id) for id in ("a", "b", "b", "c")]
    outcomes = await broker.push_many(items)
    again = await broker.push(name, 2, transaction_id="c")
    done = [await ended(harness, outcome) for outcome in (outcomes[0], again)]
    results = [item for one in done for item in msgspec.json.decode(one.result or b"")["items"]]
    assert [(item["transaction_id"], item["status"]) for item in results] == [
        ("a", "duplicate"),
        ("b", "queued"),
        ("c", "queued"),
        ("c", "duplicate"),
    ]
    assert results[0]["message_id"] == first.message_id
    assert results[3]["message_id"] == results[2]["message_id"]
    assert [delivery.data for delivery in await broker.pop(name, batch=9)] == ["first", 1, 1]


async def test_an_operation_of_a_deleted_queue_fails_and_the_others_are_applied(harness: Harness) -> None:
    broker, gone, fine = harness.broker, harness.name("gone"), harness.name("fine")
    for name in (gone, fine):
        await broker.push(name, 0)
    await idle(broker)
    make_busy(broker)
    poison = [await broker.push(gone, n) for n in range(2)]
    good = await broker.push(fine, 1)
    await broker.queues.delete(gone)
    await harness.reopen()
    assert harness.broker
    assert (await ended(harness, good)).status == "completed"
    for outcome in poison:
        failed = await ended(harness, outcome)
        assert failed.status == "failed"
        assert failed.error is not None
        assert "deleted" in failed.error
    assert [delivery.data for delivery in await harness.broker.pop(fine, batch=5)] == [0, 1]


async def test_acks_wait_and_a_lease_that_ended_meanwhile_is_told(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("orders")
    await broker.queues.configure(name, lease_seconds=5)
    for n in range(3):
        await broker.push(name, n, partition=f"p{n}")
    done, failed, late = [await broker.pop(name) for _ in range(3)]
    make_busy(broker)
    [outcome] = await broker.ack(done)
    assert (outcome.success, outcome.durability) == (True, "store")
    [nacked] = await broker.nack(failed, error="no", delay_ms=60_000)
    for one in (outcome, nacked):
        told = msgspec.json.decode((await ended(harness, one)).result or b"")["items"]
        assert [(item["success"], item["leaseReleased"]) for item in told] == [(True, True)]
    harness.clock.advance(6)
    make_calm(broker)
    assert [delivery.data for delivery in await broker.pop(name, batch=3)] == [late[0].data]
    make_busy(broker)
    [lost] = await broker.ack(late)
    told = msgspec.json.decode((await ended(harness, lost)).result or b"")["items"]
    assert [(item["success"], item["code"]) for item in told] == [(False, "lease_lost")]


async def test_a_single_ack_and_a_batch_are_operations_of_their_own_kind_and_priority(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("orders")
    await broker.push_many([PushItem(queue=name, payload=b"%d" % n) for n in range(3)])
    batch = await broker.pop(name, batch=3)
    make_busy(broker)
    [single] = await broker.ack(batch[0])
    several = (await broker.ack(list(batch)[1:]))[0]
    found = [await ended(harness, outcome) for outcome in (single, several)]
    assert [(one.type, one.priority, one.status) for one in found] == [
        ("ACK_SINGLE", 4, "completed"),
        ("ACK_BATCH", 3, "completed"),
    ]


async def test_an_ack_does_not_overtake_a_nack_that_is_an_operation(harness: Harness) -> None:
    """The ack would finish a failed message otherwise. Other lanes are not delayed."""
    broker, name = harness.broker, harness.name("orders")
    await broker.queues.configure(name, retry_delay_ms=0)
    for partition in ("a", "b"):
        for n in range(3):
            await broker.push(name, n, partition=partition)
    batch = await broker.pop(name, batch=3, partition="a")
    other = await broker.pop(name, batch=3, partition="b")
    await broker._engine.operation_drain.stop()
    make_busy(broker)
    await broker.nack(batch[0], error="no")
    make_calm(broker)
    assert [outcome.durability for outcome in await broker.ack(list(batch)[1:])] == ["store", "store"]
    with pytest.raises(LaneWaiting):
        async with broker.transaction() as transaction:
            transaction.ack(batch[2])
    assert [outcome.durability for outcome in await broker.ack(other)] == [None] * 3
    broker._engine.operation_drain.start()

    async def none_waits() -> bool:
        return await harness.store.operations.depth() == 0

    await until(none_waits)
    again = await broker.pop(name, batch=3, partition="a", wait=10)
    assert [delivery.data for delivery in again] == [0, 1, 2], "what failed comes again, and all behind it"
    assert [outcome.durability for outcome in await broker.ack(again)] == [None] * 3


TOGETHER = 6
"""Acks that fit into the first claim of a broker, which takes 2 KB. Ids on Citus are longer than others."""


def count_applies(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Record for each call the number of operations per backlog."""
    calls: list[list[int]] = []
    operations = harness.broker._engine.store.operations
    apply = operations.apply

    async def counted(work: Sequence[Application]) -> list[ApplyResult]:
        calls.append([len(one.sequences) for one in work])
        return await apply(work)

    monkeypatch.setattr(operations, "apply", counted)
    return calls


async def test_the_acks_of_a_lease_that_wait_are_applied_together(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that acks each message queues many acks. Applied one by one, they would outlast its lease."""
    broker, name = harness.broker, harness.name("orders")
    await broker.push_many([PushItem(queue=name, payload=b"%d" % n) for n in range(TOGETHER)])
    batch = await broker.pop(name, batch=TOGETHER)
    await idle(broker)
    make_busy(broker)
    outcomes = [(await broker.ack(delivery))[0] for delivery in batch]
    calls = count_applies(harness, monkeypatch)
    broker._engine.operation_drain.start()
    results = [await ended(harness, outcome) for outcome in outcomes]
    told = [msgspec.json.decode(one.result or b"")["items"] for one in results]
    wanted = [delivery.transaction_id for delivery in batch]
    assert [[(item["transactionId"], item["success"]) for item in items] for items in told] == [
        [(transaction_id, True)] for transaction_id in wanted
    ]
    assert calls == [[TOGETHER]]
    assert not await broker.pop(name)


async def test_acks_of_a_lease_that_ended_are_refused_together(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, name = harness.broker, harness.name("orders")
    await broker.queues.configure(name, lease_seconds=5)
    await broker.push_many([PushItem(queue=name, payload=b"%d" % n) for n in range(TOGETHER)])
    batch = await broker.pop(name, batch=TOGETHER)
    await idle(broker)
    make_busy(broker)
    outcomes = [(await broker.ack(delivery))[0] for delivery in batch]
    harness.clock.advance(6)
    make_calm(broker)
    assert await broker.pop(name), "another consumer has the lane"
    calls = count_applies(harness, monkeypatch)
    broker._engine.operation_drain.start()
    results = [await ended(harness, outcome) for outcome in outcomes]
    told = [msgspec.json.decode(one.result or b"")["items"] for one in results]
    assert {(len(items), items[0]["success"], items[0]["code"]) for items in told} == {(1, False, "lease_lost")}
    assert len(calls) <= 4, calls


async def test_a_nack_among_acks_that_wait_is_applied_in_its_turn(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("orders")
    await broker.queues.configure(name, retry_delay_ms=0)
    await broker.push_many([PushItem(queue=name, payload=b"%d" % n) for n in range(6)])
    batch = await broker.pop(name, batch=6)
    await idle(broker)
    make_busy(broker)
    outcomes = [(await broker.ack(batch[number]))[0] for number in (0, 1)]
    outcomes += await broker.nack(batch[2], error="no")
    outcomes += [(await broker.ack(batch[number]))[0] for number in (2, 3)]
    broker._engine.operation_drain.start()
    results = [await ended(harness, outcome) for outcome in outcomes]
    told = [msgspec.json.decode(one.result or b"")["items"][0] for one in results]
    assert [item["success"] for item in told] == [True, True, True, False, False]
    make_calm(broker)
    assert [delivery.data for delivery in await broker.pop(name, batch=6)] == [2, 3, 4, 5]


async def test_an_accepted_push_waits_until_its_queue_has_room(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("orders")
    await broker.queues.configure(name, max_size=3)
    await broker.push(name, 0)
    await idle(broker)
    make_busy(broker)
    pushed = await broker.push(name, 1)
    assert (pushed.depth, pushed.capacity) == (2, 3)
    refused = await broker.push_many([PushItem(queue=name, payload=b"2")] * 2)
    assert all(isinstance(outcome.error, QueueFull) for outcome in refused)
    await broker.queues.configure(name, max_size=1)
    await harness.reopen()
    await until(lambda: harness.broker._engine.operation_drain.postponed)
    assert (await operation(harness, pushed)).status in ("pending", "processing")
    await harness.broker.pop(name, batch=3, auto_ack=True)
    assert (await ended(harness, pushed)).status == "completed"
    assert await harness.broker.queues.depth(name) == 1


async def test_a_broker_that_dies_at_any_point_of_an_operation_leaves_each_effect_once_and_in_order(
    harness: Harness,
) -> None:
    """Brokers are killed with operations enqueued, claimed, half applied and applied.

    The result is read by SQL alone.
    """
    queue = await harness.queue()
    await harness.store.close()
    points = ("enqueued", "claimed", "applying", "applied")
    answered: dict[str, list[int]] = {}
    for turn, point in enumerate(points):  # each a minute later than the one before, whose claims have expired by then
        async with process(harness, "crash", queue.name, point, ahead=60 * turn) as broker:
            told = await broker.lines()
        assert told[0] == "open"
        answered[point] = [n for n, status in told[1:] if status == "buffered"]
    assert answered == {"enqueued": [0, 1], "claimed": [0, 1, 2], "applying": [0, 1, 2], "applied": [0, 1, 2]}
    await harness.reopen()
    harness.clock.advance(60 * len(points))  # any broker may take what the dead ones had claimed
    heir = harness.broker
    await until(lambda: _none_is_open(harness))
    rows = await harness.backend.sql(
        "SELECT data FROM fairlane.messages WHERE queue = $1 ORDER BY position", queue.name
    )
    assert [msgspec.json.decode(row[0]) for row in rows] == [[point, n] for point in points for n in range(3)]
    left = await harness.backend.sql(
        "SELECT count(*) FROM fairlane.operations WHERE status <> 'completed' AND queue = $1", queue.name
    )
    assert left[0][0] == 0
    for point in points:
        again = await heir.push(queue.name, "again", transaction_id=f"{point} 2")
        assert again.status == "duplicate", "who got no answer may push again"


async def _none_is_open(harness: Harness) -> bool:
    harness.clock.advance(0.1)
    return not await harness.store.operations.depth()


async def test_what_broke_off_is_tried_again_before_its_claim_runs_out(harness: Harness) -> None:
    """The clock stands still, so no claim expires."""
    broker, name = harness.broker, harness.name("orders")
    operations = broker._engine.store.operations
    claim, apply = operations.claim, operations.apply

    async def lost_claim(worker: str, **limits: Any) -> list[ClaimedBacklog]:
        operations.claim = claim  # type: ignore[method-assign]
        await claim(worker, **limits)
        raise OutcomeUnknown("the answer was lost")

    async def lost_apply(work: Sequence[Application]) -> list[ApplyResult]:
        operations.apply = apply  # type: ignore[method-assign]
        raise OutcomeUnknown("the answer was lost")

    operations.claim, operations.apply = lost_claim, lost_apply  # type: ignore[method-assign]
    make_busy(broker)
    outcome = await broker.push(name, "once")

    async def applied() -> bool:
        return (await operation(harness, outcome)).status == "completed"

    await until(applied)
    assert operations.claim == claim
    assert operations.apply == apply
    assert [delivery.data for delivery in await broker.pop(name, batch=5)] == ["once"]


async def test_operations_are_applied_though_connections_are_lost(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("orders")
    make_busy(broker)
    for n in range(12):
        if n % 4 == 3:
            await harness.backend.cut_connections()
        while True:
            try:
                await broker.push(name, n, transaction_id=str(n))
                break
            except Unavailable:  # as every caller does, with the same id
                continue

    async def applied() -> bool:
        harness.clock.advance(0.05)
        try:
            return not await harness.store.operations.depth()
        except Unavailable:
            return False

    await until(applied)
    assert [delivery.data for delivery in await broker.pop(name, batch=20)] == list(range(12))
