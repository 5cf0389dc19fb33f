"""Points in time: numbers in memory, text on the wire."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from fairlane.errors import InvalidRequest
from fairlane.model.names import check_count

MICROS_MAX = 2**53 - 1
When = datetime | str | int
"""A point in time as callers give it: a datetime with a zone, text as on the wire, or microseconds since 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Moment(int):
    """A point in time: microseconds since 1970. On the wire it is text like 2026-01-31T12:00:00.000000Z."""

    def isoformat(self) -> str:
        return timestamp(self)

    @staticmethod
    def parse(text: str) -> Moment:
        """Parse text with or without a time zone. The default is UTC. Raises ValueError if it is not a time."""
        return _parse(text)


@lru_cache(maxsize=1_000)  # messages that were pushed together share their time
def _parse(text: str) -> Moment:
    # In a query string a `+` is a space, also in a time zone.
    at = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    micros = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    return Moment(max(0, min(micros, MICROS_MAX)))


def micros_of(name: str, at: When) -> Moment:
    """Convert a point in time to microseconds since 1970. A text without a time zone is UTC.

    Raises InvalidRequest if `at` is not a valid time, or is a datetime without a time zone.
    """
    if isinstance(at, str):
        try:
            parsed = datetime.fromisoformat(at)
        except ValueError:
            raise InvalidRequest(f"{name} is {at!r:.80}; it must be a time like 2026-01-31T12:00:00Z") from None
        at = parsed if parsed.utcoffset() is not None else parsed.replace(tzinfo=UTC)
    if isinstance(at, datetime):
        if at.utcoffset() is None:
            raise InvalidRequest(f"{name} is {at}, without a time zone; give it one, as datetime.now(UTC) has")
        at = (at - _EPOCH) // _MICROSECOND
    if isinstance(at, bool) or not isinstance(at, int):
        kind = type(at).__name__
        raise InvalidRequest(f"{name} must be a datetime, a text or microseconds since 1970, not {kind}")
    if not 0 <= at <= MICROS_MAX:
        raise InvalidRequest(f"{name} is {at} microseconds since 1970; it must be between 1970 and 2255")
    return Moment(at)


def millis_of(name: str, delay: timedelta | int, *, most: int) -> int:
    """Return a delay in milliseconds. Raises InvalidRequest if it is negative or more than `most`."""
    given = delay // timedelta(milliseconds=1) if isinstance(delay, timedelta) else delay
    return check_count(name, given, least=0, most=most)


def moment_or_none(micros: int | None) -> Moment | None:
    return None if micros is None else Moment(micros)


@lru_cache(maxsize=100)  # consecutive messages share their second
def second_text(seconds: int) -> str:
    """Return seconds since 1970 as `YYYY-MM-DDTHH:MM:SS`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def timestamp(micros: int) -> str:
    """Return microseconds since 1970 as `YYYY-MM-DDTHH:MM:SS.ffffffZ`."""
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{second_text(seconds)}.{fraction:06d}Z"
