"""Floors: where the scans of ready lanes begin in the index."""

from __future__ import annotations

import time

import msgspec

from fairlane.store.postgres.connection import MINUS_INFINITY

_FLOOR_MARGIN = 250_000
"""Margin below the floor, because a push commits some time after it takes its time."""
_FULL_SCAN_SHARE = 50
_FULL_SCAN_SECONDS_MAX = 10.0
_SAMPLE = 8
"""Interval of scans that begin at the floor without need, to measure the savings."""
_SLOWEST_AGAIN = 0.005
"""Largest cost of repeating a scan from the floor that found too little."""
_NEW = 0.25
"""Weight of the latest scan in the average."""


class _Floor(msgspec.Struct):
    """The floor of one group."""

    at: int = MINUS_INFINITY
    full_at: float = 0.0
    full_took: float = 0.0
    took: float = 0.0
    """Average seconds of a full scan, and of one from the floor."""
    scans: int = 0

    @property
    def saves(self) -> float:
        """Return the seconds that the floor saves."""
        return max(0.0, self.full_took - self.took)


class ScanFloors:
    """Floors: the positions in the index where the scans of ready lanes begin, by group.

    A claim and an ack each leave a dead entry at the old end of the index. PostgreSQL soon skips them, unless a
    transaction stays open elsewhere: then they accumulate, and every scan reads them all. So scans begin at the
    smallest live entry seen. Full scans are made as often as their extra cost allows.
    """

    def __init__(self) -> None:
        self._floors: dict[int, _Floor] = {}

    def start_of_scan(self, key: int) -> int:
        floor = self._floors.get(key)
        if floor is None:
            return MINUS_INFINITY
        floor.scans += 1
        return floor.at if floor.scans % _SAMPLE == 0 or time.monotonic() < floor.full_at else MINUS_INFINITY

    def should_rescan(self, key: int, began: int) -> bool:
        """Return True if a scan from `began` that found too little should be repeated from the beginning."""
        return began != MINUS_INFINITY and self._floors[key].saves < _SLOWEST_AGAIN

    def record_scan(self, key: int, began: int, at: int, took: float) -> None:
        if len(self._floors) > 10_000:
            self._floors.clear()
        floor = self._floors.setdefault(key, _Floor())
        if began == MINUS_INFINITY:
            floor.full_took += (took - floor.full_took) * _NEW
            rest = min(_FULL_SCAN_SECONDS_MAX, floor.saves * _FULL_SCAN_SHARE) if floor.took else 0.0
            floor.full_at = time.monotonic() + rest
        else:
            floor.took += (took - floor.took) * (_NEW if floor.took else 1.0)
        floor.at = at - _FLOOR_MARGIN
