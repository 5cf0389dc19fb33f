"""The rate of work: how much is done a second, as far as it was seen lately, or how much may be. Pure: the caller tells
the time."""

from __future__ import annotations

from math import exp, inf

MEMORY_SECONDS = 10.0
"""What was seen counts for about this long."""
GAP_SECONDS = 5.0
"""A pause longer than this says nothing of the work: nobody was there to see it."""
RETRY_SECONDS, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 5.0, 1.0, 30.0
"""What a refused caller is told to wait: while no rate is known, and at least and at most when one is."""


class Rate:
    """A rate: fed with how many were done, and when; gives how many are done a second while there is work."""

    def __init__(self, memory_seconds: float = MEMORY_SECONDS) -> None:
        self._memory = memory_seconds
        self.at = -inf
        """The time before it does not count."""
        self._count = 0.0
        self._seconds = 0.0

    def resume(self, now: float) -> None:
        """The time until now does not count. After a long one nothing is known any more."""
        if now - self.at > self._memory:
            self.forget()
        self.at = now

    def forget(self) -> None:
        self._count = self._seconds = 0.0

    def did(self, count: int, now: float) -> None:
        if -inf < self.at < now:
            passed = min(now - self.at, GAP_SECONDS)
            fade = exp(-passed / self._memory)
            self._count = self._count * fade + count
            self._seconds = self._seconds * fade + passed
        self.at = max(self.at, now)

    @property
    def a_second(self) -> float:
        """0 while it is not known."""
        return self._count / self._seconds if self._seconds > 0.001 else 0.0

    def seconds_for(self, count: float) -> float | None:
        """How long so many take; None while that is not known."""
        return count / self.a_second if self.a_second > 0 else None


def retry_after(seconds: float | None) -> float:
    """What a refused caller is told, if there is probably room in so many seconds."""
    return RETRY_SECONDS if seconds is None else min(RETRY_SECONDS_MAX, max(RETRY_SECONDS_MIN, seconds))


class Ration:
    """A rate limit: `per_second`, and `burst` at once, which is as many unless given."""

    def __init__(self, per_second: float, burst: float | None = None) -> None:
        self.per_second = per_second
        self._burst = float(per_second if burst is None else burst)
        self._left = self._burst
        self._at = 0.0

    def allows(self, now: float) -> bool:
        """Whether one more may come at `now`, in seconds; if so it counts."""
        if now > self._at:
            self._left = min(self._burst, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Allowance:
    """So much a second, and as much at once, of what is known only when it is spent: what was too much is waited
    for."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._left = float(per_second)
        self._at = 0.0

    def lacks(self, now: float) -> float | None:
        """The seconds until there is some again; None while there is."""
        if now > self._at:
            self._left = min(self.per_second, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left > 0:
            return None
        return -self._left / self.per_second if self.per_second else inf

    def spend(self, units: int) -> None:
        self._left -= units
