"""Query parameters as values."""

from __future__ import annotations

import re

from fairlane.errors import InvalidRequest

_NUMBER = re.compile(r"-?\d{1,15}", re.ASCII)


def flag(query: dict[str, str], name: str) -> bool:
    return query.get(name, "") in ("true", "1")


def text(query: dict[str, str], name: str, default: str) -> str:
    return query.get(name) or default


def number(query: dict[str, str], name: str, default: int, *, least: int, most: int) -> int:
    given = query.get(name, "")
    if not given:
        return default
    if not _NUMBER.fullmatch(given):
        raise InvalidRequest(f"{name} is {given!r:.40}; it must be a whole number")
    value = int(given)
    if not least <= value <= most:
        raise InvalidRequest(f"{name} is {value}; it must be between {least} and {most}")
    return value
