"""Rate limits of webhooks. Pure: the caller tells the time."""

from __future__ import annotations

REFUSED_MAX = 50
"""Wrong signatures from one address in a second, past which it is told to slow down."""
_ADDRESSES_MAX = 10_000


class Rate:
    """So many a second, and as many at once."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at = 0.0

    def allows(self, now: float) -> bool:
        """Whether one more may come at `now`, in seconds; if so it counts."""
        if now > self._at:
            self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Refusals:
    """Wrong signatures, by the address they came from, in the second that runs."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: dict[str, int] = {}

    def add(self, address: str, now: float) -> None:
        self._turn(now)
        if len(self._counts) < _ADDRESSES_MAX or address in self._counts:
            self._counts[address] = self._counts.get(address, 0) + 1

    def too_many(self, address: str, now: float) -> bool:
        self._turn(now)
        return self._counts.get(address, 0) > REFUSED_MAX

    def _turn(self, now: float) -> None:
        if int(now) != self._second:
            self._second = int(now)
            self._counts.clear()
