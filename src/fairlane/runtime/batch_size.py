"""Adaptive batch sizes, based on how long earlier batches took. Does no I/O; the caller measures the time."""

from __future__ import annotations

SLOW_SECONDS = 1.0
"""Duration above which a batch is too large, unless a smaller one takes as long."""
FAST_SECONDS = 0.25
"""Duration below which the next batch may be larger, at most twice as large."""
AIM_SECONDS = 0.5
SAME = 0.75
"""A smaller batch counts as faster only if it takes less than this share of the time of the larger one."""
FIRST_SHARE = 2
FAILED_SHARE = 4


class BatchSize:
    """The number of bytes that the next batch may have, between `least` and `most`.

    It starts small, because the speed of the store is unknown, and grows quickly on a fast store.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self.forget()

    def forget(self) -> None:
        """Reset to the initial size, because the last measurements are out of date."""
        self.bytes = min(self._most, FIRST_SHARE * self._least)
        self._slow: tuple[int, float] | None = None
        """Size and duration of a slow batch, if the current size follows from it."""

    def record(self, size: int, seconds: float) -> None:
        """Note that a batch of `size` bytes took `seconds`."""
        if seconds <= SLOW_SECONDS:
            self._slow = None
            if seconds < FAST_SECONDS:
                # A small batch is fast even over a slow link, so it only shows how many bytes would take a second.
                self._set(min(2 * self.bytes, max(self.bytes, int(size * SLOW_SECONDS / max(seconds, 1e-6)))))
            return
        before, self._slow = self._slow, (size, seconds)
        if before is not None and size < SAME * before[0] and seconds > SAME * before[1]:
            # Each batch takes this long whatever its size, so small batches only cost throughput.
            self._slow = None
            self._set(before[0])
        else:
            self._set(min(self.bytes, int(size * AIM_SECONDS / seconds)))

    def record_failure(self, size: int) -> None:
        """Note that a batch of `size` bytes failed, perhaps because it took too long."""
        self._slow = None
        self._set(min(self.bytes, size) // FAILED_SHARE)

    def _set(self, size: int) -> None:
        self.bytes = max(self._least, min(self._most, size))
