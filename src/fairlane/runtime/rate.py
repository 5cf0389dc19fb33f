"""Rates: an estimate of recent throughput, and limits per second. The caller passes the time."""

from __future__ import annotations

from math import exp, inf

MEMORY_SECONDS = 10.0
"""Time constant of the moving average."""
GAP_SECONDS = 5.0
"""Longer gaps between records count as this long: no work was observed meanwhile."""
RETRY_SECONDS, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 5.0, 1.0, 30.0
"""Retry-After of refused requests: while no rate is known, and the bounds once one is."""


class RateEstimate:
    """A moving average of how many items are done per second while there is work."""

    def __init__(self, memory_seconds: float = MEMORY_SECONDS) -> None:
        self._memory = memory_seconds
        self.at = -inf
        """Start of the observed time."""
        self._count = 0.0
        self._seconds = 0.0

    def resume(self, now: float) -> None:
        """Skip the time until now. After a long gap the estimate starts over."""
        if now - self.at > self._memory:
            self.forget()
        self.at = now

    def forget(self) -> None:
        self._count = self._seconds = 0.0

    def record(self, count: int, now: float) -> None:
        if -inf < self.at < now:
            passed = min(now - self.at, GAP_SECONDS)
            fade = exp(-passed / self._memory)
            self._count = self._count * fade + count
            self._seconds = self._seconds * fade + passed
        self.at = max(self.at, now)

    @property
    def per_second(self) -> float:
        """The estimate, or 0 while it is not known."""
        return self._count / self._seconds if self._seconds > 0.001 else 0.0

    def seconds_for(self, count: float) -> float | None:
        """Return how long `count` items take, or None while the rate is not known."""
        return count / self.per_second if self.per_second > 0 else None


def retry_after(seconds: float | None) -> float:
    """Return the Retry-After for a refused request that probably succeeds in `seconds`."""
    return RETRY_SECONDS if seconds is None else min(RETRY_SECONDS_MAX, max(RETRY_SECONDS_MIN, seconds))


class _Bucket:
    """A bucket that fills with `per_second`, up to `burst` (default: `per_second`)."""

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self.per_second = per_second
        self._burst = float(per_second if burst is None else burst)
        self._available = self._burst
        self._at = 0.0

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._available = min(self._burst, self._available + (now - self._at) * self.per_second)
        self._at = now


class RateLimit(_Bucket):
    """A token bucket: `per_second` on average, and up to `burst` at once."""

    def allows(self, now: float) -> bool:
        """Take one token at `now`, in seconds. Returns False if the bucket is empty."""
        self._fill(now)
        if self._available < 1:
            return False
        self._available -= 1
        return True


class WorkLimit(_Bucket):
    """A limit per second for work whose cost is known only afterwards. Overdrawn work delays what follows."""

    def seconds_until_available(self, now: float) -> float | None:
        """Return the seconds until work is allowed again, or None if it is now."""
        self._fill(now)
        if self._available > 0:
            return None
        return -self._available / self.per_second if self.per_second else inf

    def spend(self, units: int) -> None:
        self._available -= units
