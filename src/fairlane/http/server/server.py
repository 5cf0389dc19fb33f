"""The server: it listens, sees to the deadlines of its connections, and drains them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from fairlane.errors import BrokerFailed
from fairlane.http.server.connection import Connection
from fairlane.http.server.message import Limits, Request, Response, error_response, too_large
from fairlane.http.server.parser import KnownHeaders
from fairlane.http.server.shares import Proxies, Shares
from fairlane.http.server.sockets import BACKLOG, open_sockets
from fairlane.http.server.tls import Handshake, Tls, TlsListener
from fairlane.runtime.memory import Budget

Handler = Callable[[Request], Awaitable[Response]]


class Door(Protocol):
    """Decides on a request by its header alone, before a byte of its body is read."""

    def bound(self, address: str) -> None:
        """Somebody reached the server at this address, so it is one of its own."""

    def admit(self, request: Request, *, has_body: bool) -> Response | int:
        """How many bytes the body may have, or the answer that refuses the request. `request.caller` is whose the
        connection is, and afterwards whose it is from now on."""

    def left(self, caller: Any) -> None:
        """A connection is lost that was this caller's, or nobody's yet (None)."""

    def too_large(self, request: Request, bytes_max: int) -> Response:
        """The answer to a body that has more than it may."""

    def failed(self, error: Exception, request: Request | None = None) -> Response:
        """The answer to a request whose handler raised."""


class OpenDoor:
    """A door that lets everything in."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max

    def bound(self, address: str) -> None:
        pass

    def admit(self, request: Request, *, has_body: bool) -> Response | int:
        return self._bytes_max

    def left(self, caller: Any) -> None:
        pass

    def too_large(self, request: Request, bytes_max: int) -> Response:
        return too_large(bytes_max)

    def failed(self, error: Exception, request: Request | None = None) -> Response:
        return error_response(500, BrokerFailed.code, "the handler failed")


class Server:
    """Listens, sees to deadlines, and drains."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        *,
        door: Door | None = None,
        budget: Budget | None = None,
        proxies: Proxies | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.door = door or OpenDoor(self.limits.body_bytes_max)
        self.budget = budget or Budget(self.limits.inflight_bytes_max)
        self.budget.bytes_max = self.limits.inflight_bytes_max
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection | Handshake] = set()
        self.addresses: set[str] = set()
        """Its own, at which somebody reached it."""
        self.proxies = proxies or Proxies()
        self.shares = Shares(self.limits, self.proxies)
        self.known_headers: KnownHeaders = {}
        self.active = 0
        self.streams: set[asyncio.Task[None]] = set()
        self.draining = False
        self._sending: list[Connection] = []
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which was chosen if `port` is 0."""
        sockets = open_sockets(host, port)
        await self.listen(sockets)
        return int(sockets[0].getsockname()[1])

    async def listen(
        self, sockets: Sequence[socket.socket], *, door: Door | None = None, tls: Tls | None = None
    ) -> None:
        """Accept from sockets, which other processes may share; by another door than the server's, if one is given."""
        by = door or self.door

        for listening in sockets:
            if tls is not None:
                self._listeners.append(TlsListener(self, listening, by, tls))
                continue
            # It listens again, with a backlog of its own if it is not told.
            create = self.loop.create_unix_server if listening.family == socket.AF_UNIX else self.loop.create_server
            self._listeners.append(await create(lambda: Connection(self, by), sock=listening, backlog=BACKLOG))
        if self._sweeper is None:
            self._sweeper = self.loop.create_task(self._sweep(), name="fairlane deadlines")

    def send_soon(self, connection: Connection) -> None:
        """Have the connection send when the handlers of this turn have answered."""
        if not self._sending:
            self.loop.call_soon(self._send)
        self._sending.append(connection)

    def _send(self) -> None:
        sending, self._sending = self._sending, []
        for connection in sending:
            connection.send()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            now = self.loop.time()
            for connection in list(self.connections):
                connection.overdue(now)

    def stop_listening(self) -> None:
        """Take no new connection, and no new request on an idle one."""
        self.draining = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.hang_up_if_idle()

    async def close(self, *, grace_seconds: float) -> None:
        """Wait for the requests in flight, then hang up on everybody."""
        self.stop_listening()
        give_up_at = self.loop.time() + grace_seconds
        while self.active and self.loop.time() < give_up_at:  # noqa: ASYNC110  # many counts, no single event
            await asyncio.sleep(0.02)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.hang_up()
        if self.streams:
            await asyncio.wait(self.streams, timeout=max(0.0, give_up_at - self.loop.time()))
