"""A part of the client: the verbs of one noun over the client's transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from fairlane.client.transport import Transport, path_of
from fairlane.errors import FairlaneError
from fairlane.wire.base import decoder, encode

T = TypeVar("T")


class Part:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _ask(
        self,
        kind: type[T],
        method: str,
        *path: str,
        query: Mapping[str, str | int | None] | None = None,
        body: object = None,
    ) -> T:
        """The answer at a path under /api/v1, as `kind`. A parameter of the query that is None is left out."""
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        sent = None if body is None else encode(body)
        return decode(await self._transport.ask(method, path_of(*path), query=asked, body=sent), kind)


def decode(body: bytes, type: type[T]) -> T:
    """A successful answer as `type`."""
    try:
        answer: T = decoder(type).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"the server's answer is not what a Fairlane broker says: {error}") from None
    return answer
