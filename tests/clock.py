"""A clock that tests move by hand."""

from __future__ import annotations

from fairlane.runtime.clock import wall_clock


class ManualClock:
    """A clock in microseconds since 1970. It begins at the real time and moves only when told to."""

    def __init__(self, at: int | None = None) -> None:
        self.at = wall_clock() if at is None else at
        self.step = 0.0
        """Seconds that pass after each reading, to simulate slow work."""

    def __call__(self) -> int:
        at = self.at
        self.advance(self.step)
        return at

    def advance(self, seconds: float) -> int:
        """Step by `seconds`, which may be negative. Returns the new time."""
        self.at += round(seconds * 1_000_000)
        return self.at
