"""The shapes on the wire as a client sends and reads them. camelCase lives here and in no other module of the
client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.wire.base import decoder

T = TypeVar("T")


def decode(body: bytes, type: type[T]) -> T:
    """A successful answer as `type`."""
    try:
        answer: T = decoder(type).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"the server's answer is not what a Fairlane broker says: {error}") from None
    return answer


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Momenteconds since 1970, as every `_at`."""
    return (at - _EPOCH) // _MICROSECOND


def timestamp(at: int) -> str:
    """A point in time as text."""
    try:
        return (_EPOCH + at * _MICROSECOND).isoformat()
    except (OverflowError, TypeError):
        raise InvalidRequest(f"{at!r:.40} is not a point in time in microseconds since 1970") from None
