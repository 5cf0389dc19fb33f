"""How much a batcher gets done, and how quickly, as seen lately. Pure: the caller tells the time.

What is got done says more of what can be than the cost of a single item does, which is lost in the noise of a busy
machine; but it says so only of a batcher that has enough to do."""

from __future__ import annotations

WINDOW_SECONDS = 0.5
SINK = 0.1
"""A window in which less was done lowers the rate by this share of the difference; one in which more was, raises it
at once."""
RISE = 1.05
"""By how much the shortest flush is taken to be longer with each one that is."""
FIXED_SECONDS_MAX = 0.05
"""No more than this of a flush is taken for what every flush takes: when all are large, the shortest is large too, and
the next must not be larger for that."""
GAP_SECONDS = 0.05
"""After a longer pause a new window begins."""


class Pace:
    def __init__(self) -> None:
        self._began_at: float | None = None
        self._ended_at = 0.0
        self._items = 0
        self.rate = 0.0
        """Items a second; 0 until it is known."""
        self.shortest = 0.0
        """What a flush takes at least, in seconds."""

    def saw(self, items: int, began_at: float, ended_at: float) -> None:
        """A flush of so many items, in the order of their ends."""
        seconds = ended_at - began_at
        self.shortest = min(seconds, self.shortest * RISE) if self.shortest else seconds
        paused = began_at - self._ended_at > GAP_SECONDS
        self._ended_at = ended_at
        if self._began_at is None or paused:
            self._began_at, self._items = began_at, 0
        self._items += items
        passed = ended_at - self._began_at
        if passed >= WINDOW_SECONDS:
            found = self._items / passed
            self.rate += (found - self.rate) * (1.0 if found > self.rate else SINK)
            self._began_at, self._items = ended_at, 0

    def wait_seconds(self, items: int) -> float | None:
        """How long so many items take beside what every flush does; None until that is known."""
        return max(0.0, items / self.rate - min(self.shortest, FIXED_SECONDS_MAX)) if self.rate else None
