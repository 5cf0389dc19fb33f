"""Backoff: how long to wait before trying again."""

from __future__ import annotations

import random


def backoff(failures: int, *, base: float, most: float) -> float:
    """Seconds to wait after so many failures in a row: `base` after the first, doubling, never above `most`.

    Spread over the upper half, so that callers that failed together do not return together.
    """
    longest = min(most, base * 2.0 ** min(failures - 1, 60))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing
