"""Results that acks carried, by message and group, for as long as the message's id is known."""

from __future__ import annotations

from uuid import uuid4

import pytest

from fairlane.model.group import GroupResult
from tests.conformance.harness import Harness
from tests.conformance.test_retention import run
from tests.conformance.test_unordered import apply_unordered, unordered, unordered_ack


async def test_the_results_of_a_message_are_told_by_group(harness: Harness) -> None:
    queue = await harness.queue()
    mail = await harness.group(queue, "mail")
    await harness.group(queue, "idle")
    await harness.push(queue, [0, 1, 2])
    taken = await harness.pop(queue)
    await harness.apply(harness.ordered_ack(taken, 3, results=[(0, b'{"ok":1}'), (2, b"null")]))
    at = await harness.store.now()
    harness.clock.advance(7)
    mailed = await harness.pop(queue, mail)
    await harness.apply(harness.ordered_ack(mailed, 1, results=[(0, b'"sent"')]))
    partition = taken.lane.partition
    assert await harness.store.groups.results(partition, 0) == [
        GroupResult(taken.group.name, b'{"ok":1}', at),
        GroupResult("mail", b'"sent"', at + 7_000_000),
    ]
    assert await harness.store.groups.results(partition, 1) == []
    assert await harness.store.groups.results(partition, 2) == [GroupResult(taken.group.name, b"null", at)]


async def test_the_results_of_an_unordered_message_are_told(harness: Harness) -> None:
    queue = await unordered(harness)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    await apply_unordered(harness, unordered_ack(taken, 1, results=[(1, b'"well"')]))
    [found] = await harness.store.groups.results(taken.lane.partition, 1)
    assert (found.group, found.result) == (taken.group.name, b'"well"')


@pytest.mark.parametrize("kind", ["text", "uuid4", "uuid7"])
async def test_a_message_that_retention_deleted_is_found_while_its_id_is_known(harness: Harness, kind: str) -> None:
    queue = await harness.queue(retention_enabled=True, completed_retention_seconds=10, dedup_seconds=600)
    id = {"text": "text", "uuid4": str(uuid4()), "uuid7": harness.mint()}[kind]
    await harness.push(queue, [0, 1], ids=[harness.mint(), id])
    taken = await harness.pop(queue)
    partition = taken.lane.partition
    await harness.apply(harness.ordered_ack(taken, 2, results=[(1, b'"kept"')]))
    assert await harness.store.messages.find(partition, id, deleted=True) == 1
    harness.clock.advance(10)
    await run(harness)
    assert await harness.store.messages.find(partition, id) is None
    assert await harness.store.messages.find(partition, id, deleted=True) == 1
    assert [one.result for one in await harness.store.groups.results(partition, 1)] == [b'"kept"']
    harness.clock.advance(600)
    await run(harness)
    await run(harness)
    assert await harness.store.messages.find(partition, id, deleted=True) is None
    assert await harness.store.groups.results(partition, 1) == []


async def test_a_message_that_was_deleted_by_hand_has_no_result(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0], ids=["x"])
    taken = await harness.pop(queue)
    partition = taken.lane.partition
    await harness.apply(harness.ordered_ack(taken, 1, results=[(0, b"1")]))
    assert await harness.store.browse.delete(partition, 0)
    assert await harness.store.messages.find(partition, "x", deleted=True) is None
    assert await harness.store.groups.results(partition, 0) == []
