"""Admission: a request waits, becomes an operation, or is refused, in this order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from itertools import chain, repeat

import pytest

from fairlane.broker.admission import CALLERS, LIMITS, PATIENT, Admission, Kind, Limit
from fairlane.broker.broker import Broker
from fairlane.broker.engine import build_engine
from fairlane.broker.push_batch import BlockedByOperations, PartitionBatch, PushFlight, PushRequest
from fairlane.errors import Overloaded
from fairlane.model.ids import PartitionId
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome
from fairlane.model.queue import QueueOptions
from fairlane.runtime.rate import RETRY_SECONDS, RETRY_SECONDS_MAX, RETRY_SECONDS_MIN
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import PushResult, Slice
from fairlane.store.sqlite.store import SqliteStore


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """A broker that applies no operations."""
    broker = Broker(build_engine(await SqliteStore.open(":memory:"), limits=LIMITS))
    await broker._engine.operation_drain.stop()
    yield broker
    await broker.close()


@pytest.fixture
def admission(broker: Broker) -> Admission:
    return broker._engine.admission


def let_wait(admission: Admission, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every request wait for this long."""
    for batcher in (admission.pushes, admission.acks):
        monkeypatch.setattr(batcher, "waiting", [None])
        monkeypatch.setattr(batcher, "wait_seconds", lambda: seconds)
        monkeypatch.setattr(batcher, "wait_seconds_of", lambda tenant: seconds)


@pytest.mark.parametrize(
    ("kind", "wait", "depth", "decision"),
    [
        ("push", 2.0, 10**9, "execute"),
        ("push", 2.1, 9_999, "enqueue"),
        ("push", 2.1, 10_000, "refuse"),
        ("ack", 2.0, 10**9, "execute"),
        ("ack", 2.1, 49_999, "enqueue"),
        ("ack", 2.1, 50_000, "refuse"),
        ("pop", 2.0, 10**9, "execute"),
        ("pop", 2.1, 0, "refuse"),
    ],
)
async def test_each_kind_waits_then_becomes_an_operation_and_is_refused_only_past_the_depth(
    broker: Broker,
    admission: Admission,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    wait: float,
    depth: int,
    decision: str,
) -> None:
    let_wait(admission, wait, monkeypatch)
    broker._engine.open_operations.depth = depth
    if decision == "refuse":
        with pytest.raises(Overloaded) as refused:
            admission.defers(kind, "default")
        assert refused.value.depth == depth
        assert admission.decisions[kind] == {"execute": 0, "enqueue": 0, "refuse": 1}
    else:
        assert admission.defers(kind, "default") == (decision == "enqueue")
        assert admission.decisions[kind] == {"execute": 0, "enqueue": 0, "refuse": 0} | {decision: 1}


async def test_a_refusal_says_why_and_when_to_come_again(
    broker: Broker, admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wait(admission, 3.25, monkeypatch)
    backlog = broker._engine.open_operations
    backlog.depth = 12_000

    def refused(kind: Kind) -> Overloaded:
        refusal = admission.refusal(kind)
        assert refusal is not None
        return refusal

    assert "3.2 s" in str(refused("push"))
    assert "12000" in str(refused("push"))
    assert "10000" in str(refused("push"))
    assert refused("push").retry_after == RETRY_SECONDS, "nobody was seen to apply any"
    backlog.rate.resume(0.0)
    backlog.rate.record(4_000, 1.0)
    assert refused("push").retry_after == pytest.approx(3.0)
    backlog.depth = 10**9
    assert refused("push").retry_after == RETRY_SECONDS_MAX
    backlog.rate.record(10**12, 2.0)
    assert refused("push").retry_after == RETRY_SECONDS_MIN
    assert refused("pop").retry_after == 3.25


async def test_callers_in_the_same_process_are_never_held_back(
    broker: Broker, admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_wait(admission, 1e9, monkeypatch)
    admission.limits = PATIENT
    broker._engine.open_operations.depth = 10**9
    for kind in LIMITS:
        assert not admission.defers(kind, "default")
        assert admission.refusal(kind) is None
    assert inspect.signature(Broker.open).parameters["limits"].default is PATIENT


async def test_what_is_on_its_way_to_be_an_operation_counts_but_few_callers_are_never_refused_for_it(
    broker: Broker, admission: Admission
) -> None:
    admission.limits = {"push": Limit(-1.0, 10)}
    gate = asyncio.Event()
    enqueue = broker._engine.store.operations.enqueue

    async def slow(operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        await gate.wait()
        return await enqueue(operations)

    broker._engine.store.operations.enqueue = slow  # type: ignore[method-assign]
    operations = [asyncio.create_task(broker.push("q", number)) for number in range(10)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(broker.push("q", number, partition="few")) for number in range(CALLERS - 9)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await broker.push("q", "one too many")
    assert {outcome.status for outcome in await asyncio.gather(*few)} == {"queued"}
    gate.set()
    assert {outcome.status for outcome in await asyncio.gather(*operations)} == {"buffered"}
    with pytest.raises(Overloaded, match="10 operations wait, of 10"):
        await broker.push("q", "as many wait as may")


async def test_a_wait_is_what_waits_by_what_was_done_lately(broker: Broker, admission: Admission) -> None:
    """The store takes one flush at a time. After a flush that left requests behind, their wait is known."""
    gate, second_gate, second_began = asyncio.Event(), asyncio.Event(), asyncio.Event()
    push, gates = broker._engine.store.messages.push, chain([gate], repeat(second_gate))

    async def slow(slices: Sequence[Slice]) -> list[PushResult]:
        if gate.is_set():
            second_began.set()
        await next(gates).wait()
        return await push(slices)

    await broker.push("q", 0)
    broker._engine.store.messages.push = slow  # type: ignore[method-assign]
    assert admission.wait_seconds("push") == 0
    pushes = [asyncio.create_task(broker.push("q", number)) for number in range(1_500)]
    await asyncio.sleep(0)
    assert admission.wait_seconds("push") == 0, "a burst: nothing is known of the store"
    while admission._batchers["push"][0].items < len(pushes):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)  # a flight that takes no time says nothing about the store
    gate.set()
    await second_began.wait()
    behind = [asyncio.create_task(broker.push("q", number, partition="behind")) for number in range(10)]
    while not admission.wait_seconds("push"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    admission.limits = {"push": Limit(0.0, 10_000)}
    late = asyncio.create_task(broker.push("q", "late", partition="other"))
    assert (await late).status == "buffered"
    second_gate.set()
    assert {outcome.status for outcome in await asyncio.gather(*pushes)} == {"queued"}
    await asyncio.gather(*behind)
    assert admission.wait_seconds("push") == 0


async def with_an_operation(broker: Broker) -> asyncio.Event:
    """Enqueue a push as an operation, and let the next push wait for it until the event is set."""
    backlog, admission = broker._engine.open_operations, broker._engine.admission
    await broker._engine.operation_drain.stop()
    backlog.rate.resume(0.0)
    backlog.rate.record(1, 1.0)
    admission.limits = {"push": Limit(-1.0, 10_000)}
    assert (await broker.push("q", 1)).status == "buffered"
    admission.limits = LIMITS
    assert admission.pause_for_operations() > 0
    over = asyncio.Event()
    broker._scope.intake.sleep = lambda seconds: over.wait()  # type: ignore[assignment, return-value]
    return over


def items(*payloads: bytes, partition: str = "Default") -> list[PushItem]:
    return [PushItem(queue="q", partition=partition, payload=payload) for payload in payloads]


async def test_a_push_that_meets_operations_waits_for_them_and_holds_up_nobody(broker: Broker) -> None:
    over = await with_an_operation(broker)
    both = asyncio.create_task(broker.push_many(items(b"2", b"3") + items(b"4", partition="other")))
    assert (await broker.push("q", 5, partition="free")).status == "queued"
    broker._engine.operation_drain.start()
    while broker._engine.open_operations.depth:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert not both.done()
    over.set()
    assert [outcome.status for outcome in await both] == ["queued"] * 3
    assert [outcome.position for outcome in await both] == [1, 2, 0]
    assert [message.data for message in await broker.pop("q", batch=10, partition="Default")] == [1, 2, 3]
    assert [message.data for message in await broker.pop("q", batch=10, partition="other")] == [4]


async def test_a_push_that_waited_for_operations_in_vain_becomes_one(broker: Broker) -> None:
    over = await with_an_operation(broker)
    over.set()
    both = await broker.push_many(items(b"2") + items(b"3", partition="other"))
    assert [outcome.status for outcome in both] == ["buffered", "queued"]
    assert (both[0].reason, both[0].queue_position) == ("maintaining_order", 2)


async def test_a_push_that_must_become_an_operation_is_refused_past_the_depth_and_others_are_not(
    broker: Broker,
) -> None:
    over = await with_an_operation(broker)
    over.set()
    broker._engine.open_operations.depth = 10_000
    both = await broker.push_many(items(b"2") + items(b"3", partition="other"))
    assert [outcome.status for outcome in both] == ["refused", "queued"]
    assert isinstance(both[0].error, Overloaded)
    assert await broker._engine.store.operations.depth() == 1


async def test_where_no_operation_is_applied_a_push_becomes_one_at_once(broker: Broker) -> None:
    broker._engine.admission.limits = {"push": Limit(-1.0, 10_000)}
    await broker.push("q", 1)
    broker._engine.admission.limits = LIMITS
    assert broker._engine.admission.pause_for_operations() == 0
    assert (await broker.push("q", 2)).reason == "maintaining_order"


def test_a_request_that_waits_for_a_locked_partition_too_is_told_of_operations_when_that_is_over() -> None:
    request = PushRequest("t", items(b"1") + items(b"2", partition="locked"), can_wait=True)
    flight = PushFlight([request])
    for index, name in enumerate(("Default", "locked")):
        part = Slice(PartitionId(0, index), 1, QueueOptions(), [], [], [], [], [])
        batch = flight.batches["t", "q", name] = PartitionBatch(("t", "q", name), part)
        batch.owners.append((0, index))
    batch, locked = flight.batches.values()
    assert flight.can_wait(batch)
    flight.mark_blocked(batch)
    flight.mark_locked(locked)
    flight.report_blocked()
    assert isinstance(flight.outcomes[0], list)
    flight.batches, flight.locked = flight.locked, {}
    stored = PushOutcome("queued", "2")
    flight.settle(locked, (0, 1), stored)
    flight.report_blocked()
    answer = flight.outcomes[0]
    assert isinstance(answer, BlockedByOperations)
    assert (answer.indexes, answer.outcomes[1]) == ([0], stored)
