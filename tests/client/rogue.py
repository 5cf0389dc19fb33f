"""A server that misbehaves on request: between client and broker, it refuses, breaks connections and counts."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL


class Seen(NamedTuple):
    method: str
    path: str
    body: Any

    @property
    def items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.body["items"]
        return items


@dataclass(frozen=True)
class Answer:
    """Answer the request in place of the broker."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """Break the connection: before the broker saw the request, or after it was carried out."""

    carried_out: bool


class Rogue:
    """The misbehaving proxy.

    `do(...)` sets the reaction to each of the next requests; others are forwarded. `seen` lists all requests.
    """

    def __init__(self, target: str) -> None:
        self.seen: list[Seen] = []
        self.hold: asyncio.Event | None = None
        """While this event exists and is not set, forwarded requests wait for it."""
        self.at_once_most = 0
        """Maximum number of requests that were being forwarded at the same time."""
        self._at_once = 0
        self.url = ""
        self._target = target
        self._next: deque[Answer | Drop] = deque()
        self._came = asyncio.Condition()

    def do(self, *reactions: Answer | Drop) -> None:
        self._next.extend(reactions)

    def forget(self) -> None:
        """Forward the next requests, whatever reactions were set before."""
        self._next.clear()

    def requests(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path.startswith(path)]

    async def until(self, path: str, count: int) -> None:
        """Wait until this many requests with this path arrived."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.requests(path)) >= count)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        server = web.Server(self._react)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _react(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        async with self._came:
            self.seen.append(Seen(request.method, unquote(request.path), msgspec.json.decode(body) if body else None))
            self._came.notify_all()
        reaction = self._next.popleft() if self._next else None
        if isinstance(reaction, Answer):
            return web.json_response(reaction.body, status=reaction.status, headers=reaction.headers)
        if isinstance(reaction, Drop) and not reaction.carried_out:
            return _broken(request)
        if self.hold is not None:
            await self.hold.wait()
        self._at_once += 1
        self.at_once_most = max(self.at_once_most, self._at_once)
        answer = await self._forward(request, body)
        self._at_once -= 1
        return answer if reaction is None else _broken(request)

    async def _forward(self, request: web.BaseRequest, body: bytes) -> web.Response:
        url = URL(self._target + request.raw_path, encoded=True)
        headers = {"content-type": request.content_type} if body else None
        async with self._session.request(request.method, url, data=body or None, headers=headers) as answer:
            headers = {name: value for name, value in answer.headers.items() if name.lower() == "retry-after"}
            return web.Response(
                status=answer.status, body=await answer.read(), headers=headers, content_type="application/json"
            )


def _broken(request: web.BaseRequest) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
