"""A family of verbs: the base of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from fairlane.client.transport import Transport, path_of
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.moment import Moment
from fairlane.runtime.batcher import BatchPolicy
from fairlane.wire.base import decoder, encode

T = TypeVar("T")

REQUESTS = BatchPolicy(requests_max=10_000, items_max=10_000, share_items=10_000)
"""One request is in flight at a time, so that calls are carried out in the order they were made. It has at most as
many items as a broker takes."""


class Family:
    """Some verbs of the client. Families are joined to one `Client` and share its transport."""

    def __init__(self, transport: Transport, *, batching: bool) -> None:
        self._transport = transport
        self._batching = batching

    async def _ask(
        self,
        kind: type[T],
        method: str,
        *path: str,
        query: Mapping[str, str | int | None] | None = None,
        body: object = None,
        key: str = "",
    ) -> T:
        """The answer at a path under /api/v1, as `kind`. A parameter of the query that is None is left out."""
        return decode(await self._call(method, *path, query=query, body=body, key=key), kind)

    async def _call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str | int | None] | None = None,
        body: object = None,
        key: str = "",
    ) -> bytes:
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        sent = None if body is None else encode(body)
        return await self._transport.ask(method, path_of(*path), key=key, query=asked, body=sent)

    async def _drain(self) -> None:
        """Return when everything that waits to be sent was answered."""


def decode(body: bytes, type: type[T]) -> T:
    """A successful answer as `type`."""
    try:
        answer: T = decoder(type).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"the server's answer is not what a Fairlane broker says: {error}") from None
    return answer


def timestamp(at: int) -> str:
    """A point in time as text."""
    try:
        return Moment(at).isoformat()
    except (OverflowError, TypeError, ValueError, OSError):
        raise InvalidRequest(f"{at!r:.40} is not a point in time in microseconds since 1970") from None
