"""Counters of queues: each has its own, up to a limit, and none ever falls."""

from __future__ import annotations

import pytest

from fairlane import queue_counters
from fairlane.counts import QueueCounts
from fairlane.queue_counters import QueueCounters, QueueTotals, TimesInQueue

NOTHING = QueueCounts()


def pushed(counters: QueueCounters) -> tuple[dict[int, int], int]:
    queues, other = counters.snapshot({}, NOTHING)
    return {id: one.pushed for id, one in queues.items()}, other.pushed


def test_queues_beyond_the_limit_are_counted_together() -> None:
    counters = QueueCounters(2)
    counters.fold({1: QueueCounts(pushed=1), 2: QueueCounts(pushed=2), 3: QueueCounts(pushed=3)})
    counters.fold({3: QueueCounts(pushed=30), 4: QueueCounts(pushed=4), 1: QueueCounts(pushed=10)})
    assert pushed(counters) == ({1: 11, 2: 2}, 37)


def test_the_current_bin_counts_and_is_counted_once() -> None:
    counters, current = QueueCounters(1), {1: QueueCounts(acks=5), 2: QueueCounts(acks=7)}
    for _ in range(2):
        queues, other = counters.snapshot(current, QueueCounts(acks=100))
        assert (queues[1].acked, other.acked) == (5, 107)
    counters.fold(current)
    queues, other = counters.snapshot({}, QueueCounts(acks=100))
    assert (queues[1].acked, other.acked) == (5, 107)


def test_an_idle_queue_gives_up_its_place_and_an_active_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("fairlane.queue_counters.time.monotonic", lambda: now)
    counters = QueueCounters(2)
    counters.fold({1: QueueCounts(pushed=1), 2: QueueCounts(pushed=1)})
    now = queue_counters.IDLE_SECONDS
    counters.fold({1: QueueCounts(pushed=1)})
    now += 1
    counters.fold({3: QueueCounts(pushed=1)})
    assert pushed(counters) == ({1: 2, 3: 1}, 0)
    counters.fold({4: QueueCounts(pushed=1)})
    assert pushed(counters) == ({1: 2, 3: 1}, 1)


def test_without_room_for_any_queue_all_are_counted_together() -> None:
    counters = QueueCounters(0)
    counters.fold({1: QueueCounts(pushed=1, ages={10: 1})})
    assert pushed(counters) == ({}, 1)
    assert counters.snapshot({}, NOTHING)[1].times_in_queue.count == 1


def test_a_histogram_counts_everything_below_each_bound() -> None:
    waits = TimesInQueue()
    waits.record({0: 2, 1: 1, 5: 1, 20: 1}, 1e9)
    found = dict(waits.histogram())
    assert list(found) == sorted(found)
    assert (found[0.001], found[0.004], found[1.024], max(found.values()), waits.count) == (2, 3, 4, 4, 5)


def test_totals_are_added_field_by_field() -> None:
    one, other = QueueTotals(pushed=1, expired=2), QueueTotals(pushed=10, acked=5)
    other.times_in_queue.record({4: 1}, 0.1)
    one.add(other)
    assert (one.pushed, one.acked, one.expired, one.times_in_queue.count) == (11, 5, 2, 1)
