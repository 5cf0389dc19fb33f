"""What a flush costs: a time that each takes, and a time for each item in it. Pure.

Only the second is a queue. A store far away takes long for every flush, however small: to send it less would not make
it faster, and measured by what it finishes it would look slower the less it is sent."""

from __future__ import annotations

FORGET = 0.95
"""What is left of a flush with each that comes after it."""
SPREAD = 0.05
"""Flushes whose sizes differ by less than this, of the mean, do not tell the two times apart."""


class FlushCost:
    """A straight line through the last flushes, by least squares."""

    def __init__(self) -> None:
        self._count = self._items = self._seconds = self._squares = self._products = 0.0
        self.item_seconds = 0.0
        """Of one more item; 0 until it is known."""

    def saw(self, items: int, seconds: float) -> None:
        self._count = self._count * FORGET + 1
        self._items = self._items * FORGET + items
        self._seconds = self._seconds * FORGET + seconds
        self._squares = self._squares * FORGET + items * items
        self._products = self._products * FORGET + items * seconds
        items_mean, seconds_mean = self._items / self._count, self._seconds / self._count
        spread = self._squares / self._count - items_mean * items_mean
        if spread > (SPREAD * items_mean) ** 2:
            together = self._products / self._count - items_mean * seconds_mean
            # No flush takes less than nothing, so that an item is no more than its share of one.
            self.item_seconds = min(max(0.0, together / spread), seconds_mean / items_mean)
