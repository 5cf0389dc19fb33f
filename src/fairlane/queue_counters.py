"""Counters of each queue since the process started, for metrics. The number of queues is limited."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import msgspec

SERIES_MAX: Final = 1000
IDLE_SECONDS: Final = 3600.0
"""A queue without activity for this long gives up its counters if another one needs the room."""
_BUCKETS: Final = 14
"""Buckets of times, each four times as long as the one before: 1 ms to 19 hours."""


class Counted(Protocol):
    """Counts of one queue in one bin, by event."""

    pushed: int
    popped: int
    acks: int
    failed: int
    dead: int
    expired: int
    lag_ms: float
    ages: dict[int, int]


class TimesInQueue(msgspec.Struct, array_like=True):
    """A histogram of the age of the first message of each pop."""

    count: int = 0
    seconds: float = 0.0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * _BUCKETS)

    def record(self, ages: Mapping[int, int], seconds: float) -> None:
        """Add pops by the age of their first message (`QueueCounts.ages`), which was `seconds` in total."""
        self.seconds += seconds
        for age, pops in ages.items():
            self.count += pops
            if age < _BUCKETS:
                self.buckets[age] += pops

    def histogram(self, first: int = 0, upto: int = _BUCKETS) -> Iterator[tuple[float, int]]:
        """Yield (seconds, number of pops whose message was at most this old)."""
        seen = sum(self.buckets[:first])
        for bucket in range(first, upto):
            seen += self.buckets[bucket]
            yield 4**bucket / 1000, seen

    def add(self, more: TimesInQueue) -> None:
        self.count += more.count
        self.seconds += more.seconds
        self.buckets = [one + other for one, other in zip(self.buckets, more.buckets, strict=True)]


class QueueTotals(msgspec.Struct, array_like=True):
    """Messages of one queue by event, and their time in the queue."""

    pushed: int = 0
    popped: int = 0
    acked: int = 0
    failed: int = 0
    dead_lettered: int = 0
    expired: int = 0
    times_in_queue: TimesInQueue = msgspec.field(default_factory=TimesInQueue)

    def count(self, more: Counted) -> None:
        """Add the counts of a bin."""
        self.pushed += more.pushed
        self.popped += more.popped
        self.acked += more.acks
        self.failed += more.failed
        self.dead_lettered += more.dead
        self.expired += more.expired
        self.times_in_queue.record(more.ages, more.lag_ms / 1000)

    def add(self, more: QueueTotals) -> None:
        for name in QueueTotals.__struct_fields__[:-1]:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.times_in_queue.add(more.times_in_queue)

    def copy(self) -> QueueTotals:
        copied = QueueTotals()
        copied.add(self)
        return copied


class QueueCounters:
    """The totals of the first `series_max` active queues, and of all others together.

    A queue that joins later counts from then on, so that no counter ever falls.
    """

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self.series_max = series_max
        self._totals: dict[int, QueueTotals] = {}
        self._active_at: dict[int, float] = {}
        self._other = QueueTotals()

    def of(self, queue_id: int) -> QueueTotals:
        """Return the totals of a queue, or the shared totals if all series are in use."""
        return self._totals.get(queue_id) or self._add(queue_id)

    def fold(self, counts: Mapping[int, Counted]) -> None:
        """Add the counts of a bin that is over."""
        now = time.monotonic()
        for queue_id, one in counts.items():
            self.of(queue_id).count(one)
            if self._active_at.pop(queue_id, None) is not None:
                self._active_at[queue_id] = now  # moved to the end: the first one is idle the longest

    def snapshot(self, counts: Mapping[int, Counted], beyond: Counted) -> tuple[dict[int, QueueTotals], QueueTotals]:
        """Return copies of the totals by queue and of all others, with the counts of the current bin.

        `beyond` has the queues that bins do not count one by one.
        """
        for queue_id in counts:
            self.of(queue_id)
        totals, other = {id: one.copy() for id, one in self._totals.items()}, self._other.copy()
        for queue_id, one in counts.items():
            totals.get(queue_id, other).count(one)
        other.count(beyond)
        return totals, other

    def _add(self, queue_id: int) -> QueueTotals:
        now = time.monotonic()
        if len(self._totals) >= self.series_max:
            oldest = next(iter(self._active_at), None)
            if oldest is None or now - self._active_at[oldest] <= IDLE_SECONDS:
                return self._other
            del self._totals[oldest], self._active_at[oldest]
        self._active_at[queue_id] = now
        made = self._totals[queue_id] = QueueTotals()
        return made
