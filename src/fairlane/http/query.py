"""Query parameters as values."""

from __future__ import annotations

import re

from fairlane.errors import InvalidRequest
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.model.names import name_or_none as name_or_none

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


def after(name: str) -> str:
    """Where a page by name begins; the first begins at nothing."""
    return check_name("after", name) if name else ""


def moment(name: str, text: str) -> int:
    """A time like 2026-01-31T12:00:00Z in microseconds; without a zone it is UTC."""
    try:
        return int(Moment.parse(text))
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{name} is {text!r:.80}; it must be a time like 2026-01-31T12:00:00Z") from None
