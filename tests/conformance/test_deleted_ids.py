"""Ids outlive their messages: ids that retention deleted stay known for the queue's window."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fairlane.model.queue import Queue
from fairlane.model.segment import ids_of
from fairlane.store.contract.values import Added, Duplicate, Duplicates, ScheduledSlice, Slice, Stored
from tests.conformance.harness import Harness
from tests.conformance.test_dedup import aged, only
from tests.conformance.test_retention import run, total

RULES: dict[str, dict[str, Any]] = {
    "completed": {"completed_retention_seconds": 10},
    "retention": {"retention_seconds": 10},
}
WINDOW = 3_600


def named(harness: Harness) -> list[str]:
    """Return ids of every kind: some that are found by their time, some that are not."""
    ages = (0.0, 59.9, 60.1, -30.0)
    return [aged(harness, age) for age in ages] + [str(uuid4()), "text", '"名前"', harness.mint().upper(), "x" * 300]


async def lanes_of(harness: Harness, queue: Queue, ids: list[str]) -> list[Slice]:
    """Push each id as the second of three messages in its own partition. The other two have ids of the broker."""
    partitions = await harness.store.queues.ensure_partitions(queue.id, [f"lane {n}" for n in range(len(ids))])
    return [
        harness.slice(queue, partition, [0, 1, 2], ids=[harness.mint(), one, harness.mint()])
        for partition, one in zip(partitions, ids, strict=True)
    ]


async def deleted(harness: Harness, queue: Queue, slices: list[Slice], rule: str) -> None:
    """Store and finish messages, and let a rule of the queue delete them."""
    for result in await harness.store.messages.push(slices):
        assert isinstance(result, Stored)
    await harness.drain(queue)
    harness.clock.advance(10)
    assert total(await run(harness), queue, rule) == 3 * len(slices)


async def again(harness: Harness, queue: Queue, slices: list[Slice]) -> list[Duplicate | None]:
    """Push the second message of each partition again. Returns the outcomes."""
    partitions = {
        one.id: one for one in await harness.store.queues.ensure_partitions(queue.id, [f"lane {n}" for n in range(9)])
    }
    repeated = [
        harness.slice(queue, partitions[part.partition], ["again"], ids=[part.transaction_ids[1]]) for part in slices
    ]
    results = await harness.store.messages.push(repeated)
    return [only(result) if isinstance(result, Duplicates) else None for result in results]


async def rows_of(harness: Harness, table: str, slices: list[Slice]) -> int:
    ids = {part.partition.id for part in slices}
    found = await harness.backend.sql(f"SELECT partition_id FROM fairlane.{table}")  # statement names of our own
    return sum(id in ids for (id,) in found)


@pytest.mark.parametrize("rule", RULES)
async def test_an_id_is_known_for_its_window_whatever_retention_deleted(harness: Harness, rule: str) -> None:
    queue = await harness.queue(retention_enabled=True, dedup_seconds=WINDOW, **RULES[rule])
    slices = await lanes_of(harness, queue, named(harness))
    await deleted(harness, queue, slices, rule)
    first = [Duplicate(0, 1, *ids_of(part.fragments[1])) for part in slices]
    for seconds in (0, 1, 60, 600, WINDOW - 672):
        harness.clock.advance(seconds)
        assert await again(harness, queue, slices) == first, "the first message's id and position"
        assert not await harness.drain(queue), "nothing was stored"
        await run(harness)
    harness.clock.advance(2)
    assert await again(harness, queue, slices) == [None] * len(slices), "the window has passed"


async def test_what_is_remembered_of_deleted_messages_goes_with_the_window(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, dedup_seconds=WINDOW, completed_retention_seconds=10)
    slices = await lanes_of(harness, queue, named(harness))
    await deleted(harness, queue, slices, "completed")
    assert await rows_of(harness, "segments", slices) == 0
    assert await rows_of(harness, "deleted_ids", slices) == len(slices)
    harness.clock.advance(WINDOW)
    await run(harness)
    for table in ("deleted_ids", "message_keys", "trims"):
        assert await rows_of(harness, table, slices) == 0, table


async def test_without_a_window_nothing_is_remembered(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, dedup_seconds=0, completed_retention_seconds=10)
    slices = await lanes_of(harness, queue, ["text", harness.mint()])
    await deleted(harness, queue, slices, "completed")
    for table in ("segments", "deleted_ids", "message_keys"):
        assert await rows_of(harness, table, slices) == 0, table


async def test_an_id_in_doubt_is_known_though_its_message_went_meanwhile(harness: Harness) -> None:
    """A broker that lost its connection during a push repeats the push with the ids that it made."""
    queue = await harness.queue(retention_enabled=True, retention_seconds=10)
    partition = await harness.partition(queue)
    minted = harness.slice(queue, partition, ["a", "b"])
    await harness.store.messages.push([minted])
    harness.clock.advance(3600)
    await run(harness)
    [result] = await harness.store.messages.push([msgspec.structs.replace(minted, given=[True, True])])
    assert isinstance(result, Duplicates)
    assert {(one.index, one.position, one.message_id) for one in result.found} == {
        (0, 0, minted.transaction_ids[0]),
        (1, 1, minted.transaction_ids[1]),
    }


async def test_an_id_that_was_used_again_after_its_window_is_remembered_anew(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, dedup_seconds=100, retention_seconds=10)
    await harness.push(queue, ["first"], ids=["x"])
    harness.clock.advance(60)
    await run(harness)
    harness.clock.advance(41)
    assert (await harness.push(queue, ["second"], ids=["x"])).first == 1
    harness.clock.advance(50)
    await run(harness)
    assert only(await harness.try_push(queue, ["third"], ids=["x"])).position == 1
    harness.clock.advance(51)
    await run(harness)
    assert (await harness.push(queue, ["third"], ids=["x"])).first == 2


async def test_ids_that_share_a_key_are_told_apart_after_their_messages_went(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=10)
    tail = "8000-00000000abcd"
    one, two = f"{harness.mint()[:19]}{tail}", f"{aged(harness, 1)[:19]}{tail}"
    await harness.push(queue, ["one"], ids=[one])
    harness.clock.advance(10)
    await run(harness)
    assert only(await harness.try_push(queue, ["two"], ids=[two])).transaction_id == one


async def test_a_scheduled_message_is_a_duplicate_of_one_that_went(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=10)
    partition = await harness.partition(queue)
    ids = ["text", harness.mint()]
    await harness.push(queue, [1, 2], ids=ids)
    harness.clock.advance(10)
    await run(harness)
    for position, id in enumerate(ids):
        part = harness.slice(queue, partition, ["later"], ids=[id])
        scheduled = ScheduledSlice(part, partition.name, due_at=[None], delay_ms=[1000])
        [result] = await harness.store.scheduled.add([scheduled])
        assert not isinstance(result, Added)
        assert only(result).position == position


async def test_a_result_is_known_as_long_as_its_id(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, dedup_seconds=WINDOW, completed_retention_seconds=10)
    group = await harness.group(queue)
    await harness.push(queue, [1], ids=["x"])
    taken = await harness.pop(queue, group)
    await harness.apply(harness.ordered_ack(taken, 1, results=[(0, b'"done"')]))
    partition = taken.lane.partition
    harness.clock.advance(10)
    await run(harness)
    harness.clock.advance(WINDOW - 11)
    await run(harness)
    assert only(await harness.try_push(queue, [2], ids=["x"])).position == 0
    assert await harness.store.groups.result(group.id, partition, 0) == b'"done"'
    harness.clock.advance(1)
    await run(harness)
    assert await harness.store.groups.result(group.id, partition, 0) is None


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "kept"])
async def test_the_id_of_a_message_that_was_taken_out_is_not_remembered(harness: Harness, fresh: bool) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=10)
    partition = await harness.partition(queue)
    ids = [harness.mint() if fresh else f"id {n}" for n in range(3)]
    await harness.push(queue, [0, 1, 2], ids=ids)
    assert await harness.store.browse.delete(partition.id, 1)
    harness.clock.advance(10)
    assert total(await run(harness), queue, "retention") == 2
    assert isinstance(await harness.try_push(queue, ["anew"], ids=[ids[1]]), Stored)
    for id in (ids[0], ids[2]):
        assert isinstance(await harness.try_push(queue, ["again"], ids=[id]), Duplicates)


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "kept"])
async def test_a_clear_forgets_what_retention_remembered(harness: Harness, fresh: bool) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=10)
    partition = await harness.partition(queue)
    ids = [harness.mint() if fresh else f"id {n}" for n in range(3)]
    await harness.push(queue, [0, 1], ids=ids[:2])
    harness.clock.advance(10)
    await run(harness)
    await harness.push(queue, [2], ids=ids[2:])
    await harness.store.browse.clear(queue.id)
    assert (await harness.push(queue, [3, 4, 5], ids=ids)).first == 3
    [[left]] = await harness.backend.sql(
        "SELECT count(*) FROM fairlane.deleted_ids WHERE partition_id = $1", partition.id.id
    )
    assert left == 0
    await harness.drain(queue)
    harness.clock.advance(10)
    await run(harness)
    assert isinstance(await harness.try_push(queue, [6], ids=ids[:1]), Duplicates), "of the new ones it knows"


async def test_every_id_of_many_small_pushes_is_known_after_they_went(harness: Harness) -> None:
    """Consecutive ids are remembered together: ids of the broker, ids of producers, and a pause between them."""
    queue = await harness.queue(retention_enabled=True, dedup_seconds=WINDOW, retention_seconds=10)
    ids: list[str] = []
    for number in range(60):
        of_others = number % 20 >= 15
        pushed = [str(uuid4()) if of_others else harness.mint() for _ in range(number % 3 + 1)]
        await harness.push(queue, pushed, ids=pushed)
        ids += pushed
        harness.clock.advance(3 if number == 30 else 0.05)
    harness.clock.advance(10)
    assert total(await run(harness), queue, "retention") == len(ids)
    results = [await harness.try_push(queue, ["again"], ids=[one]) for one in ids]
    assert [only(result).position for result in results if isinstance(result, Duplicates)] == list(range(len(ids)))
