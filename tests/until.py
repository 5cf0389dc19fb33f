"""A wait for conditions that have no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

SECONDS_MAX = 60.0
"""Timeout, far above what a condition takes on a busy machine."""


async def until(condition: Callable[[], Any], *, seconds: float = SECONDS_MAX) -> Any:
    """Wait until `condition()`, which may be awaitable, is true. Returns its value."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.002)
