"""The outbound caller: one request to somebody else's server, from inside our network, to addresses that were checked,
no further than it answers, and with an end to everything."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from fairlane.errors import CommandFailed
from fairlane.outbound.addresses import Address, Allowed, check_addresses, check_url

CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES_MAX = 1024 * 1024
_IDLE_SECONDS = 15.0
_CONNECTIONS_MAX = 256
_CONNECTIONS_PER_HOST_MAX = 64

Lookup = Callable[[str], Awaitable[list[Address]]]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes | None
    """As it came, never unpacked; None if there was more than anybody needs."""


class Caller:
    """Bound to the event loop of its first call. Of an answer `bytes_max` are read. `lookup` gives the addresses
    of a name, `trust` says whose certificates are believed; both are the system's unless told otherwise."""

    def __init__(
        self,
        allowed: Allowed | None = None,
        *,
        seconds: float = CALL_SECONDS,
        bytes_max: int = ANSWER_BYTES_MAX,
        lookup: Lookup | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed = allowed or Allowed()
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        self.bytes_max = bytes_max
        self._lookup = lookup or _system_lookup
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None

    async def call(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """What the server answered, whatever it was. CommandFailed if nothing may be sent there, or no answer came."""
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

    async def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        async with self._opened().request(method, url, headers=headers, data=body, allow_redirects=False) as response:
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > self.bytes_max:
                    response.close()  # not only left unread: the rest would come all the same
                    break
            whole = bytes(answer) if len(answer) <= self.bytes_max else None
            return Answer(response.status, response.headers.copy(), whole)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_CheckedResolver(self._allowed, self._lookup),
                use_dns_cache=False,  # each connection is made to addresses judged for it
                ssl=self._trust or True,
                keepalive_timeout=_IDLE_SECONDS,
                limit=_CONNECTIONS_MAX,
                limit_per_host=_CONNECTIONS_PER_HOST_MAX,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a few bytes can unpack to gigabytes
                trust_env=False,
                headers={"User-Agent": "fairlane", "Accept-Encoding": "identity"},
            )
        return self._session

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
