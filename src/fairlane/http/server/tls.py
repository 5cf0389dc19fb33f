"""TLS: certificates from files, which are read again when asked, and the connection while it is being agreed on."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING

from fairlane.errors import InvalidRequest
from fairlane.http.server.connection import Connection

if TYPE_CHECKING:
    from fairlane.http.server.server import Door, Server

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: those with forward secrecy and authenticated encryption. TLS 1.3 has no others."""
_SHUTDOWN_SECONDS = 5.0
_ACCEPTED_AT_ONCE = 100
_PAUSE_SECONDS = 1.0
_PIECE_BYTES = 64 * 1024

log = logging.getLogger("fairlane")


class Tls:
    """The certificate of a listener, and the authority of its clients' if they must have one."""

    def __init__(self, cert: str, key: str, client_ca: str | None = None) -> None:
        """InvalidRequest if the files cannot be used."""
        self._files = cert, key, client_ca
        self.context = _context(cert, key, client_ca)

    def reload(self) -> None:
        """Read the files again, for connections from now on. InvalidRequest if they cannot be used; then those go on
        that were read before."""
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
        context.load_cert_chain(cert, key, password="")  # nobody is there to be asked for one
        if client_ca is not None:
            named = client_ca
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise InvalidRequest(f"cannot use the certificate in {named}: {reason}") from None
    return context


class TlsListener:
    """A listening socket whose connections speak TLS. It accepts by itself: a loop that does both tells nobody of a
    connection before it is agreed on."""

    def __init__(self, server: Server, listening: socket.socket, door: Door, tls: Tls) -> None:
        self._server = server
        self._listening = listening
        self._door = door
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
            Handshake(self._server, accepted, peer[0], self._door, self._tls)

    def close(self) -> None:
        """Asked again, as other listeners may be, it does nothing."""
        if self._listening.fileno() >= 0:
            self._server.loop.remove_reader(self._listening)
            self._listening.close()


class Handshake:
    """A connection whose TLS is being agreed on. It counts as any other, and the time for a header runs."""

    def __init__(self, server: Server, accepted: socket.socket, peer: str, door: Door, tls: Tls) -> None:
        self._server = server
        self._accepted = accepted
        self._door = door
        self.deadline = server.loop.time() + server.limits.header_seconds
        share = self._share = server.shares.of(peer)
        share.connections += 1
        server.connections.add(self)
        if share.connections > share.connections_max or len(server.connections) > server.limits.connections_max:
            accepted.close()  # an answer would need the agreement
            self.end()
        else:
            self._task = server.loop.create_task(self._agree(tls.context))

    async def _agree(self, context: ssl.SSLContext) -> None:
        try:
            await self._server.loop.connect_accepted_socket(
                lambda: TlsConnection(self._server, self._door, self),
                self._accepted,
                ssl=context,
                ssl_handshake_timeout=self._server.limits.header_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, asyncio.CancelledError):
            pass  # not agreed, hung up on, or out of time
        finally:
            self.end()

    def end(self) -> None:
        if self in self._server.connections:
            self._server.connections.discard(self)
            self._server.shares.leave(self._share)

    # The server's calls, as of a connection.

    def overdue(self, now: float) -> None:
        if now > self.deadline:
            self.hang_up()

    def hang_up(self) -> None:
        self._task.cancel()

    hang_up_if_idle = hang_up


class TlsConnection(Connection):
    """The connection that follows its handshake."""

    def __init__(self, server: Server, door: Door, handshake: Handshake) -> None:
        super().__init__(server, door)
        self._handshake: Handshake | None = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        handshake, self._handshake = self._handshake, None
        assert handshake is not None
        handshake.end()
        super().connection_made(transport)
        self.deadline = handshake.deadline

    def write_large(self, transport: asyncio.Transport, pieces: list[bytes]) -> None:
        """Piece by piece: TLS does not see what lies with the socket before it is asked to write more, and an answer in
        one piece would count as read."""
        for piece in pieces:
            view = memoryview(piece)
            for at in range(0, len(view), _PIECE_BYTES):
                transport.write(view[at : at + _PIECE_BYTES])
