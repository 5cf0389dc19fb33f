"""The depth of nested JSON, without parsing it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from fairlane.errors import InvalidRequest
from fairlane.model.limits import JSON_DEPTH_MAX

_SIGNS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Bytes that map opening and closing brackets to 1 and -1, as signed bytes."""
_STEP_BYTES = 64 * 1024
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_depth(payload: bytes) -> None:
    """Raise InvalidRequest if valid JSON is nested deeper than readers can be expected to parse."""
    for _ in depth_steps(payload):
        pass


def depth_steps(payload: bytes) -> Iterator[int]:
    """Run `check_depth` in steps of a few milliseconds. Yields the approximate number of bytes of each step."""
    # Like `count`, but stops early.
    brackets = len(payload.split(b"[", JSON_DEPTH_MAX + 1)) + len(payload.split(b"{", JSON_DEPTH_MAX + 1)) - 2
    if brackets <= JSON_DEPTH_MAX:
        return
    text = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = quoted = 0
    for start in range(0, len(text), _STEP_BYTES):
        parts = text[start : start + _STEP_BYTES].split(b'"')  # every second part is inside a string
        signs = b"".join(parts[quoted::2]).translate(_SIGNS, _NOT_BRACKETS)
        quoted ^= (len(parts) - 1) & 1
        levels = list(accumulate(memoryview(signs).cast("b"), initial=depth))
        depth = levels[-1]
        if max(levels) > JSON_DEPTH_MAX:
            raise InvalidRequest(f"payload is nested deeper than {JSON_DEPTH_MAX} levels")
        yield _STEP_BYTES
