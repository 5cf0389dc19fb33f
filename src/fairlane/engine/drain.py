"""How fast a queue drains, and how much of what waits is claimed at once. Pure: the caller tells the time."""

from __future__ import annotations

from fairlane.engine.rate import Rate
from fairlane.store.operations import LANES_MAX

CLAIM_LANES_MAX = 400
CLAIM_OPERATIONS_MAX = 5_000
CLAIM_BYTES_MAX = 32 * 1024 * 1024


class DepthTrend:
    """The drain rate of a queue, out of its depth at some moments and how many came in between."""

    def __init__(self) -> None:
        self._drain = Rate()
        self._depth: int | None = None

    def saw(self, depth: int, came: int, now: float) -> None:
        """The queue holds `depth`, after `came` more were stored in it since the last look."""
        if self._depth is not None:
            self._drain.did(max(0, self._depth + came - depth), now)
        else:
            self._drain.did(0, now)
        self._depth = depth

    def seconds_until(self, room: int) -> float | None:
        """How long it takes to make so much room; None while that is not known."""
        return self._drain.seconds_for(room)


def room_beside(lanes: int, operations: int, size: int) -> int:
    """How many more lanes may be claimed beside a first claim, which found so many lanes with so many operations of so
    many bytes in all. A flood leaves little in each of many lanes, and while a lane waits all that comes for it must
    wait too; but what is claimed is held in memory and applied in one transaction."""
    if lanes < LANES_MAX:  # these were all
        return 0
    by_count = CLAIM_OPERATIONS_MAX * lanes // max(1, operations)
    by_size = CLAIM_BYTES_MAX * lanes // max(1, size)
    return max(0, min(CLAIM_LANES_MAX, by_count, by_size) - lanes)
