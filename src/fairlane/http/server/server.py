"""The server: it listens, sees to the deadlines of its connections, and drains them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from fairlane.errors import BrokerFailed, InvalidRequest, Unavailable
from fairlane.http.server.connection import Connection
from fairlane.http.server.message import Limits, Request, Response, error_response, too_large
from fairlane.http.server.parser import KnownHeaders
from fairlane.runtime.memory import Budget

BACKLOG = 4096
Handler = Callable[[Request], Awaitable[Response]]


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """One listening socket for each address of `host`, all on one port, which is chosen if `port` is 0."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidRequest(f"{host!r:.200} is no address to listen on: {error}") from None
    except OverflowError:
        raise InvalidRequest(f"port is {port}; it must be 0 to 65535") from None
    opened: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            if opened:
                port = opened[0].getsockname()[1]
            listening = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                _listen(listening, (address[0], port, *address[2:]))
            except OSError as error:
                taken = "; --port names another, 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
                raise Unavailable(f"cannot listen on {host} port {port}: {error.strerror}{taken}") from None
            opened.append(listening)
        undo.pop_all()
    return opened


def _listen(listening: socket.socket, address: tuple[object, ...]) -> None:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listening.family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.bind(address)
    listening.listen(BACKLOG)
    listening.setblocking(False)


class Door(Protocol):
    """Decides on a request by its header alone, before a byte of its body is read."""

    def bound(self, address: str) -> None:
        """Somebody reached the server at this address, so it is one of its own."""

    def admit(self, request: Request, *, has_body: bool) -> Response | int:
        """How many bytes the body may have, or the answer that refuses the request."""

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

    def too_large(self, request: Request, bytes_max: int) -> Response:
        return too_large(bytes_max)

    def failed(self, error: Exception, request: Request | None = None) -> Response:
        return error_response(500, BrokerFailed.code, "the handler failed")


class Server:
    """Listens, sees to deadlines, and drains."""

    def __init__(
        self, handler: Handler, limits: Limits | None = None, *, door: Door | None = None, budget: Budget | None = None
    ) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.door = door or OpenDoor(self.limits.body_bytes_max)
        self.budget = budget or Budget(self.limits.inflight_bytes_max)
        self.budget.bytes_max = self.limits.inflight_bytes_max
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.addresses: set[str] = set()
        """Its own, at which somebody reached it."""
        self.known_headers: KnownHeaders = {}
        self.active = 0
        self.streams: set[asyncio.Task[None]] = set()
        self.draining = False
        self._sending: list[Connection] = []
        self._listeners: list[asyncio.Server] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which was chosen if `port` is 0."""
        sockets = open_sockets(host, port)
        await self.listen(sockets)
        return int(sockets[0].getsockname()[1])

    async def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept from sockets, which other processes may share."""
        for listening in sockets:
            # It listens again, with a backlog of its own if it is not told.
            listener = await self.loop.create_server(lambda: Connection(self), sock=listening, backlog=BACKLOG)
            self._listeners.append(listener)
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
