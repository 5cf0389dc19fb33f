"""The order in which the journal is drained: queues and their lanes take rotation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.deferral import journal_drain
from fairlane.broker.deferral.journal_drain import BacklogRotation
from fairlane.broker.flags import PUSHES_PAUSED
from fairlane.model.message import PushItem
from fairlane.model.names import QUEUE_MODE
from fairlane.model.operation import ack_payload
from fairlane.model.outcome import AckItem
from fairlane.store.contract.journal import Backlog, NewEntry
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import PartitionLocked
from tests.faults.producers import drained

MANY = 1_200


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker.open("sqlite:///:memory:", journal=str(tmp_path)) as broker:
        yield broker


def backlog(queue: str, partition: object) -> Backlog:
    return Backlog("push", "t", queue, str(partition))


async def test_a_queue_with_little_in_the_journal_does_not_wait_for_one_with_much(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker._engine.flags.set(PUSHES_PAUSED, True)
    await broker.push_many([PushItem(queue="much", payload=b"1", partition=f"p{n % 600}") for n in range(MANY)])
    for number in range(MANY // 2):
        await broker.push("long", number)
    assert (await broker.push("little", 1)).status == "buffered"
    calls: list[set[int]] = []
    enqueue = broker._engine.store.operations.enqueue

    async def watched(operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        calls.append({one.queue_id for one in operations})
        return await enqueue(operations)

    monkeypatch.setattr(broker._engine.store.operations, "enqueue", watched)
    await broker._engine.flags.set(PUSHES_PAUSED, False)
    await drained(broker)
    queue = await broker._engine.store.queues.get("default", "little")
    assert queue is not None
    assert queue.id in calls[0]
    assert len(calls) > 2, "it was not all at once anyway"


@pytest.mark.parametrize("under_way", [False, True])
async def test_an_ack_that_comes_while_pushes_are_drained_goes_before_the_pushes_that_are_left(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, under_way: bool
) -> None:
    """With `under_way`, the ack is in the journal because the store was slow to apply it.

    It may then be moved only after that attempt has ended."""
    await broker.push("long", "first")
    batch = await broker.pop("long")
    await broker._engine.flags.set(PUSHES_PAUSED, True)
    for number in range(MANY):
        await broker.push("long", number)
    calls: list[set[str]] = []
    enqueue, journal, timeout = (
        broker._engine.store.operations.enqueue,
        broker._engine.journal,
        broker._engine.write_router.timeout,
    )
    assert journal is not None
    monkeypatch.setattr(journal_drain, "_LOAD_SECONDS", 0.0)
    items = [AckItem(transaction_id=one.transaction_id, partition=one.partition_id, lease=one.lease) for one in batch]
    lane = Backlog("ack", "default", QUEUE_MODE, str(items[0].partition))
    flush_ended = asyncio.Event()
    flush = asyncio.create_task(flush_ended.wait())

    async def watched(operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        if not calls:
            if under_way:
                timeout.abandoned[flush] = frozenset([lane])
            await journal.append([NewEntry(lane, 1, ack_payload(QUEUE_MODE, items), uuid4())], set())
        elif under_way:
            timeout.abandoned.pop(flush, None)
        calls.append({one.type for one in operations})
        return await enqueue(operations)

    monkeypatch.setattr(broker._engine.store.operations, "enqueue", watched)
    await broker._engine.flags.set(PUSHES_PAUSED, False)
    await drained(broker)
    flush_ended.set()
    await flush
    wanted = [["PUSH"], ["ACK_SINGLE"], ["PUSH"]]
    assert [*map(sorted, calls[:4])] == ([["PUSH"], *wanted] if under_way else [*wanted, ["PUSH"]])


async def test_the_entries_of_a_partition_of_a_limited_queue_are_moved_together(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.queues.configure("short", max_size=200)
    await broker._engine.flags.set(PUSHES_PAUSED, True)
    for number in range(200):
        await broker.push("short", number)
    calls: list[int] = []
    enqueue = broker._engine.store.operations.enqueue

    async def watched(operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        calls.append(len(operations))
        return await enqueue(operations)

    monkeypatch.setattr(broker._engine.store.operations, "enqueue", watched)
    await broker._engine.flags.set(PUSHES_PAUSED, False)
    await drained(broker)
    assert len(calls) < 10, "one by one it were 200"
    assert [delivery.data for delivery in await broker.pop("short", batch=200)] == list(range(200))


async def test_entries_of_a_locked_partition_that_are_refused_at_once_make_the_next_batch_no_larger(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How fast a refusal comes says nothing of how many entries the store can take."""
    await broker._engine.flags.set(PUSHES_PAUSED, True)
    for number in range(200):
        await broker.push("long", number)
    calls: list[int] = []
    enqueue = broker._engine.store.operations.enqueue

    async def watched(operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        calls.append(len(operations))
        return [PartitionLocked() for _ in operations] if len(calls) < 4 else await enqueue(operations)

    monkeypatch.setattr(broker._engine.store.operations, "enqueue", watched)
    await broker._engine.flags.set(PUSHES_PAUSED, False)
    await drained(broker)
    assert calls[:4] == calls[:1] * 4
    assert calls[4] > calls[0], "what is moved fast does"


def test_lanes_take_turns_and_queues_do() -> None:
    rotation = BacklogRotation()
    counts = {backlog("a", number): 1 for number in range(5)} | {backlog("b", 0): 9, backlog("c", 0): 1}
    counts[Backlog("ack", "t", "g", "0-1")] = 1
    rotation.load(counts)
    resting = {backlog("a", 1)}

    def turn(most: int) -> list[str]:
        return [
            f"{one.name}{one.partition}" for one in rotation.next_backlogs("push", most, lambda one: one in resting)
        ]

    assert turn(4) == ["a0", "b0", "c0", "a2"]
    assert turn(2) == ["b0", "c0"], "the queue that came last has its turn last"
    assert turn(9) == ["a3", "b0", "c0", "a4", "a0", "a2"], "none twice, and none that rests"
    resting.clear()
    rotation.take([backlog("b", 0)] * 9)
    assert set(turn(9)) == {"a0", "a1", "a2", "a3", "a4", "c0"}
    del counts[backlog("a", 2)], counts[backlog("b", 0)]
    rotation.load(counts | {backlog("d", 0): 1})
    assert turn(9) == ["c0", "a3", "d0", "a4", "a0", "a1"], "who was there keeps its turn, who came is last"
