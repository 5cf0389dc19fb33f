"""How fast something drains, as far as it was seen. Pure: the caller tells the time."""

from __future__ import annotations

from math import exp

from fairlane.store.operations import LANES_MAX

MEMORY_SECONDS = 10.0
"""What was seen counts for about this long."""
GAP_SECONDS = 5.0
"""A pause longer than this says nothing of the draining: nobody was there to see it."""

CLAIM_LANES_MAX = 400
CLAIM_OPERATIONS_MAX = 5_000
CLAIM_BYTES_MAX = 32 * 1024 * 1024


class DrainRate:
    """Fed with how many left, and when; says how many leave a second while any do."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._count = 0.0
        self._seconds = 0.0

    def resume(self, now: float) -> None:
        """Nothing was there to drain until now."""
        self._at = now

    def left(self, count: int, now: float) -> None:
        if self._at is not None and now > self._at:
            passed = min(now - self._at, GAP_SECONDS)
            fade = exp(-passed / MEMORY_SECONDS)
            self._count = self._count * fade + count
            self._seconds = self._seconds * fade + passed
        self._at = now if self._at is None else max(self._at, now)

    @property
    def rate(self) -> float:
        """A second; 0 while it is not known."""
        return self._count / self._seconds if self._seconds > 0.001 else 0.0


class DepthTrend:
    """The drain rate of a queue, out of its depth at some moments and how many came in between."""

    def __init__(self) -> None:
        self._drain = DrainRate()
        self._depth: int | None = None

    def saw(self, depth: int, came: int, now: float) -> None:
        """The queue holds `depth`, after `came` more were stored in it since the last look."""
        if self._depth is not None:
            self._drain.left(max(0, self._depth + came - depth), now)
        else:
            self._drain.left(0, now)
        self._depth = depth

    def seconds_until(self, room: int) -> float | None:
        """How long it takes to make so much room; None while that is not known."""
        return room / self._drain.rate if self._drain.rate > 0 else None


def room_beside(lanes: int, operations: int, size: int) -> int:
    """How many more lanes may be claimed beside a first claim, which found so many lanes with so many operations of so
    many bytes in all. A flood leaves little in each of many lanes, and while a lane waits all that comes for it must
    wait too; but what is claimed is held in memory and applied in one transaction."""
    if lanes < LANES_MAX:  # these were all
        return 0
    by_count = CLAIM_OPERATIONS_MAX * lanes // max(1, operations)
    by_size = CLAIM_BYTES_MAX * lanes // max(1, size)
    return max(0, min(CLAIM_LANES_MAX, by_count, by_size) - lanes)
