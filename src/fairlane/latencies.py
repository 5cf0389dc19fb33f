"""Latencies: counts of calls by duration, from which percentiles and histograms are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_STEPS: Final = 4  # buckets per doubling of the latency, so that a percentile is accurate within a fifth
_OCTAVES: Final = 40


class VerbStats(msgspec.Struct):
    """Counts of one verb: calls, items and latencies. Errors are not part of the latencies."""

    count: int = 0
    items: int = 0
    errors: int = 0
    seconds: float = 0.0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (_STEPS * _OCTAVES))

    def record(self, seconds: float, items: int) -> None:
        self.count += 1
        self.items += items
        self.seconds += seconds
        micros = int(seconds * 1e6)
        bits = micros.bit_length()
        self.buckets[(bits - 2) * _STEPS + (micros >> bits - 3 & 3) if bits > 2 else micros] += 1

    def mean_ms(self) -> float:
        return self.seconds / self.count * 1e3 if self.count else 0.0

    def percentile_ms(self, share: float) -> float:
        """Return the latency that `share` of the calls did not exceed, within the accuracy of the buckets."""
        return percentile(self.buckets, share) * 1e3

    def histogram(self, first: int = 5, upto: int = 25) -> Iterator[tuple[float, int]]:
        """Yield (seconds, number of calls that took at most this long), one per doubling. Default: 128 us to 67 s."""
        seen = sum(self.buckets[: first * _STEPS])
        for octave in range(first, upto):
            seen += sum(self.buckets[octave * _STEPS : (octave + 1) * _STEPS])
            yield upper_bound(octave * _STEPS + _STEPS - 1), seen


def percentile(buckets: Sequence[int], share: float) -> float:
    """Return the latency in seconds that `share` of the counted calls did not exceed. 0 if there are none."""
    wanted, seen = share * sum(buckets), 0
    for index, found in enumerate(buckets):
        seen += found
        if found and seen >= wanted:
            return upper_bound(index)
    return 0.0


def upper_bound(bucket: int) -> float:
    """Return the latency in seconds that all calls of a bucket stay below."""
    octave, step = divmod(bucket, _STEPS)
    return (bucket + 1 if octave == 0 else (_STEPS + step + 1) << octave - 1) / 1e6
