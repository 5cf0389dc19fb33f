"""Calls of handlers to other people's HTTP APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from fairlane.errors import FairlaneError
from fairlane.model.ids import PartitionId
from fairlane.outbound.caller import Caller, Reply

__all__ = ["Calls", "Outbound", "Reply"]

T = TypeVar("T")


class Effects(Protocol):
    """Effects: what handlers did once, by key and partition of the message."""

    async def get(self, key: str, partition: PartitionId) -> bytes | None: ...

    async def keep(self, key: str, partition: PartitionId, value: bytes) -> bytes: ...


class Outbound(Protocol):
    """The origin of outbound calls: a session, the loop that it lives on, and the broker."""

    @property
    def caller(self) -> Caller: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def effects(self) -> Effects: ...


class Calls:
    """HTTP for coroutine functions; `blocking` is the same for plain ones.

    429, 5xx and broken connections are tried again after 200, 400, 800 ms ... or as long as the server
    asks for; the last answer is returned whatever it says. `raise_for_status` makes a bad one a failed attempt.
    """

    def __init__(self, outbound: Outbound, headers: Mapping[str, str]) -> None:
        self._outbound = outbound
        self._headers = headers

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = msgspec.UNSET,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One call; `json` is sent as the body. Raises Unavailable when no answer came at all."""
        sent = {**self._headers, **(headers or {})}
        if json is not msgspec.UNSET:
            body = msgspec.json.encode(json)
            sent.setdefault("Content-Type", "application/json")
        return await self._outbound.caller.send(method, url, headers=sent, body=body)

    async def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> Reply:
        return await self.request("GET", url, headers=headers)

    async def post(self, url: str, *, json: Any = msgspec.UNSET, headers: Mapping[str, str] | None = None) -> Reply:
        return await self.request("POST", url, json=json, headers=headers)

    @property
    def blocking(self) -> BlockingCalls:
        return BlockingCalls(self, self._outbound.loop)


class BlockingCalls:
    """For functions that run in threads."""

    def __init__(self, calls: Calls, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = calls
        self._loop = loop

    def request(self, method: str, url: str, **options: Any) -> Reply:
        return wait_on(self._loop, self._calls.request(method, url, **options))

    def get(self, url: str, **options: Any) -> Reply:
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Any) -> Reply:
        return self.request("POST", url, **options)


def wait_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns on the loop of the handlers, for a caller in a thread."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        work.close()
        raise FairlaneError("a blocking call would block the event loop; await the other form of it")
    return asyncio.run_coroutine_threadsafe(work, loop).result()
