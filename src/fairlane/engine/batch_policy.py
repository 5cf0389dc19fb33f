"""The batch policy: how much goes into the next flush. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Weight(NamedTuple):
    items: int
    bytes: int = 0


class BatchPolicy(NamedTuple):
    """A flush fires at once while one of `flushes` is free; when all are busy, what arrives waits and goes together.

    There is no window: an idle engine adds no latency, and a busy one batches by itself, up to these bounds.
    """

    flushes: int = 1
    requests_max: int = 500
    items_max: int = 10_000
    bytes_max: int = 8 * 1024 * 1024
    share_items: int = 500
    """From this many items on, what waits is shared out over the free flushes: while the store works on one, the
    next is made ready. Fewer items gain more from travelling together."""
    seconds_max: float = 0.5
    """A flush takes about so long at most, by what was done lately: a slow store gets less at once."""

    def may_fire(self, running: int) -> bool:
        return running < self.flushes

    def take(self, waiting: Iterable[Weight], *, items: int, running: int, rate: float = 0.0) -> int:
        """How many from the front make the next flush, of `items` that wait in all, beside `running` other flushes.
        `rate` is how many are done a second, 0 while that is not known.

        The first goes always: larger than the bounds, it is a flush of its own.
        """
        free = max(1, self.flushes - running)
        soon = int(rate * self.seconds_max) // self.flushes or self.items_max
        bound = max(self.share_items, min(self.items_max, soon, -(-items // free)))
        count = total = size = 0
        for weight in waiting:
            total += weight.items
            size += weight.bytes
            if count and (count >= self.requests_max or total > bound or size > self.bytes_max):
                break
            count += 1
        return count
