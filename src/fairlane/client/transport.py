"""The transport of a client: chooses a server, sends the request, and retries it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import ssl
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple
from urllib.parse import quote, urlencode

from fairlane.client.connection import ClientConnection, ConnectionBroken, ConnectionPool
from fairlane.client.credential import Credential
from fairlane.client.errors import error_of
from fairlane.client.retries import Retries
from fairlane.client.servers import Servers
from fairlane.client.tls import TlsOptions
from fairlane.errors import (
    FairlaneError,
    InvalidRequest,
    LaneLocked,
    LaneWaiting,
    OutcomeUnknown,
    Overloaded,
    StoreUnavailable,
    TooManyPolls,
    Unavailable,
)
from fairlane.model.ids import uuid7
from fairlane.otel import tracing

log = logging.getLogger("fairlane.client")
CONNECT_SECONDS = 5.0
LOG_SECONDS = 60.0
"""Log a 429 at most once in this time for each error code."""
_UNAVAILABLE = (502, 503, 504)
_OF_THE_STORE = (StoreUnavailable, LaneWaiting, LaneLocked, TooManyPolls)
"""Error codes that a healthy broker answers. They do not mark the server as failed."""


class ServerResponse(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None
    url: str
    """The server that sent the response."""

    def error(self) -> FairlaneError:
        return error_of(self.status, self.body, self.retry_after)


class Call(NamedTuple):
    """A request. `path` is already encoded; `key` decides which server is tried first."""

    method: str
    path: str
    key: str
    body: bytes | None = None
    wait: float = 0.0
    """Seconds that the server may wait before it answers."""
    url: str | None = None
    """The only server to ask. None means any."""
    takes: Callable[[bytes], bool] = lambda body: False
    """Function that returns True for a body to accept even if the status says that the server is unavailable."""


class Transport:
    """Sends calls to the servers and retries them. Bound to the event loop of its first call."""

    def __init__(
        self, servers: Servers, retries: Retries, *, timeout: float, credential: Credential, tls_options: TlsOptions
    ) -> None:
        self.servers = servers
        self.retries = retries
        self.own_key = uuid7()  # spreads clients over the servers, and keeps each client on one
        self._timeout = timeout
        self.spans = tracing.spans()
        self._credential = credential
        self._tls_options = tls_options
        self._opened: dict[str, ConnectionPool] = {}
        self._busy: set[ClientConnection] = set()
        self._closed = False
        self._logged_at: dict[str, float] = {}
        """Time of the last logged 429 for each error code."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        query: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
        wait: float = 0.0,
    ) -> bytes:
        """Send a request and return the body of the successful response. Raises the error of any other response."""
        if query:
            path = f"{path}?{urlencode(query)}"
        call = Call(method, path, self.own_key if key is None else key, body, wait)
        failures = 0
        while True:
            answer = await self.exchange(call)
            if answer.status < 300:
                return answer.body
            failures += 1
            delay = self.delay_after(error := answer.error(), failures)
            if delay is None:
                raise error
            await asyncio.sleep(delay)

    def delay_after(self, error: FairlaneError, failures: int) -> float | None:
        """Return the delay before the next attempt, in seconds, or None if the call is not retried.

        Logs the first 429 of each code, then at most one a minute.
        """
        delay = self.retries.after_answer(error, failures)
        if delay is not None and isinstance(error, Overloaded):
            now = monotonic()
            if now - self._logged_at.get(error.code, -math.inf) >= LOG_SECONDS:
                self._logged_at[error.code] = now
                log.warning(
                    "the server is busy (429 %(code)s: %(error)s); retrying", {"code": error.code, "error": error}
                )
        return delay

    async def exchange(self, call: Call) -> ServerResponse:
        """Return the first response of a server that is available, whatever its status."""
        failures = 0
        failure: FairlaneError = Unavailable("no server was tried")
        uncertain = False  # True if a request was sent but its response never came
        while True:
            for url in self.servers.order(call.key) if call.url is None else [call.url]:
                try:
                    answer = await self._send(url, call)
                except _Unreached as broken:
                    failure = Unavailable(str(broken))
                except _Dropped as broken:
                    uncertain, failure = True, Unavailable(str(broken))
                else:
                    if answer.status not in _UNAVAILABLE or call.takes(answer.body):
                        self.servers.mark_healthy(url)
                        return answer
                    failure = answer.error()
                    if isinstance(failure, _OF_THE_STORE):
                        continue  # the broker is healthy, and its journal may hold earlier messages of the partition
                self.servers.mark_failed(url)
            failures += 1
            delay = self.retries.after_failure(failures)
            if delay is None:
                if call.url is not None:
                    failure = type(failure)(f"{failure}; {call.url} has earlier messages of the same partition")
                raise OutcomeUnknown(f"{failure}; the request may have been applied") if uncertain else failure
            await asyncio.sleep(delay)

    async def _send(self, url: str, call: Call) -> ServerResponse:
        server = self._server(url)
        head = f"{call.method} {server.prefix}{call.path}{server.head}{self._credential.line() or server.login}"
        if call.body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(call.body)}\r\n"
        elif call.method != "GET":
            head += "Content-Length: 0\r\n"
        if self.spans is not None:
            head += "".join(f"{name}: {value}\r\n" for name, value in self.spans.context().items())
        sent = f"{head}\r\n".encode()
        seconds = self._timeout + call.wait
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(server, url, sent, call)
        except TimeoutError:
            raise _Dropped(f"{url} did not answer within {seconds:g} s") from None
        except ConnectionBroken as error:
            raise _Dropped(f"the connection to {url} broke: {error}") from None

    async def _exchange(self, server: ConnectionPool, url: str, head: bytes, call: Call) -> ServerResponse:
        reused = connection = server.take_idle()
        if connection is None:
            connection = await _connected(server, url)
        self._busy.add(connection)
        try:
            reply = await connection.exchange(head, call.body)
        except BaseException as error:
            connection.close()
            # A server may close an idle connection at any moment; a GET can be sent again safely.
            if reused and isinstance(error, ConnectionBroken) and error.silent and call.method == "GET":
                return await self._exchange(server, url, head, call)
            raise
        finally:
            self._busy.discard(connection)
        server.release(connection)
        retry_after = reply.headers.get(b"retry-after")
        return ServerResponse(
            reply.status, reply.body, None if retry_after is None else retry_after.decode("latin-1"), url
        )

    def _server(self, url: str) -> ConnectionPool:
        if self._closed:
            raise InvalidRequest("this client is closed")
        server = self._opened.get(url)
        if server is None:
            server = ConnectionPool(url, self._tls_options)
            self._credential.check(server.host, tls=server.tls)
            self._opened[url] = server
        return server

    async def close(self) -> None:
        self._closed = True
        for connection in [*self._busy, *(one for server in self._opened.values() for one in server.idle)]:
            connection.close()
        if self._opened:
            self._opened.clear()
            await asyncio.sleep(0)  # lets the event loop close the sockets


async def _connected(server: ConnectionPool, url: str) -> ClientConnection:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await server.connect()
    except TimeoutError:
        raise _Unreached(f"cannot reach {url}: no connection within {CONNECT_SECONDS:g} s") from None
    except OSError as error:
        raise _Unreached(f"cannot reach {url}: {_reason(error)}") from None


class _Unreached(Exception):
    """The request was never sent."""


class _Dropped(Exception):
    """The request was sent, but the connection broke before a response came."""


def _reason(error: OSError) -> str:
    """Return why a connection failed.

    asyncio puts the address where the reason should be, or joins several reasons; this leaves one reason only.
    """
    number = re.search(r"\[Errno (\d+)\]", str(error))
    if number is not None and not isinstance(error, ssl.SSLError):
        return os.strerror(int(number[1])).lower()
    return (error.strerror or str(error) or type(error).__name__).lower()


def path_of(*parts: str) -> str:
    """Join the parts to a path under /api/v1. Each part is one segment, whatever it contains."""
    return "/api/v1" + "".join(f"/{_segment(part)}" for part in parts)


def _segment(part: str) -> str:
    # A segment of dots alone would be read as a relative path.
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")
