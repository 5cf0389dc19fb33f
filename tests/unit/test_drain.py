"""The measured drain rate, and the estimate given to producers, with a manual clock."""

from __future__ import annotations

import pytest

from fairlane.broker.capacity import QueueCapacity
from fairlane.broker.deferral.drain import CLAIM_BACKLOGS_MAX, CLAIM_BYTES_MAX, CLAIM_OPERATIONS_MAX, further_backlogs
from fairlane.runtime.batch_size import AIM_SECONDS, BatchSize
from fairlane.runtime.rate import MEMORY_SECONDS, RETRY_SECONDS, RETRY_SECONDS_MAX, RETRY_SECONDS_MIN, RateEstimate
from fairlane.store.contract.operations import BACKLOGS_MAX
from fairlane.store.contract.values import Full


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_rate_is_not_known_before_something_was_seen() -> None:
    assert RateEstimate().per_second == 0


def test_a_rate_is_what_left_a_second_and_follows_changes() -> None:
    drain = RateEstimate()
    drain.resume(0.0)
    for second in range(1, 11):
        drain.record(50, float(second))
    assert drain.per_second == pytest.approx(50)
    for second in range(11, 60):
        drain.record(10, float(second))
    assert drain.per_second == pytest.approx(10, rel=0.1)


def test_time_in_which_nothing_was_there_does_not_count() -> None:
    drain = RateEstimate()
    drain.resume(0.0)
    drain.record(100, 1.0)
    drain.resume(1000.0)
    drain.record(100, 1001.0)
    assert drain.per_second == pytest.approx(100)


def test_what_was_seen_long_ago_is_not_known() -> None:
    drain = RateEstimate()
    drain.resume(0.0)
    drain.record(100, 1.0)
    drain.resume(1.0 + MEMORY_SECONDS / 2)
    assert drain.seconds_for(50) == pytest.approx(0.5)
    drain.resume(20.0 + MEMORY_SECONDS)
    assert drain.seconds_for(50) is None


def test_a_full_queue_tells_when_there_will_be_room() -> None:
    clock = Clock()
    capacity = QueueCapacity(clock)
    assert capacity.refusal(1, Full(100, 100), 1).retry_after == RETRY_SECONDS
    for _ in range(10):  # consumers finish 20 a second, and producers fill it up again
        clock.at += 1
        capacity.observe(1, 100, came=20)
    refusal = capacity.refusal(1, Full(100, 100), 60)
    assert refusal.retry_after == pytest.approx(3, rel=0.05)
    assert (refusal.depth, refusal.capacity, refusal.code) == (100, 100, "QUEUE_FULL")
    assert capacity.refusal(1, Full(100, 100), 1).retry_after == RETRY_SECONDS_MIN
    assert capacity.refusal(1, Full(100, 100), 1_000_000).retry_after == RETRY_SECONDS_MAX
    assert capacity.refusal(2, Full(100, 100), 60).retry_after == RETRY_SECONDS, "each queue drains for itself"


def test_a_claim_that_is_full_of_little_has_room_for_many_lanes_beside_it() -> None:
    assert further_backlogs(BACKLOGS_MAX, BACKLOGS_MAX, 100 * BACKLOGS_MAX) == CLAIM_BACKLOGS_MAX - BACKLOGS_MAX
    assert further_backlogs(BACKLOGS_MAX - 1, BACKLOGS_MAX - 1, 100) == 0, "there are no more"


def test_a_claim_that_holds_much_has_no_room_beside_it() -> None:
    assert further_backlogs(BACKLOGS_MAX, BACKLOGS_MAX, CLAIM_BYTES_MAX) == 0
    assert further_backlogs(BACKLOGS_MAX, BACKLOGS_MAX, CLAIM_BYTES_MAX // 2) == BACKLOGS_MAX
    assert further_backlogs(BACKLOGS_MAX, CLAIM_OPERATIONS_MAX, 1) == 0


def test_a_batch_that_was_slow_makes_the_next_as_large_as_is_done_in_time() -> None:
    size = BatchSize(1_000, 1_000_000)
    assert size.bytes == 2_000, "nothing is known of the speed"
    for _ in range(10):
        size.record(size.bytes, 0.1)
    assert size.bytes == 1_000_000
    size.record(100_000, 25.0)
    assert size.bytes == 4_000 * AIM_SECONDS
    size.record(2_000, 0.5)
    assert size.bytes == 2_000, "neither slow nor fast"
    size.record(2_000, 0.1)
    assert size.bytes == 4_000
    for _ in range(20):
        size.record(size.bytes, 0.1)
    assert size.bytes == 1_000_000


def test_small_batches_that_are_fast_over_a_slow_link_make_no_large_one() -> None:
    size = BatchSize(1_000, 1_000_000)
    for _ in range(20):
        size.record(500, 0.125)
    assert size.bytes == 4_000, "what this link takes in a second"
    for _ in range(20):
        size.record(500, 0.0005)
    assert size.bytes == 1_000_000


def test_batches_stay_large_if_small_ones_take_as_long() -> None:
    size = BatchSize(1_000, 1_000_000)
    for _ in range(10):
        size.record(size.bytes, 0.1)
    size.record(800_000, 4.0)
    assert size.bytes == 100_000
    size.record(100_000, 3.9)
    assert size.bytes == 800_000


def test_a_batch_that_failed_makes_the_next_a_quarter_of_it() -> None:
    size = BatchSize(2_000, 1_000_000)
    for _ in range(3):
        size.record(size.bytes, 0.1)
    size.record_failure(10_000)
    assert size.bytes == 2_500
    size.record_failure(2_500)
    assert size.bytes == 2_000
