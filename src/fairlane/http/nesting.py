"""The nesting check: how deep the JSON in a request is, looked at in turns with everything else that the broker
does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import JSON_DEPTH_MAX
from fairlane.model.message import depth_steps

SHALLOW_BYTES = 2 * JSON_DEPTH_MAX
"""A value that is no longer cannot be nested too deeply."""
_AT_ONCE_BYTES = 128 * 1024

Nested = tuple[str, int, msgspec.Raw]
"""A value to look at, behind the list in the request that it is of, and its place there."""


async def check_depths(values: Sequence[Nested]) -> None:
    """InvalidRequest names the first value that is nested too deeply."""
    size = 0
    for where, index, value in values:
        try:
            for looked_at in depth_steps(bytes(value)):
                size += looked_at
                if size > _AT_ONCE_BYTES:
                    size = 0
                    await asyncio.sleep(0)
        except InvalidRequest as error:
            raise InvalidRequest(f"{where}[{index}]: {error}") from None
