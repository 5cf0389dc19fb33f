"""Time series: minutes of telemetry put together to buckets, as charts want them."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.telemetry import KINDS, Minute, QueueCounts, Tally

_WIDTHS = ((60, 1), (6 * 60, 5), (24 * 60, 15), (7 * 24 * 60, 60))
"""(longest range, width of a bucket), in minutes."""
_WIDEST = 360


class Span(NamedTuple):
    """A range of time in microseconds, and how wide its buckets are."""

    since: int
    until: int

    @property
    def width_minutes(self) -> int:
        minutes = (self.until - self.since) / 60e6
        return next((width for longest, width in _WIDTHS if minutes <= longest), _WIDEST)


class Bucket:
    """A bucket of telemetry: what happened from `at` on, for `seconds`."""

    __slots__ = ("at", "cpu_seconds", "queues", "resident_bytes", "seconds", "verbs")

    def __init__(self, at: int) -> None:
        self.at = at
        self.seconds = 0
        self.verbs = dict.fromkeys(KINDS, Tally(0, 0, 0))
        self.queues: dict[int, QueueCounts] = {}
        self.cpu_seconds = (0.0, 0.0)
        self.resident_bytes = 0

    def add(self, minute: Minute) -> None:
        self.seconds += 60
        for kind, tally in minute.verbs.items():
            sums = self.verbs[kind]
            self.verbs[kind] = Tally(sums.calls + tally.calls, sums.items + tally.items, sums.errors + tally.errors)
        for queue_id, counts in minute.queues.items():
            add_counts(self.queues.setdefault(queue_id, QueueCounts()), counts)
        self.cpu_seconds = minute.cpu_seconds
        self.resident_bytes = minute.resident_bytes

    def total(self) -> QueueCounts:
        total = QueueCounts()
        for counts in self.queues.values():
            add_counts(total, counts)
        return total


def add_counts(sums: QueueCounts, more: QueueCounts) -> None:
    for name in QueueCounts.__slots__:
        if name != "lag_max_ms":
            setattr(sums, name, getattr(sums, name) + getattr(more, name))
    sums.lag_max_ms = max(sums.lag_max_ms, more.lag_max_ms)


def buckets(minutes: list[Minute], span: Span) -> list[Bucket]:
    """Oldest first; times in which this broker did not run have none."""
    width = span.width_minutes * 60_000_000
    found: dict[int, Bucket] = {}
    for minute in minutes:
        at = minute.at - minute.at % width
        found.setdefault(at, Bucket(at)).add(minute)
    return [found[at] for at in sorted(found)]


def mean_lag_ms(counts: QueueCounts) -> float:
    full = counts.pops - counts.pops_empty
    return counts.lag_ms / full if full else 0.0
