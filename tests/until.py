"""Waiting in tests, for what has no event to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

SECONDS_MAX = 60.0
"""Far more than it takes on a busy machine: a test that runs into it has failed."""


async def until(condition: Callable[[], Any], *, seconds: float = SECONDS_MAX) -> Any:
    """Wait until `condition()`, which may be awaitable, is true; what it gave."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.002)
