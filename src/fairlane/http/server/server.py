"""The HTTP server: listens on sockets, enforces the deadlines of its connections, and drains them at the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from fairlane.errors import BrokerFailed
from fairlane.http.server.connection import Connection
from fairlane.http.server.message import Limits, Request, Response, error_response, too_large
from fairlane.http.server.parser import KnownHeaders
from fairlane.http.server.peer_limits import PeerLimits, Proxies
from fairlane.http.server.sockets import BACKLOG, open_sockets
from fairlane.http.server.tls import Handshake, Tls, TlsListener
from fairlane.runtime.memory import ByteBudget

Handler = Callable[[Request], Awaitable[Response]]


class RequestPolicy(Protocol):
    """Decides on each request of a listener by its headers, before its body is read."""

    def on_bound(self, address: str) -> None:
        """Note an address of this server that a client connected to."""

    def on_headers(self, request: Request, *, has_body: bool) -> Response | int:
        """Return the maximum size of the body, or the response that refuses the request.

        `request.caller` is the caller of the request before on this connection. The policy sets the new one.
        """

    def on_disconnect(self, caller: Any) -> None:
        """Note the end of a connection. `caller` sent its last request; None if there was none."""

    def on_body_too_large(self, request: Request, bytes_max: int) -> Response:
        """Return the response to a body that is too large."""

    def on_error(self, error: Exception, request: Request | None = None) -> Response:
        """Return the response to a request whose handler raised."""


class AcceptAll:
    """A policy that accepts every request."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max

    def on_bound(self, address: str) -> None:
        pass

    def on_headers(self, request: Request, *, has_body: bool) -> Response | int:
        return self._bytes_max

    def on_disconnect(self, caller: Any) -> None:
        pass

    def on_body_too_large(self, request: Request, bytes_max: int) -> Response:
        return too_large(bytes_max)

    def on_error(self, error: Exception, request: Request | None = None) -> Response:
        return error_response(500, BrokerFailed.code, "the handler failed")


class Server:
    """An HTTP server that calls `handler` for each request."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        *,
        policy: RequestPolicy | None = None,
        budget: ByteBudget | None = None,
        proxies: Proxies | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.policy = policy or AcceptAll(self.limits.body_bytes_max)
        self.budget = budget or ByteBudget()
        self.budget.limit(self.limits.inflight_bytes_max)
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection | Handshake] = set()
        self.addresses: set[str] = set()
        """Local addresses that clients connected to."""
        self.proxies = proxies or Proxies()
        self.peer_limits = PeerLimits(self.limits, self.proxies)
        self.known_headers: KnownHeaders = {}
        self.active = 0
        self.streams: set[asyncio.Task[None]] = set()
        self.draining = False
        self._sending: list[Connection] = []
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen on a new socket. Returns its port, which the system chooses if `port` is 0."""
        sockets = open_sockets(host, port)
        await self.listen(sockets)
        return int(sockets[0].getsockname()[1])

    async def listen(
        self, sockets: Sequence[socket.socket], *, policy: RequestPolicy | None = None, tls: Tls | None = None
    ) -> None:
        """Accept connections from sockets, which other processes may share. `policy` replaces the server's own."""
        chosen = policy or self.policy

        for listening in sockets:
            if tls is not None:
                self._listeners.append(TlsListener(self, listening, chosen, tls))
                continue
            # asyncio calls listen() again, with its own backlog unless given.
            create = self.loop.create_unix_server if listening.family == socket.AF_UNIX else self.loop.create_server
            self._listeners.append(await create(lambda: Connection(self, chosen), sock=listening, backlog=BACKLOG))
        if self._sweeper is None:
            self._sweeper = self.loop.create_task(self._sweep(), name="fairlane deadlines")

    def send_soon(self, connection: Connection) -> None:
        """Send the answers of the connection at the end of this loop iteration."""
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
            self._check_deadlines()

    def _check_deadlines(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.check_deadlines(now)

    def stop_listening(self) -> None:
        """Accept no new connections, and close idle ones."""
        self.draining = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.hang_up_if_idle()

    async def close(self, *, grace_seconds: float) -> None:
        """Wait for the requests in flight, then close all connections."""
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
