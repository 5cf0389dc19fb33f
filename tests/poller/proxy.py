"""A proxy between a poller and its broker that intercepts each request and each answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from tests.small_server import SmallServer


class Proxy(SmallServer):
    """The proxy.

    It calls `meet(verb, "before" or "after")` with the last path segment, or `sweep commit` for a sweep.
    """

    def __init__(self, broker: str, meet: Callable[[str, str], Awaitable[None]]) -> None:
        self._broker = urlsplit(broker)
        self._meet = meet

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(self._broker.hostname, self._broker.port)
        try:
            while True:
                request = await _message(reader)
                verb = request.split(b" ", 2)[1].decode().rpartition("/")[2]
                verb = f"sweep {verb}" if b'"sweep":true' in request else verb
                await self._meet(verb, "before")
                to_broker.write(request)
                answer = await _message(from_broker)
                await self._meet(verb, "after")
                writer.write(answer)
                await writer.drain()
        finally:
            to_broker.close()
            with contextlib.suppress(ConnectionError):
                await to_broker.wait_closed()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read one complete request or answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
    )
    return head + await reader.readexactly(length)
