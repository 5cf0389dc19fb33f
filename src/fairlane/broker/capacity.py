"""Limited queues: how fast they drain, and what a producer is told when one is full."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from fairlane.errors import QueueFull
from fairlane.runtime.rate import RETRY_SECONDS, Rate, retry_after
from fairlane.store.contract.values import Full

QUEUES_MAX = 10_000


def full(result: Full, *, retry_after: float = RETRY_SECONDS) -> QueueFull:
    depth, capacity = result.depth, result.capacity
    text = f"the queue is full: {depth} of {capacity} places are taken"
    return QueueFull(text, depth=depth, capacity=capacity, retry_after=retry_after)


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


class Capacity:
    """Fed with the depths that the store tells with its answers; it asks nothing."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._trends: dict[int, DepthTrend] = {}

    def saw(self, queue_id: int, depth: int, came: int = 0) -> None:
        """The queue holds `depth` by now, `came` of them through this call."""
        trend = self._trends.get(queue_id)
        if trend is None:
            if len(self._trends) >= QUEUES_MAX:
                self._trends.clear()
            trend = self._trends[queue_id] = DepthTrend()
        trend.saw(depth, came, self._clock())

    def refusal(self, queue_id: int, result: Full, wanted: int) -> QueueFull:
        """The error for `wanted` messages that did not fit, with the time until they probably do."""
        self.saw(queue_id, result.depth)
        seconds = self._trends[queue_id].seconds_until(max(1, result.depth + wanted - result.capacity))
        return full(result, retry_after=retry_after(seconds))
