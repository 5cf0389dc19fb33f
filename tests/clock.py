"""A clock that tests move by hand."""

from __future__ import annotations

from fairlane.runtime.clock import wall_clock


class ManualClock:
    """Microseconds since 1970; begins at the real time and moves only when told to."""

    def __init__(self, at: int | None = None) -> None:
        self.at = wall_clock() if at is None else at
        self.step = 0.0
        """Seconds that pass after each reading, for work that takes long."""

    def __call__(self) -> int:
        at = self.at
        self.advance(self.step)
        return at

    def advance(self, seconds: float) -> int:
        """Step by `seconds`, back if negative; the new time."""
        self.at += round(seconds * 1_000_000)
        return self.at
