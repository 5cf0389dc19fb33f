"""Base class of the client's resources, such as `client.queues`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from fairlane.client.transport import Transport, path_of
from fairlane.errors import FairlaneError
from fairlane.wire.base import decoder, encode

T = TypeVar("T")


class ClientResource:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _call(
        self,
        kind: type[T],
        method: str,
        *path: str,
        query: Mapping[str, str | int | None] | None = None,
        body: object = None,
    ) -> T:
        """Send a request to a path under /api/v1 and return the answer as `kind`.

        Query parameters that are None are left out.
        """
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        sent = None if body is None else encode(body)
        return decode(await self._transport.request(method, path_of(*path), query=asked, body=sent), kind)


def decode(body: bytes, type: type[T]) -> T:
    """Decode a successful answer as `type`. Raises FairlaneError if it does not fit."""
    try:
        answer: T = decoder(type).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"unexpected answer from the server: {error}") from None
    return answer
