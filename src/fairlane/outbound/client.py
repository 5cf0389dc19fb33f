"""The outbound HTTP client: sends requests to servers outside the broker, and only to addresses that are allowed.

Every request has a timeout and a limit on the size of its answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping

from fairlane.errors import CommandFailed, InvalidRequest, Unavailable
from fairlane.extras import MissingExtra
from fairlane.outbound.addresses import NOTHING_INSIDE, Address, Allowed, check_addresses, check_url
from fairlane.outbound.reply import Reply
from fairlane.runtime.backoff import backoff, seconds_of

try:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult
except ModuleNotFoundError as error:
    raise MissingExtra("calling other services over HTTP", "worker", error.name) from None

ATTEMPTS = 5
FIRST_SECONDS = 0.2
RETRY_AFTER_SECONDS_MAX = 60.0
"""Longest Retry-After to wait for. If a server asks for more, the call fails and the message is retried later."""
CALL_SECONDS = 10.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES_MAX = 1024 * 1024
_IDLE_SECONDS = 15.0
_CONNECTIONS_MAX = 256
_CONNECTIONS_PER_HOST_MAX = 64

Lookup = Callable[[str], Awaitable[list[Address]]]


class OutboundClient:
    """An HTTP client that is bound to the event loop of its first call.

    It reads at most `bytes_max` of an answer. `lookup` resolves names and `trust` verifies certificates; by default
    the system does both. An `unrestricted` client, for handlers, connects to any address, follows redirects and
    decompresses answers.
    """

    def __init__(
        self,
        allowed: Allowed = NOTHING_INSIDE,
        *,
        seconds: float = CALL_SECONDS,
        bytes_max: int = ANSWER_BYTES_MAX,
        lookup: Lookup | None = None,
        trust: ssl.SSLContext | None = None,
        unrestricted: bool = False,
    ) -> None:
        self._allowed = allowed
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        self._bytes_max = bytes_max
        self._lookup = lookup or _system_lookup
        self._trust = trust
        self._unrestricted = unrestricted
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Return the answer of the server. Retries with backoff after 429, 5xx and failed connections.

        Raises Unavailable if no answer came, InvalidRequest if the URL may not be called.
        """
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
        """Return the answer of the server, whatever its status.

        Raises CommandFailed if the URL may not be called, or no answer came.
        """
        if not self._unrestricted:
            check_url(url, self._allowed)
        try:
            try:
                return await self._request(method, url, headers, body)
            except aiohttp.ServerDisconnectedError:
                # Usually a kept-alive connection that the server closed just now.
                return await self._request(method, url, headers, body)
        except TimeoutError:
            raise CommandFailed(f"no answer within {self._timeout.total:g} s", retryable=True) from None
        except aiohttp.InvalidURL as error:
            raise CommandFailed(f"{url!r:.200} cannot be called: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            text = str(error) or type(error).__name__
            raise CommandFailed(f"no answer: {text}", retryable=True) from None
        except ValueError as error:
            raise CommandFailed(f"{url!r:.200} cannot be called: {error}") from None

    async def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        session = self._session = self._session or self._open_session()
        async with session.request(
            method, url, headers=headers, data=body, allow_redirects=self._unrestricted
        ) as response:
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > self._bytes_max:
                    response.close()  # leaving the rest unread is not enough: it would still be received
                    break
            whole = len(answer) <= self._bytes_max
            return Reply(response.status, response.headers.copy(), bytes(answer), whole)

    def _open_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=None if self._unrestricted else _CheckingResolver(self._allowed, self._lookup),
            use_dns_cache=self._unrestricted,  # otherwise every connection resolves and checks its addresses
            ssl=self._trust or True,
            keepalive_timeout=_IDLE_SECONDS,
            limit=_CONNECTIONS_MAX,
            limit_per_host=_CONNECTIONS_PER_HOST_MAX,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=self._unrestricted,  # a few bytes can decompress to gigabytes
            trust_env=False,
            headers={"User-Agent": "fairlane"} | ({} if self._unrestricted else {"Accept-Encoding": "identity"}),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _CheckingResolver(AbstractResolver):
    """A resolver that checks each address it returns. aiohttp connects to these addresses and to no others."""

    def __init__(self, allowed: Allowed, lookup: Lookup) -> None:
        self._allowed = allowed
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._lookup(host)
        if not found:
            raise OSError(None, "the host has no address")
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
        """Do nothing, because a resolver holds no resources."""


async def _system_lookup(host: str) -> list[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return list(dict.fromkeys(ipaddress.ip_address(str(address[0])) for *_, address in found))
