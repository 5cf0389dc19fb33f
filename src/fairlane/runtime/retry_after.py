"""Retry-After: the wait that a server asks for."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from fairlane.runtime.clock import wall_clock


def seconds_of(retry_after: str | None) -> float | None:
    """The seconds that a Retry-After header asks for, as a number or as a date."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - wall_clock() / 1_000_000)
    except ValueError:
        return None
