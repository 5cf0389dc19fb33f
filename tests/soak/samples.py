"""Samples of a broker and its store during a soak, and the growth that they show."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.usage import family_of

MEBIBYTE = 1024 * 1024
RSS_FACTOR_MAX = 1.25
RSS_BYTES_MAX = 16 * MEBIBYTE
"""Growth of the resident memory that is not called a leak: allocators need some time to settle."""
DESCRIPTORS_MAX = 10
STORE_FACTOR_MAX = 1.5
STORE_BYTES_MAX = 32 * MEBIBYTE
"""Growth of the store that is not called a leak: autovacuum and checkpoints run at any time."""


class Sample(NamedTuple):
    seconds: float
    """Time since the start of the soak."""
    rss_bytes: int
    """Resident memory of the processes of the broker."""
    descriptors: int
    store_bytes: int
    cpu_share: float
    """Share of all cores that the broker and its store used since the sample before."""
    pushed: int
    median_seconds: float
    """Median of the time from push to handler since the sample before."""
    p99_seconds: float


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants."""
    return sum(_resident_bytes(one) for one in family_of(pid))


def descriptors(pid: int) -> int:
    """Return the number of open file descriptors of a process and its descendants."""
    return sum(len(os.listdir(f"/proc/{one}/fd")) for one in family_of(pid) if Path(f"/proc/{one}/fd").exists())


def _resident_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def halves(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the second and the last quarter of the samples. The first one warms up."""
    quarter = max(1, len(samples) // 4)
    return samples[quarter : 2 * quarter] or samples[:1], samples[-quarter:]


def growth(samples: Sequence[Sample], value: Callable[[Sample], float]) -> tuple[float, float]:
    """Return the medians of a value in the second and in the last quarter of the soak."""
    early, late = halves(samples)
    return median(map(value, early)), median(map(value, late))


def leaks(samples: Sequence[Sample]) -> list[str]:
    """Return what grew by more than its bound."""
    found = []
    early, late = growth(samples, lambda one: one.rss_bytes)
    if late > early * RSS_FACTOR_MAX + RSS_BYTES_MAX:
        found.append(f"memory grew from {early / MEBIBYTE:.0f} to {late / MEBIBYTE:.0f} MiB")
    early, late = growth(samples, lambda one: one.descriptors)
    if late > early + DESCRIPTORS_MAX:
        found.append(f"open descriptors grew from {early:.0f} to {late:.0f}")
    early, late = growth(samples, lambda one: one.store_bytes)
    if late > early * STORE_FACTOR_MAX + STORE_BYTES_MAX:
        found.append(f"the store grew from {early / MEBIBYTE:.0f} to {late / MEBIBYTE:.0f} MiB")
    return found
