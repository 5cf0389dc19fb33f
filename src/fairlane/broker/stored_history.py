"""The history in the store, as columns of points: one point per minute, or per several minutes of a long range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fairlane.model.history import EVERYTHING, KEEP_MINUTES, MinuteSample, Subject
from fairlane.model.moment import Moment
from fairlane.store.families.history import Series
from fairlane.wire.monitoring import History

_WIDTHS: Final = ((24 * 60, 1), (7 * 24 * 60, 10), (KEEP_MINUTES, 60))
"""(longest range, width of a point), in minutes."""
_MINUTE: Final = 60_000_000
_EVENTS: Final = ("pushed", "popped", "acked", "failed", "dead")
LATENCIES: Final = ("push_p50_ms", "push_p99_ms", "pop_p50_ms", "pop_p99_ms", "ack_p50_ms", "ack_p99_ms")


class _Point:
    """The minutes of one point together: sums of the events, and the maximum of everything else."""

    def __init__(self) -> None:
        self.known = False
        self.events = dict.fromkeys(_EVENTS, 0)
        self.depth: int | None = None
        self.oldest_ms: int | None = None
        self.lag: int | None = None
        self.latencies_us: list[int | None] = [None] * len(LATENCIES)
        self.times = MinuteSample()
        """Pops that returned messages, and the time in the queue of these."""

    def add(self, ran: MinuteSample, samples: Sequence[MinuteSample], group: MinuteSample | None) -> None:
        """Add a minute. A queue without a sample of its own had no messages."""
        self.known = True
        for name in _EVENTS:
            self.events[name] += sum([getattr(one, name) for one in samples])
        if ran.depth is not None:
            self.depth = max(self.depth or 0, sum([one.depth or 0 for one in samples]))
            self.lag = max(self.lag or 0, (group.depth or 0) if group else 0)
        self.oldest_ms = _largest([self.oldest_ms, *[one.oldest_ms for one in samples]])
        for one in samples:
            self.times.add(MinuteSample(reads=one.reads, wait_ms=one.wait_ms, wait_max_ms=one.wait_max_ms))
            if one.latencies_us:
                self.latencies_us = list(map(_largest, zip(self.latencies_us, one.latencies_us, strict=True)))


def time_range(minutes: int, now: int) -> tuple[range, int]:
    """Return the first minute of each point, and the width of a point in minutes. The current minute is not over."""
    width = next(width for longest, width in _WIDTHS if minutes <= longest)
    until = now // _MINUTE
    until -= until % width
    return range(until - -(-minutes // width) * width, until, width), width


def answer(
    of: tuple[str | None, str | None],
    times: tuple[range, int],
    found: Mapping[Subject, Series],
    subjects: Sequence[Subject],
    group: Subject | None,
) -> History:
    """Return the history of a queue and a group, by name, from the samples of these subjects."""
    starts, width = times
    points = [_Point() for _ in starts]
    series = [found[subject] for subject in subjects if subject in found]
    lags: Series = {} if group is None else found.get(group, {})
    for minute, ran in found.get(EVERYTHING, {}).items():
        samples = [one[minute] for one in series if minute in one]
        points[(minute - starts.start) // width].add(ran, samples, lags.get(minute))
    seconds = width * 60
    columns: dict[str, Any] = {
        name: [round(one.events[name] / seconds, 3) if one.known else None for one in points] for name in _EVENTS
    }
    for index, name in enumerate(LATENCIES):
        columns[name] = [None if (us := one.latencies_us[index]) is None else us / 1000 for one in points]
    return History(
        queue=of[0],
        group=of[1],
        step_seconds=seconds,
        since=Moment(starts.start * _MINUTE),
        depth=[one.depth for one in points],
        oldest_seconds=[None if one.oldest_ms is None else one.oldest_ms / 1000 for one in points],
        lag=[None if group is None else one.lag for one in points],
        wait_mean_ms=[round(one.times.wait_ms / one.times.reads, 1) if one.times.reads else None for one in points],
        wait_max_ms=[float(one.times.wait_max_ms) if one.times.reads else None for one in points],
        **columns,
    )


def _largest(values: Iterable[int | None]) -> int | None:
    return max((one for one in values if one is not None), default=None)
