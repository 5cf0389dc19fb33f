"""A listener of the live stream that applies the updates as a page does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from tests.http.wire import Wire
from tests.until import SECONDS_MAX


def patched(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch as RFC 7396 defines it."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = patched(found.get(name), value)
    return found


class Events:
    """The received events in order, and the current answer of each path."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.came: list[tuple[str, dict[str, Any]]] = []
        self.bodies: dict[str, Any] = {}
        self.raw = b""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next event. Raises EOFError at the end of the stream."""
        kind, data = "", b""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                line = await self._response.content.readline()
                self.raw += line
                if not line:
                    raise EOFError
                name, _, value = line.rstrip(b"\n").partition(b": ")
                if name == b"event":
                    kind = value.decode()
                elif name == b"data":
                    assert not data, "the data of an event is one line"
                    data = value
                elif line == b"\n" and data:
                    break
        event = msgspec.json.decode(data)
        path = event["path"]
        self.bodies[path] = patched(self.bodies[path], event["patch"]) if kind == "change" else event["body"]
        self.came.append((kind, event))
        return kind, event

    async def until(self, path: str, condition: Callable[[Any], Any]) -> Any:
        """Read until the answer to a path equals this."""
        while path not in self.bodies or not condition(self.bodies[path]):
            await self.next()
        return self.bodies[path]


@asynccontextmanager
async def listening(wire: Wire, *paths: str) -> AsyncIterator[Events]:
    url = f"{wire.base}/api/v1/live?{urlencode([('watch', path) for path in paths])}"
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(URL(url, encoded=True)) as response,
    ):
        assert response.status == 200, await response.text()
        yield Events(response)
