"""The nesting depth of JSON is computed in one pass and in steps, and stops at the limit."""

from __future__ import annotations

import random

import msgspec
import pytest

from fairlane.errors import InvalidRequest
from fairlane.model import nesting
from fairlane.model.limits import JSON_DEPTH_MAX
from fairlane.model.nesting import check_depth, depth_steps


def is_deep(payload: bytes) -> bool:
    try:
        check_depth(payload)
    except InvalidRequest:
        return True
    return False


def levels(count: int, inside: bytes = b"") -> bytes:
    return b"[" * count + inside + b"]" * count


@pytest.mark.parametrize(
    "inside",
    [
        b"",
        b'"[[["',
        b'"\\\\"',
        b'"\\"[["',
        b'"\\\\\\"[["',
        b'"]]]",{},[]',
        b'"",' * 40_000 + b"0",
        b'"\\"",' * 40_000 + b"0",
    ],
    ids=["bare", "brackets", "backslash", "quote", "both", "closing", "empty strings", "escaped quotes"],
)
def test_strings_are_no_levels(inside: bytes) -> None:
    more = 1 if b"{}" in inside else 0
    assert not is_deep(levels(JSON_DEPTH_MAX - more, inside))
    assert is_deep(levels(JSON_DEPTH_MAX + 1 - more, inside))


def test_levels_are_counted_across_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nesting, "_STEP_BYTES", 7)
    luck = random.Random(7)
    for _ in range(300):
        depth = luck.choice([JSON_DEPTH_MAX - 1, JSON_DEPTH_MAX, JSON_DEPTH_MAX + 1])
        value: object = "x"
        for _ in range(depth):
            beside = "".join(luck.choices('a"\\[]{}', k=luck.randrange(6)))
            value = [beside, value] if luck.random() < 0.5 else {beside: value, beside + "x": []}
        payload = msgspec.json.encode(value)
        deepest = _depth(value)
        assert is_deep(payload) == (deepest > JSON_DEPTH_MAX)


def _depth(value: object) -> int:
    inside = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else None
    return 0 if inside is None else 1 + max((_depth(one) for one in inside), default=0)


def test_a_payload_that_is_too_deep_is_not_looked_at_further() -> None:
    steps = depth_steps(b"[" + levels(JSON_DEPTH_MAX) + b",[]" * 1_000_000 + b"]")
    with pytest.raises(InvalidRequest):
        next(steps)


def test_a_step_is_short_however_long_the_payload_is() -> None:
    deep = b"[%b]" % b",".join([levels(JSON_DEPTH_MAX - 1)] * 4000)
    assert sum(1 for _ in depth_steps(deep)) > len(deep) // (64 * 1024)
