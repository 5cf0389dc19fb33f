"""Counters: buckets, percentiles, minutes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fairlane import telemetry
from fairlane.telemetry import BIN_QUEUES_MAX, Telemetry, VerbStats, upper_bound


def test_each_latency_falls_into_the_bucket_around_it() -> None:
    for micros in [*range(300), 1023, 1024, 1025, 10**5, 10**6, 3 * 10**9]:
        verb = VerbStats()
        verb.record(micros / 1e6 + 1e-10, 1)
        [bucket] = [index for index, count in enumerate(verb.buckets) if count]
        assert micros / 1e6 < upper_bound(bucket), micros
        if bucket:
            assert micros / 1e6 >= upper_bound(bucket - 1) - 1e-12, micros


def test_bounds_rise_and_are_at_most_a_quarter_apart() -> None:
    bounds = [upper_bound(bucket) for bucket in range(120)]
    assert bounds == sorted(set(bounds))
    assert all(high <= low * 1.25 + 1e-9 for low, high in pairwise(bounds[8:]))


def test_percentiles_are_as_near_as_the_buckets_tell() -> None:
    verb = VerbStats()
    for millisecond in range(1, 1001):
        verb.record(millisecond / 1000, 2)
    assert (verb.count, verb.items) == (1000, 2000)
    assert verb.mean_ms() == pytest.approx(500.5)
    assert 500 <= verb.percentile_ms(0.5) <= 500 * 1.25
    assert 990 <= verb.percentile_ms(0.99) <= 990 * 1.25
    assert VerbStats().percentile_ms(0.99) == 0.0


def test_a_histogram_counts_everything_below_each_bound() -> None:
    verb = VerbStats()
    for seconds in (0.000_001, 0.0001, 0.01, 1.0, 200.0):
        verb.record(seconds, 1)
    found = dict(verb.histogram())
    assert list(found) == sorted(found)
    assert found[0.000128] == 2
    assert max(found.values()) == 4, "what took longer than the last bound is only in the count"


def test_minutes_hold_what_happened_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, wall = 1000.0, 1_800_000_000_000_000
    monkeypatch.setattr("fairlane.telemetry.time.perf_counter", lambda: now)
    monkeypatch.setattr(telemetry, "wall_clock", lambda: wall + int((now - 1000) * 1e6))
    counted = Telemetry()
    counted.record(counted.push, now, 5)
    counted.queue(7).pushed += 5
    now += 61
    counted.record(counted.push, now, 3)
    counted.push.errors += 1
    now += 300
    counted.queue(7).pushed += 1
    minutes = counted.minutes(0, 2**62)
    assert [(minute.at - wall) // 60_000_000 for minute in minutes] == [0, 1, 6]
    assert [minute.verbs["push"] for minute in minutes] == [(1, 5, 0), (1, 3, 1), (0, 0, 0)]
    assert [minute.queues[7].pushed if 7 in minute.queues else 0 for minute in minutes] == [5, 0, 1]
    assert [minute.at for minute in counted.minutes(minutes[1].at, minutes[1].at)] == [minutes[1].at]


def test_bins_have_the_depth_of_queues_without_activity(monkeypatch: pytest.MonkeyPatch) -> None:
    now, wall = 1000.0, 1_800_000_000_000_000
    monkeypatch.setattr("fairlane.telemetry.time.perf_counter", lambda: now)
    monkeypatch.setattr(telemetry, "wall_clock", lambda: wall + int((now - 1000) * 1e6))
    counted = Telemetry()
    counted.queue(7).pushed += 3
    now += telemetry.BIN_SECONDS
    counted.record_depths({7: 3, 8: 0}, whole=True)
    now += telemetry.BIN_SECONDS
    assert [one.depths for one in counted.bins()] == [{}, {7: 3, 8: 0}]
    assert [one for _, one in counted.active_queues(0).items()] == [wall]


def test_queues_beyond_a_number_share_one_count() -> None:
    counted = Telemetry()
    for queue_id in range(BIN_QUEUES_MAX + 50):
        counted.queue(queue_id).pushed += 1
    [minute] = counted.minutes(0, 2**62)
    assert len(minute.queues) == BIN_QUEUES_MAX
