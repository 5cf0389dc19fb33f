"""Tracebacks that acks send with errors: kept with each of the last ten errors of a message, within their limit."""

from __future__ import annotations

import pytest

from fairlane.model.group import Group
from fairlane.model.limits import TRACEBACK_BYTES_MAX
from fairlane.model.outcome import AckItem
from fairlane.model.queue import Queue
from fairlane.store.contract.failures import StoredLetter
from fairlane.store.contract.values import DeadFilter, LaneAck, Nack, ToDeadLetter
from tests.conformance.harness import Harness, Taken
from tests.conformance.test_unordered import apply_unordered, unordered_ack

ORDERINGS = pytest.mark.parametrize("ordering", ["per_key", "unordered"])


async def fail(harness: Harness, queue: Queue, group: Group, verdict: Nack | ToDeadLetter) -> None:
    """Deliver the next message and give it this verdict."""
    harness.clock.advance(1)
    await harness.apply(_ack(harness, queue, await harness.pop(queue, group), verdict))


def _ack(harness: Harness, queue: Queue, taken: Taken, verdict: Nack | ToDeadLetter) -> LaneAck:
    nack = verdict if isinstance(verdict, Nack) else None
    dead = [verdict] if isinstance(verdict, ToDeadLetter) else []
    if queue.options.ordering == "unordered":
        return unordered_ack(taken, nacks=[nack] if nack else [], dead_letters=dead)
    return harness.ordered_ack(taken, 1 if dead else 0, nack=nack, dead_letters=dead)


async def letter_of(harness: Harness, queue: Queue) -> StoredLetter:
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    return letter


@ORDERINGS
async def test_each_kept_error_has_its_traceback(harness: Harness, ordering: str) -> None:
    queue = await harness.queue(retry_limit=1, ordering=ordering)
    group = await harness.group(queue)
    await harness.push(queue, ["x"])
    await fail(harness, queue, group, Nack(0, True, "first", traceback="in a\nin b"))
    await fail(harness, queue, group, Nack(0, True, "last", traceback="in c"))
    found = [(one.error, one.traceback) for one in (await letter_of(harness, queue)).errors]
    assert found == [("first", "in a\nin b"), ("last", "in c")]


@ORDERINGS
async def test_only_the_last_ten_are_kept(harness: Harness, ordering: str) -> None:
    queue = await harness.queue(retry_limit=20, ordering=ordering)
    group = await harness.group(queue)
    await harness.push(queue, ["x"])
    for number in range(12):
        traceback = None if number == 5 else f"in {number}"
        await fail(harness, queue, group, Nack(0, True, f"failure {number}", traceback=traceback))
    await fail(harness, queue, group, ToDeadLetter(0, "enough", "at the end"))
    errors = (await letter_of(harness, queue)).errors
    assert [one.traceback for one in errors] == [
        "in 3", "in 4", None, "in 6", "in 7", "in 8", "in 9", "in 10", "in 11", "at the end",
    ]  # fmt: skip


@ORDERINGS
async def test_an_error_without_a_traceback_does_not_take_that_of_the_one_before(
    harness: Harness, ordering: str
) -> None:
    queue = await harness.queue(retry_limit=2, ordering=ordering, lease_seconds=5)
    group = await harness.group(queue)
    await harness.push(queue, ["x"])
    await fail(harness, queue, group, Nack(0, True, "first", traceback="in a"))
    await harness.pop(queue, group)
    harness.clock.advance(6)  # the lease expires
    await fail(harness, queue, group, Nack(0, True, "last"))
    found = [(one.error, one.traceback) for one in (await letter_of(harness, queue)).errors]
    assert found == [("first", "in a"), ("Partition lease expired", None), ("last", None)]


async def test_a_message_that_waits_for_the_cursor_keeps_the_traceback_of_its_last_failure(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    group = await harness.group(queue)
    await harness.push(queue, ["x", "y"])
    taken = await harness.pop(queue, group, batch=2)
    await harness.apply(harness.ordered_ack(taken, nack=Nack(1, True, "broken", traceback="in y")))
    taken = await harness.pop(queue, group, batch=1)
    await harness.ack(taken)
    assert not await harness.pop(queue, group)
    assert [(one.error, one.traceback) for one in (await letter_of(harness, queue)).errors] == [("broken", "in y")]


@ORDERINGS
async def test_the_failures_of_a_message_that_will_be_delivered_again_are_found(
    harness: Harness, ordering: str
) -> None:
    queue = await harness.queue(retry_limit=5, ordering=ordering)
    group, other = await harness.group(queue), await harness.group(queue, "other")
    await harness.push(queue, ["x"])
    partition = (await harness.partition(queue)).id
    assert await harness.store.groups.failed(partition, 0, [group.id, other.id]) is None
    await fail(harness, queue, group, Nack(0, True, "first", traceback="in a"))
    await fail(harness, queue, group, Nack(0, True, "second", traceback="in b"))
    await fail(harness, queue, other, Nack(0, True, "of the other", traceback="in c"))
    found = await harness.store.groups.failed(partition, 0, [group.id, other.id])
    assert found is not None
    assert (found.attempts, [one.traceback for one in found.errors]) == (2, ["in a", "in b"])
    found = await harness.store.groups.failed(partition, 0, [other.id])
    assert found is not None
    assert [one.error for one in found.errors] == ["of the other"]


async def test_acks_of_one_call_keep_their_own_tracebacks(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, ordering="unordered")
    group = await harness.group(queue)
    await harness.push(queue, ["x", "y", "z"])
    taken = await harness.pop(queue, group, batch=3)
    nacks = [Nack(0, True, "0"), Nack(1, True, "1", traceback="in 1"), Nack(2, True, "2", traceback="in 2")]
    await apply_unordered(harness, unordered_ack(taken, nacks=nacks))
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert {one.error: one.traceback for one in letters} == {"0": None, "1": "in 1", "2": "in 2"}


async def test_only_the_end_of_a_long_traceback_is_kept(harness: Harness) -> None:
    name = harness.name("orders")
    await harness.broker.queues.configure(name, retry_limit=0)
    await harness.broker.push(name, 1)
    [message] = await harness.broker.pop(name)
    text = "oldest\0" + "é" * TRACEBACK_BYTES_MAX + "\ud800newest"
    item = AckItem(
        transaction_id=message.transaction_id, partition=message.partition_id, status="failed", error="e",
        lease=message.lease, traceback=text,
    )  # fmt: skip
    await harness.broker.ack_many([item])
    [summary] = await harness.broker.dead_letters.page(name)
    assert summary.errors[0].traceback is None  # not in a list
    letter = await harness.broker.dead_letters.get(name, summary.id)
    kept = letter.errors[0].traceback
    assert kept is not None
    assert kept.endswith("é?newest")
    assert TRACEBACK_BYTES_MAX - 4 < len(kept.encode()) <= TRACEBACK_BYTES_MAX
    seen = await harness.broker.messages.get(str(message.partition_id), message.transaction_id)
    assert [one.traceback for one in seen.errors] == [kept]
