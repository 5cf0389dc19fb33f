"""Deduplication: within the window, a known transactionId stores nothing and returns the first message."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import msgspec
import pytest

from fairlane.model.ids import Uuid7, id_key, uuid7_ms
from fairlane.model.queue import Queue
from fairlane.model.segment import ids_of
from fairlane.store.contract.values import Duplicate, Duplicates, Slice, Stored
from tests.conformance.harness import Harness

DAY = 86_400

# Age in seconds of the time inside a UUIDv7 when it is first pushed. Negative ages are ahead of the store's clock.
AGES = (0.0, 0.5, 59.9, 60.1, 3_600.0, -0.5, -30.0, -3_600.0)

# Seconds between the first push and its repeat.
RETRIES = (0.0, 0.001, 1.0, 59.0, 61.0, 125.0, 3_599.0, 3_661.0, 7_300.0, DAY - 1.0)


def aged(harness: Harness, seconds: float) -> str:
    """Return a UUIDv7 whose time lies `seconds` before the store's current time."""
    return Uuid7(lambda: (harness.clock() - round(seconds * 1_000_000)) // 1000)()


def only(result: object) -> Duplicate:
    """Return the only duplicate. A store that searches two places may report it twice."""
    assert isinstance(result, Duplicates), result
    [found] = set(result.found)
    return found


def where(result: object) -> set[tuple[int, int]]:
    """Return (index in the slice, stored position) of each duplicate."""
    assert isinstance(result, Duplicates), result
    return {(found.index, found.position) for found in result.found}


async def test_a_known_id_stores_nothing_and_names_the_first_message(harness: Harness) -> None:
    queue = await harness.queue()
    for transaction_id in ("any text", "  ", "名前", str(uuid4()), harness.mint(), harness.mint().upper()):
        partition = await harness.partition(queue, f"of {transaction_id}")
        first = harness.slice(queue, partition, ["first"], ids=[transaction_id])
        [stored] = await harness.store.messages.push([first])
        assert isinstance(stored, Stored)
        for _ in range(2):
            found = only(await harness.try_push(queue, ["again"], partition=partition.name, ids=[transaction_id]))
            assert (found.index, found.position) == (0, 0)
            assert (found.message_id, found.transaction_id) == ids_of(first.fragments[0])
        heads = {state.name: state.head for state in await harness.store.statistics.partitions(queue.id)}
        assert heads[partition.name] == 1


async def test_nothing_of_a_slice_with_a_duplicate_is_stored_and_every_one_is_named(harness: Harness) -> None:
    queue = await harness.queue()
    fresh = harness.mint()
    await harness.push(queue, [0, 1, 2], ids=["a", fresh, "c"])
    result = await harness.try_push(queue, [0, 1, 2, 3], ids=["x", "c", fresh, "y"])
    assert where(result) == {(1, 2), (2, 1)}
    assert await harness.drain(queue) == [0, 1, 2]


async def test_a_duplicate_holds_up_no_other_lane_of_the_call(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["a"], partition="a", ids=["x"])
    partitions = [await harness.partition(queue, name) for name in "bac"]
    results = await harness.store.messages.push(
        [harness.slice(queue, partition, [0], ids=["x"]) for partition in partitions]
    )
    assert [type(result) for result in results] == [Stored, Duplicates, Stored]


async def test_the_same_id_in_another_partition_or_queue_is_new(harness: Harness) -> None:
    one, two = await harness.queue(), await harness.queue()
    transaction_id = harness.mint()
    for queue, partition in ((one, "a"), (one, "b"), (two, "a")):
        for each in ("text", transaction_id):
            assert isinstance(await harness.try_push(queue, [0], partition=partition, ids=[each]), Stored)


@pytest.mark.parametrize("traffic", ["none", "fresh", "texts", "ahead", "old"])
async def test_an_id_is_known_whenever_it_comes_again(harness: Harness, traffic: str) -> None:
    """The form and age of the id, the time of its repeat and later messages do not matter."""
    queue = await harness.queue()
    ids = [aged(harness, age) for age in AGES] + [str(uuid4()), "text", harness.mint().upper()]
    partitions = await harness.store.queues.ensure_partitions(queue.id, [f"lane {n}" for n in range(len(ids))])

    def slices(*, again: bool) -> list[Slice]:
        given = zip(partitions, ids, strict=True)
        return [harness.slice(queue, partition, [again, again], ids=[one, f"{one}{again}"]) for partition, one in given]

    first = slices(again=False)
    for result in await harness.store.messages.push(first):
        assert isinstance(result, Stored)
    began_at = harness.clock()
    for seconds in RETRIES:
        harness.clock.at = began_at + round(seconds * 1_000_000)
        between: dict[str, Callable[[], str]] = {
            "fresh": harness.mint,
            "texts": lambda: f"other {uuid4()}",
            "ahead": lambda: aged(harness, -120),
            "old": lambda: aged(harness, 7_200),
        }
        if traffic in between:
            others = [harness.slice(queue, partition, ["other"], ids=[between[traffic]()]) for partition in partitions]
            assert all(isinstance(one, Stored) for one in await harness.store.messages.push(others))
        for index, result in enumerate(await harness.store.messages.push(slices(again=True))):
            found = only(result)
            assert (found.index, found.position) == (0, 0), f"{ids[index]} after {seconds} s"
            assert (found.message_id, found.transaction_id) == ids_of(first[index].fragments[0])
            assert await harness.store.messages.find(partitions[index].id, ids[index]) == 0


async def push_again(harness: Harness, queue: Queue, transaction_id: str) -> bool:
    """Push an id again. Returns True if it was stored as new."""
    result = await harness.try_push(queue, [0], partition=transaction_id, ids=[transaction_id])
    return isinstance(result, Stored)


async def test_an_id_is_forgotten_after_the_window_and_not_before(harness: Harness) -> None:
    queue = await harness.queue(dedup_seconds=300)
    ids = [aged(harness, age) for age in (0.0, 59.0, 90.0, -30.0)] + [str(uuid4()), "text"]
    assert all([await push_again(harness, queue, one) for one in ids])
    harness.clock.advance(299)
    assert not any([await push_again(harness, queue, one) for one in ids])
    harness.clock.advance(2)
    assert all([await push_again(harness, queue, one) for one in ids])
    assert not any([await push_again(harness, queue, one) for one in ids]), "the new one is remembered"
    for one in ids:
        partition = await harness.partition(queue, one)
        assert await harness.store.messages.find(partition.id, one) == 1, "the newest is found"
    harness.clock.advance(299)
    assert not any([await push_again(harness, queue, one) for one in ids])


async def test_the_first_message_counts_its_window_however_often_it_is_repeated(harness: Harness) -> None:
    queue = await harness.queue(dedup_seconds=100)
    assert await push_again(harness, queue, "x")
    for _ in range(3):
        harness.clock.advance(30)
        assert not await push_again(harness, queue, "x")
    harness.clock.advance(11)
    assert await push_again(harness, queue, "x")


async def test_without_a_window_every_repeat_is_stored(harness: Harness) -> None:
    queue = await harness.queue(dedup_seconds=0)
    for transaction_id in ("text", harness.mint(), aged(harness, 90)):
        for _ in range(3):
            assert await push_again(harness, queue, transaction_id)
    assert len(await harness.drain(queue)) == 9


async def test_an_id_the_broker_minted_is_known_when_its_push_is_repeated(harness: Harness) -> None:
    """After an unknown outcome the same slice is pushed again, marked as possibly stored."""
    queue = await harness.queue()
    partition = await harness.partition(queue)
    await harness.push(queue, ["before"])
    minted = harness.slice(queue, partition, ["a", "b"])
    assert minted.given == [False, False]
    await harness.store.messages.push([minted])
    harness.clock.advance(5)
    await harness.push(queue, ["after"])
    minted.given = [True, True]
    [result] = await harness.store.messages.push([minted])
    assert where(result) == {(0, 1), (1, 2)}


async def test_a_call_that_comes_after_its_own_repeat_stores_nothing(harness: Harness) -> None:
    """The broker gave up, but the database did not: the statement waited for a lock, and the repeat went first."""
    queue = await harness.queue()
    partition = await harness.partition(queue)
    await harness.push(queue, ["before"])
    late = harness.slice(queue, partition, ["a", "b"])
    again = msgspec.structs.replace(late, given=[True, True])
    harness.clock.advance(2)
    assert isinstance((await harness.store.messages.push([again]))[0], Stored)
    await harness.push(queue, ["after"])
    [result] = await harness.store.messages.push([late])
    assert where(result) == {(0, 1), (1, 2)}
    assert isinstance(await harness.try_push(queue, ["new"]), Stored)
    assert len(await harness.drain(queue)) == 5


async def test_an_id_is_known_after_the_clock_stepped_back(harness: Harness) -> None:
    queue = await harness.queue()
    ids = [harness.mint(), "text"]
    assert all([await push_again(harness, queue, one) for one in ids])
    for step in (-1, -600, 1_200):
        harness.clock.advance(step)
        assert not any([await push_again(harness, queue, one) for one in ids])


async def test_an_id_that_was_stored_after_the_clock_stepped_back_is_known(harness: Harness) -> None:
    """The message has the time of the one before it, which lies ahead, so the id is not found at its own time."""
    queue = await harness.queue()
    partition = await harness.partition(queue)
    harness.clock.advance(1800)
    await harness.push(queue, ["before"])
    harness.clock.advance(-1800)
    ids = [harness.mint(), aged(harness, 90), "text", aged(harness, -1795)]
    minted = harness.slice(queue, partition, ["minted"])
    await harness.store.messages.push([minted])
    for one in ids:
        await harness.push(queue, [0], ids=[one])
    ids = [*minted.transaction_ids, *ids]
    for seconds in (1, 49, 14, 3600):
        harness.clock.advance(seconds)
        for position, one in enumerate(ids, 1):
            assert only(await harness.try_push(queue, [0], ids=[one])).position == position
            assert await harness.store.messages.find(partition.id, one) == position
    assert len(await harness.drain(queue)) == 6


async def test_an_id_minted_by_a_slow_host_is_known(harness: Harness) -> None:
    """The id's time lies before stored ids, so it looks old although it is new."""
    queue = await harness.queue()
    await harness.push(queue, ["x"], ids=[aged(harness, -5)])
    late = aged(harness, 10)
    assert isinstance(await harness.try_push(queue, [0], ids=[late]), Stored)
    assert only(await harness.try_push(queue, [0], ids=[late])).position == 1


async def test_ids_that_share_a_key_are_told_apart_by_their_text(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    now, tail = harness.mint()[:19], "8000-00000000abcd"
    one, two = f"{now}{tail}", f"{aged(harness, 1)[:19]}{tail}"
    assert id_key(one) == id_key(two)
    assert uuid7_ms(one) is not None
    await harness.push(queue, ["one"], ids=[one])
    found = only(await harness.try_push(queue, ["two"], ids=[two]))
    assert found.transaction_id == one, "the caller sees that it is another id"
    assert await harness.store.messages.find(partition.id, two) is None
    assert await harness.store.messages.find(partition.id, one) == 0


async def test_many_ids_are_checked_in_one_call(harness: Harness) -> None:
    queue = await harness.queue()
    ids = [harness.mint() if n % 2 else f"text {n}" for n in range(1000)]
    await harness.push(queue, list(range(1000)), ids=ids)
    known = {17: 990, 18: 4, 500: 501}
    again = [ids[known[n]] if n in known else f"new {n}" for n in range(1000)]
    result = await harness.try_push(queue, list(range(1000)), ids=again)
    assert where(result) == set(known.items())
