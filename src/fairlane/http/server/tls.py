"""TLS: certificates from files, which can be reloaded, and handshakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from fairlane.errors import InvalidRequest
from fairlane.http.server.connection import Connection

if TYPE_CHECKING:
    from fairlane.http.server.server import RequestPolicy, Server

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2 with forward secrecy and authenticated encryption. TLS 1.3 has no others."""
_SHUTDOWN_SECONDS = 5.0
_ACCEPTED_AT_ONCE = 100
_PAUSE_SECONDS = 1.0
_PIECE_BYTES = 64 * 1024

log = logging.getLogger("fairlane")


class Tls:
    """The certificate of a listener, and the CA of client certificates if they are required."""

    def __init__(self, cert: str, key: str, client_ca: str | None = None) -> None:
        """Load the files. Raises InvalidRequest if they cannot be used."""
        self._files = cert, key, client_ca
        self.context = _context(cert, key, client_ca)

    def reload(self) -> None:
        """Reload the files, for new connections.

        Raises InvalidRequest if they cannot be used; the previous certificate stays in use then.
        """
        self.context = _context(*self._files)


def _context(cert: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    named = cert
    try:
        with open(cert, "rb"), open(named := key, "rb"):
            named = f"{cert} with the key {key}"
        context.load_cert_chain(cert, key, password="")  # nobody can enter a password here
        if client_ca is not None:
            named = client_ca
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise InvalidRequest(f"cannot use the certificate in {named}: {reason}") from None
    return context


class TlsListener:
    """A listening socket whose connections use TLS.

    It accepts connections itself, because the event loop reports a TLS connection only after its handshake.
    """

    def __init__(self, server: Server, listening: socket.socket, policy: RequestPolicy, tls: Tls) -> None:
        self._server = server
        self._listening = listening
        self._policy = policy
        self._tls = tls
        self._open()

    def _open(self) -> None:
        if self._listening.fileno() >= 0:
            self._server.loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files: some will be closed
                log.error("cannot accept a connection: %(error)s", {"error": error.strerror})
                self._server.loop.remove_reader(self._listening)
                self._server.loop.call_later(_PAUSE_SECONDS, self._open)
                return
            accepted.setblocking(False)
            Handshake(self._server, accepted, peer[0], self._policy, self._tls)

    def close(self) -> None:
        """Close the socket. A second call is a no-op."""
        if self._listening.fileno() >= 0:
            self._server.loop.remove_reader(self._listening)
            self._listening.close()


class Handshake:
    """A TLS handshake in progress. It counts as a connection, and its time counts towards the header timeout."""

    def __init__(self, server: Server, accepted: socket.socket, peer: str, policy: RequestPolicy, tls: Tls) -> None:
        self._server = server
        self._accepted = accepted
        self._policy = policy
        self.deadline = server.loop.time() + server.limits.header_seconds
        limit = self._peer_limit = server.peer_limits.of(peer)
        limit.connections += 1
        server.connections.add(self)
        if limit.connections > limit.connections_max or len(server.connections) > server.limits.connections_max:
            accepted.close()  # an answer would need the handshake
            self.end()
        else:
            self._task = server.loop.create_task(self._agree(tls.context))

    async def _agree(self, context: ssl.SSLContext) -> None:
        try:
            await self._server.loop.connect_accepted_socket(
                lambda: TlsConnection(self._server, self._policy, self),
                self._accepted,
                ssl=context,
                ssl_handshake_timeout=self._server.limits.header_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, asyncio.CancelledError):
            pass  # failed, closed, or timed out
        finally:
            self.end()

    def end(self) -> None:
        if self in self._server.connections:
            self._server.connections.discard(self)
            self._server.peer_limits.disconnect(self._peer_limit)

    # Calls by the server, as for a connection.

    def check_deadlines(self, now: float) -> None:
        if now > self.deadline:
            self.hang_up()

    def hang_up(self) -> None:
        self._task.cancel()

    hang_up_if_idle = hang_up


class TlsConnection(Connection):
    """The connection after its handshake."""

    def __init__(self, server: Server, policy: RequestPolicy, handshake: Handshake) -> None:
        super().__init__(server, policy)
        self._handshake: Handshake | None = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        handshake, self._handshake = self._handshake, None
        assert handshake is not None
        handshake.end()
        super().connection_made(transport)
        self.deadline = handshake.deadline

    def write_large(self, transport: asyncio.Transport, pieces: list[bytes]) -> None:
        """Write piece by piece.

        TLS notices unsent data of the socket only when it writes more, so an answer in one piece would count as read.
        """
        for piece in pieces:
            view = memoryview(piece)
            for at in range(0, len(view), _PIECE_BYTES):
                transport.write(view[at : at + _PIECE_BYTES])
