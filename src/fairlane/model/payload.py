"""Payloads: Python objects as JSON, without numbers that JSON lacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.errors import InvalidRequest


def model_json(value: Any) -> msgspec.Raw:
    """Return a model as JSON, under the names that its class validates. The hook of encoders.

    A model is any object with `model_dump_json`, as pydantic's have. Raises TypeError for every other object.
    """
    dump = getattr(value, "model_dump_json", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")
    return msgspec.Raw(dump(by_alias=True).encode())


_encode = msgspec.json.Encoder(enc_hook=model_json).encode


def json_of(what: str, value: Any, encode: Callable[[Any], bytes] = _encode) -> bytes:
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


def _hidden(value: Any) -> Any:
    """Return the fields of a model. Raw JSON, and objects of another encoder, contain no numbers to check."""
    dump = getattr(value, "model_dump", None)
    return None if dump is None else dump()
