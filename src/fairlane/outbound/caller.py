"""The outbound caller: one request to somebody else's server, from inside our network, to addresses that were checked,
no further than it answers, and with an end to everything."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from fairlane.errors import CommandFailed, FairlaneError, InvalidRequest, Overloaded, Unavailable
from fairlane.outbound.addresses import NOTHING_INSIDE, Address, Allowed, check_addresses, check_url
from fairlane.runtime.backoff import backoff, seconds_of

ATTEMPTS = 5
FIRST_SECONDS = 0.2
RETRY_AFTER_SECONDS_MAX = 60.0
"""A server that asks for more is left to the next attempt of the message."""
CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES_MAX = 1024 * 1024
_IDLE_SECONDS = 15.0
_CONNECTIONS_MAX = 256
_CONNECTIONS_PER_HOST_MAX = 64

Lookup = Callable[[str], Awaitable[list[Address]]]


class Reply(msgspec.Struct, frozen=True):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool = True
    """False if there was more than is read of an answer."""

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


class Caller:
    """Bound to the event loop of its first call. Of an answer `bytes_max` are read. `lookup` gives the addresses
    of a name, `trust` says whose certificates are believed; both are the system's unless told otherwise. A caller that
    is `free`, for handlers that call whom they like, goes anywhere, follows redirects and unpacks answers."""

    def __init__(
        self,
        allowed: Allowed = NOTHING_INSIDE,
        *,
        seconds: float = CALL_SECONDS,
        bytes_max: int = ANSWER_BYTES_MAX,
        lookup: Lookup | None = None,
        trust: ssl.SSLContext | None = None,
        free: bool = False,
    ) -> None:
        self._allowed = allowed
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        self._bytes_max = bytes_max
        self._lookup = lookup or _system_lookup
        self._trust = trust
        self._free = free
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """What the server answered, asked again after a while where that may help. Unavailable if no answer came,
        InvalidRequest if none can come from there."""
        failures = 0
        while True:
            failures += 1
            last = failures >= ATTEMPTS
            asked: float | None = None
            try:
                reply = await self.call(method, url, headers=headers, body=body)
            except CommandFailed as error:
                if last or not error.retryable:
                    raise (Unavailable if error.retryable else InvalidRequest)(
                        f"{method} {url:.200}: {error}"
                    ) from None
            else:
                asked = seconds_of(reply.headers.get("Retry-After"))
                again = reply.status == 429 or reply.status >= 500
                if last or not again or (asked or 0) > RETRY_AFTER_SECONDS_MAX:
                    return reply
            pause = backoff(failures, base=FIRST_SECONDS, most=30.0)
            await asyncio.sleep(pause if asked is None else max(asked, pause))

    async def call(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """What the server answered, whatever it was. CommandFailed if nothing may be sent there, or no answer came."""
        if not self._free:
            check_url(url, self._allowed)
        try:
            try:
                return await self._once(method, url, headers, body)
            except aiohttp.ServerDisconnectedError:
                # Mostly a connection that was kept, and that the server had given up meanwhile.
                return await self._once(method, url, headers, body)
        except TimeoutError:
            raise CommandFailed(f"no answer within {self._timeout.total:g} s", retryable=True) from None
        except aiohttp.InvalidURL as error:
            raise CommandFailed(f"{url!r:.200} cannot be called: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            text = str(error) or type(error).__name__
            raise CommandFailed(f"no answer: {text}", retryable=True) from None
        except ValueError as error:
            raise CommandFailed(f"{url!r:.200} cannot be called: {error}") from None

    async def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        session = self._session = self._session or self._opened()
        async with session.request(method, url, headers=headers, data=body, allow_redirects=self._free) as response:
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > self._bytes_max:
                    response.close()  # not only left unread: the rest would come all the same
                    break
            whole = len(answer) <= self._bytes_max
            return Reply(response.status, response.headers.copy(), bytes(answer), whole)

    def _opened(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=None if self._free else _CheckedResolver(self._allowed, self._lookup),
            use_dns_cache=self._free,  # otherwise each connection is made to addresses judged for it
            ssl=self._trust or True,
            keepalive_timeout=_IDLE_SECONDS,
            limit=_CONNECTIONS_MAX,
            limit_per_host=_CONNECTIONS_PER_HOST_MAX,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=self._free,  # a few bytes can unpack to gigabytes
            trust_env=False,
            headers={"User-Agent": "fairlane"} | ({} if self._free else {"Accept-Encoding": "identity"}),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _CheckedResolver(AbstractResolver):
    """A resolver that looks a name up once; what it gives is what is connected to."""

    def __init__(self, allowed: Allowed, lookup: Lookup) -> None:
        self._allowed = allowed
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._lookup(host)
        if not found:
            raise OSError(None, "it has no address")
        check_addresses(host, port, found, self._allowed)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET6 if address.version == 6 else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        """There is nothing to close."""


async def _system_lookup(host: str) -> list[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return list(dict.fromkeys(ipaddress.ip_address(str(address[0])) for *_, address in found))
