"""Payloads: Python objects as JSON, without numbers that JSON lacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.errors import InvalidRequest


def json_of(what: str, value: Any, encode: Callable[[Any], bytes] = msgspec.json.encode) -> bytes:
    """Return `value` as JSON.

    Raises InvalidRequest if it cannot be written, or if a NaN or an infinity in it would become null.
    """
    try:
        encoded = encode(value)
        if b"null" in encoded and (found := _not_a_number(value)) is not None:
            raise ValueError(f"it has {found}, and JSON has no such number; use None or a text instead")
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidRequest(f"{what} cannot be written as JSON: {error}") from None
    return encoded


def _not_a_number(value: Any) -> float | None:
    """Return the first NaN or infinity in `value`, None if it has none."""
    left = [msgspec.to_builtins(value, str_keys=True, enc_hook=_hidden)]
    while left:
        one = left.pop()
        if isinstance(one, float):
            if not math.isfinite(one):
                return one
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, (list, tuple)):
            left += one
    return None


def _hidden(value: Any) -> None:
    """Encode nothing: raw JSON, and objects of another encoder, contain no numbers to check."""
