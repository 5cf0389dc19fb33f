"""HTTP to other services than the broker: one request, tried again where that may help."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from ipaddress import ip_address
from socket import AF_INET, AddressFamily
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import ResolveResult

from fairlane.errors import FairlaneError, InvalidRequest, Overloaded, Unavailable
from fairlane.runtime.addresses import is_public
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
        said = f"the server answered {self.status}: {self.body[:200].decode(errors='replace')}"
        if self.status == 429:
            raise Overloaded(said, retry_after=seconds_of(self.headers.get("Retry-After")) or 5.0)
        raise Unavailable(said) if self.status >= 500 else FairlaneError(said)


class Sender:
    """Bound to the event loop of its first request. A `guarded` one reaches public addresses only, whatever a name
    resolves to, and follows no redirects, which could lead anywhere."""

    def __init__(
        self,
        *,
        attempts: int = ATTEMPTS,
        first_seconds: float = FIRST_SECONDS,
        timeout: float = 30.0,
        guarded: bool = False,
        redirects: bool = True,
        bytes_max: int | None = None,
    ) -> None:
        self._attempts = attempts
        self._first_seconds = first_seconds
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=5.0)
        self._guarded = guarded
        self._redirects = redirects and not guarded
        self._bytes_max = bytes_max
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        failures = 0
        while True:
            failures += 1
            last = failures >= self._attempts
            asked: float | None = None
            try:
                reply = await self._once(method, url, headers, body)
            except (aiohttp.ClientConnectionError, TimeoutError, aiohttp.ClientPayloadError) as error:
                if last:
                    raise Unavailable(f"{method} {url}: {str(error) or type(error).__name__}") from None
            except (aiohttp.InvalidURL, ValueError) as error:
                raise InvalidRequest(f"{url!r:.200} cannot be asked: {error}") from None
            else:
                asked = seconds_of(reply.headers.get("Retry-After"))
                again = reply.status == 429 or reply.status >= 500
                if last or not again or (asked or 0) > RETRY_AFTER_SECONDS_MAX:
                    return reply
            pause = backoff(failures, base=self._first_seconds, most=30.0)
            await asyncio.sleep(pause if asked is None else max(asked, pause))

    async def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        if self._guarded:
            _check_address(urlsplit(url).hostname or "")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=_PublicResolver() if self._guarded else None),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "fairlane"},
            )
        async with self._session.request(
            method, url, headers=headers, data=body, allow_redirects=self._redirects
        ) as response:
            return Reply(response.status, response.headers.copy(), await self._read(response))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if self._bytes_max is None:
            return await response.read()
        pieces, size = [], 0
        async for piece in response.content.iter_chunked(64 * 1024):
            pieces.append(piece)
            size += len(piece)
            if size > self._bytes_max:
                raise FairlaneError(f"the answer has more than {self._bytes_max} bytes; ask for smaller pages")
        return b"".join(pieces)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _PublicResolver(aiohttp.ThreadedResolver):
    """Looks at what a name resolves to when it is connected to: a look before that could be told something else."""

    async def resolve(self, host: str, port: int = 0, family: AddressFamily = AF_INET) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        for one in found:
            _check_address(one["host"])
        return found


def _check_address(host: str) -> None:
    """InvalidRequest for an address of a private network. A name is looked at when it is resolved."""
    try:
        address = ip_address(host)
    except ValueError:
        return
    if not is_public(address):
        raise InvalidRequest(f"{host} is no public address; say allow_private if it is meant")
