"""The history: samples by minute, added up over processes, packed by the hour, and forgotten after their time."""

from __future__ import annotations

import asyncio

from fairlane.model.history import EVERYTHING, MinuteSample, Subject, of_group, of_queue
from tests.conformance.harness import Harness

ZERO = 29_000_000 - 29_000_000 % 60
"""The first minute of an hour."""


async def read(harness: Harness, subject: Subject, *, since: int = ZERO, minutes: int = 180) -> dict[int, MinuteSample]:
    found = await harness.store.history.read([subject], since=since, until=since + minutes)
    return found.get(subject, {})


async def pack(harness: Harness, before: int, limit: int = 50) -> None:
    while await harness.store.history.pack(before, limit=limit):
        pass


def subject(harness: Harness) -> Subject:
    """One that no other test uses."""
    return of_queue(harness.token().int % 2**40)


async def test_what_two_processes_counted_is_added_up(harness: Harness) -> None:
    queue = subject(harness)
    await harness.store.history.add(1, {(queue, ZERO): MinuteSample(pushed=3, acked=1, latencies_us=[10, None])})
    await harness.store.history.add(2, {(queue, ZERO): MinuteSample(pushed=4, depth=7, latencies_us=[5, 900])})
    await harness.store.history.add(2, {(queue, ZERO + 1): MinuteSample(failed=1)})
    found = await read(harness, queue)
    assert found == {
        ZERO: MinuteSample(pushed=7, acked=1, depth=7, latencies_us=[10, 900]),
        ZERO + 1: MinuteSample(failed=1),
    }


async def test_times_in_the_queue_are_added_up_and_the_longest_is_kept(harness: Harness) -> None:
    queue = of_queue(2**40 + 77)
    await harness.store.history.add(1, {(queue, ZERO): MinuteSample(reads=2, wait_ms=30, wait_max_ms=20)})
    await harness.store.history.add(2, {(queue, ZERO): MinuteSample(reads=1, wait_ms=5, wait_max_ms=5)})
    assert await read(harness, queue) == {ZERO: MinuteSample(reads=3, wait_ms=35, wait_max_ms=20)}
    await harness.store.history.pack(ZERO + 60)
    assert await read(harness, queue) == {ZERO: MinuteSample(reads=3, wait_ms=35, wait_max_ms=20)}


async def test_a_repeated_call_changes_nothing(harness: Harness) -> None:
    queue = subject(harness)
    for _ in range(2):
        await harness.store.history.add(1, {(queue, ZERO): MinuteSample(pushed=3)})
    assert await read(harness, queue) == {ZERO: MinuteSample(pushed=3)}


async def test_queues_groups_and_everything_are_apart(harness: Harness) -> None:
    number = harness.token().int % 2**40
    queue, group = of_queue(number), of_group(number)
    await harness.store.history.add(1, {(queue, ZERO): MinuteSample(pushed=1), (group, ZERO): MinuteSample(depth=2)})
    assert await read(harness, queue) == {ZERO: MinuteSample(pushed=1)}
    assert await read(harness, group) == {ZERO: MinuteSample(depth=2)}
    found = await harness.store.history.read([queue, group, EVERYTHING], since=ZERO, until=ZERO + 1)
    assert {queue, group} <= found.keys()
    assert await harness.store.history.read([], since=ZERO, until=ZERO + 1) == {}


async def test_only_the_minutes_that_are_asked_for_are_told(harness: Harness) -> None:
    queue = subject(harness)
    await harness.store.history.add(1, {(queue, ZERO + minute): MinuteSample(pushed=minute) for minute in range(120)})
    for _ in range(2):
        found = await read(harness, queue, since=ZERO + 50, minutes=20)
        assert {minute - ZERO: one.pushed for minute, one in found.items()} == {at: at for at in range(50, 70)}
        await pack(harness, ZERO + 60)


async def test_packing_an_hour_keeps_every_sample(harness: Harness) -> None:
    some = [subject(harness) for _ in range(5)]
    samples = {
        (one, ZERO + minute): MinuteSample(pushed=minute, depth=number, oldest_ms=minute * 1000)
        for number, one in enumerate(some)
        for minute in range(0, 100, 7)
    }
    await harness.store.history.add(1, samples)
    before = [await read(harness, one) for one in some]
    await pack(harness, ZERO + 119, limit=2)
    assert [await read(harness, one) for one in some] == before
    await pack(harness, ZERO + 120, limit=2)
    assert [await read(harness, one) for one in some] == before


async def test_samples_that_come_after_their_hour_was_packed_are_added(harness: Harness) -> None:
    queue = subject(harness)
    await harness.store.history.add(
        1, {(queue, ZERO + 1): MinuteSample(pushed=1), (queue, ZERO + 2): MinuteSample(pushed=2)}
    )
    await pack(harness, ZERO + 60)
    await harness.store.history.add(2, {(queue, ZERO + 2): MinuteSample(pushed=20, dead=1)})
    expected = {ZERO + 1: MinuteSample(pushed=1), ZERO + 2: MinuteSample(pushed=22, dead=1)}
    assert await read(harness, queue) == expected
    await pack(harness, ZERO + 60)
    assert await read(harness, queue) == expected


async def test_two_brokers_may_pack_at_once(harness: Harness) -> None:
    second = await harness.open_second()
    some = [subject(harness) for _ in range(20)]
    await harness.store.history.add(
        1, {(one, ZERO + minute): MinuteSample(pushed=1) for one in some for minute in range(60)}
    )
    for _ in range(5):
        await asyncio.gather(*[store.history.pack(ZERO + 60, limit=5) for store in (harness.store, second)])
    for one in some:
        assert sum(sample.pushed for sample in (await read(harness, one)).values()) == 60


async def test_old_hours_are_forgotten(harness: Harness) -> None:
    queue = subject(harness)
    old = 60  # before all hours of other tests
    await harness.store.history.add(1, {(queue, old + minute): MinuteSample(pushed=1) for minute in (0, 60)})
    await pack(harness, old + 120)
    await harness.store.history.forget(old + 60)
    found = await harness.store.history.read([queue], since=0, until=old + 120)
    assert found == {queue: {old + 60: MinuteSample(pushed=1)}}


async def test_the_history_outlives_a_restart(harness: Harness) -> None:
    queue = subject(harness)
    await harness.store.history.add(
        1, {(queue, ZERO): MinuteSample(pushed=1), (queue, ZERO + 61): MinuteSample(pushed=2)}
    )
    await pack(harness, ZERO + 60)
    await harness.reopen()
    assert await read(harness, queue) == {ZERO: MinuteSample(pushed=1), ZERO + 61: MinuteSample(pushed=2)}
