"""Durations in the form that people write."""

from __future__ import annotations

import re

from fairlane.errors import InvalidRequest

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_WHOLE = re.compile(r"(?:\d{1,9}[smhdw]){1,5}", re.ASCII)
_PART = re.compile(r"(\d+)([smhdw])", re.ASCII)


def seconds_in(text: str) -> int:
    """Return the seconds of a duration like 30s, 5m, 1h30m or 1d."""
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise InvalidRequest(f"{text!r:.40} is not a duration; write it like 30s, 5m, 1h30m or 1d")
    return sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(text))
