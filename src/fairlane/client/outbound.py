"""Outbound HTTP, to other services than the broker: one request, tried again where that may help."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from fairlane.errors import CommandFailed, FairlaneError, InvalidRequest, Overloaded, Unavailable
from fairlane.outbound.caller import Caller
from fairlane.runtime.backoff import backoff
from fairlane.runtime.retry_after import seconds_of

ATTEMPTS = 5
FIRST_SECONDS = 0.2
RETRY_AFTER_SECONDS_MAX = 60.0  # a server that asks for more is left to the next attempt of the message


class Reply(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self, type: Any = Any) -> Any:
        return msgspec.json.decode(self.body, type=type)

    def raise_for_status(self) -> Reply:
        """This reply if it tells of success. Overloaded, Unavailable or FairlaneError otherwise."""
        if self.status < 400:
            return self
        text = f"the server answered {self.status}: {self.body[:200].decode(errors='replace')}"
        if self.status == 429:
            raise Overloaded(text, retry_after=seconds_of(self.headers.get("Retry-After")) or 5.0)
        raise Unavailable(text) if self.status >= 500 else FairlaneError(text)


class Sender:
    """Bound to the event loop of its first request. With a `caller` requests leave by that one, which judges where they
    go and follows no redirect; without, they go anywhere."""

    def __init__(
        self,
        *,
        attempts: int = ATTEMPTS,
        first_seconds: float = FIRST_SECONDS,
        timeout: float = 30.0,
        caller: Caller | None = None,
    ) -> None:
        self._attempts = attempts
        self._first_seconds = first_seconds
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=5.0)
        self._caller = caller
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        failures = 0
        while True:
            failures += 1
            last = failures >= self._attempts
            asked: float | None = None
            try:
                reply = await self._once(method, url, headers, body)
            except Unavailable:
                if last:
                    raise
            else:
                asked = seconds_of(reply.headers.get("Retry-After"))
                again = reply.status == 429 or reply.status >= 500
                if last or not again or (asked or 0) > RETRY_AFTER_SECONDS_MAX:
                    return reply
            pause = backoff(failures, base=self._first_seconds, most=30.0)
            await asyncio.sleep(pause if asked is None else max(asked, pause))

    async def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """Unavailable if no answer came, InvalidRequest if none can come from there."""
        if self._caller is not None:
            return await _called(self._caller, method, url, headers, body)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar(), headers={"User-Agent": "fairlane"}
            )
        try:
            async with self._session.request(method, url, headers=headers, data=body) as response:
                return Reply(response.status, response.headers.copy(), await response.read())
        except (aiohttp.ClientConnectionError, TimeoutError, aiohttp.ClientPayloadError) as error:
            raise Unavailable(f"{method} {url}: {str(error) or type(error).__name__}") from None
        except (aiohttp.InvalidURL, ValueError) as error:
            raise InvalidRequest(f"{url!r:.200} cannot be asked: {error}") from None

    async def close(self) -> None:
        if self._caller is not None:
            await self._caller.close()
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _called(caller: Caller, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
    try:
        answer = await caller.call(method, url, headers=headers, body=body)
    except CommandFailed as error:
        raise (Unavailable if error.retryable else InvalidRequest)(f"{method} {url:.200}: {error}") from None
    if answer.body is None:
        raise FairlaneError(f"the answer has more than {caller.bytes_max} bytes; ask for smaller pages")
    return Reply(answer.status, answer.headers, answer.body)
