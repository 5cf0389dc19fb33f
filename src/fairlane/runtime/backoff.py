"""Backoff: how long to wait before trying again, by our own reckoning or as a server asks."""

from __future__ import annotations

import random
from email.utils import parsedate_to_datetime

from fairlane.runtime.clock import wall_clock


def backoff(failures: int, *, base: float, most: float) -> float:
    """Seconds to wait after so many failures in a row: `base` after the first, doubling, never above `most`.

    Spread over the upper half, so that callers that failed together do not return together.
    """
    longest = min(most, base * 2.0 ** min(failures - 1, 60))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing


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
    except (ValueError, OverflowError):
        return None
