"""How much is got done lately: windows of a busy batcher, and what every flush takes."""

from __future__ import annotations

import pytest

from fairlane.engine.pace import Pace


def busy(pace: Pace, start: float, *, flushes: int, items: int, seconds: float) -> float:
    for _ in range(flushes):
        pace.saw(items, start, start + seconds)
        start += seconds
    return start


def test_the_rate_is_what_a_busy_batcher_finished() -> None:
    pace = Pace()
    assert pace.wait_seconds(1) is None
    busy(pace, 0.0, flushes=20, items=100, seconds=0.1)
    assert pace.rate == pytest.approx(1_000)
    assert pace.wait_seconds(200) == pytest.approx(0.15), "of its 0.2 s every flush takes 0.05 or more"
    assert pace.wait_seconds(1) == 0.0


def test_large_flushes_do_not_make_room_for_larger_ones() -> None:
    pace = Pace()
    busy(pace, 0.0, flushes=20, items=1_000, seconds=1.0)
    assert pace.wait_seconds(1_000) == pytest.approx(0.95)


def test_the_rate_rises_at_once_and_sinks_slowly() -> None:
    pace = Pace()
    at = busy(pace, 0.0, flushes=10, items=100, seconds=0.1)
    at = busy(pace, at, flushes=10, items=50, seconds=0.1)
    assert 800 < pace.rate < 950
    busy(pace, at, flushes=10, items=200, seconds=0.1)
    assert pace.rate == pytest.approx(2_000)


def test_a_pause_says_nothing() -> None:
    pace = Pace()
    at = busy(pace, 0.0, flushes=10, items=100, seconds=0.1)
    for _ in range(100):
        at = busy(pace, at + 1.0, flushes=1, items=1, seconds=0.001)
    assert pace.rate == pytest.approx(1_000)


def test_the_shortest_flush_is_forgotten_when_all_take_longer() -> None:
    pace = Pace()
    at = busy(pace, 0.0, flushes=1, items=1, seconds=0.001)
    busy(pace, at, flushes=200, items=100, seconds=0.1)
    assert pace.shortest == pytest.approx(0.1)
