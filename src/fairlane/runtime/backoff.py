"""Backoff: the time to wait before a retry, computed here or requested by a server."""

from __future__ import annotations

import asyncio
import random
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Final

from fairlane.runtime.clock import wall_clock

UNKNOWN_OUTCOME_PAUSES: Final = (0.1, 0.4, 1.6)
"""Seconds before each retry of a write whose outcome is unknown. The retries carry the same ids."""
LOCKED_SECONDS: Final = 10.0
"""Seconds to wait for a locked lane without a journal."""
LOCKED_PAUSE_SECONDS: Final = 0.1


def backoff(failures: int, *, base: float, most: float) -> float:
    """Return the seconds to wait after consecutive failures: `base` after the first, doubling, never above `most`.

    The result is spread over the upper half, so that callers that failed together do not retry together.
    """
    longest = min(most, base * 2.0 ** min(failures - 1, 60))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing


class LockRetries:
    """Retries of a write that met a locked lane."""

    def __init__(self) -> None:
        self._give_up_at = monotonic() + LOCKED_SECONDS

    async def pause(self) -> bool:
        """Pause before the next retry. Returns False if the time for retries is over."""
        if monotonic() >= self._give_up_at:
            return False
        await asyncio.sleep(LOCKED_PAUSE_SECONDS)
        return True


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or as a date. None if it is neither."""
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
