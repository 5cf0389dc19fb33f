"""Connections to a server: HTTP/1.1, one request at a time, responses read in full."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from fairlane.client.tls import TlsOptions

if TYPE_CHECKING:
    from ssl import SSLContext

IDLE_SECONDS = 15.0
"""Reuse an idle connection for this long. Servers close theirs later."""
PIECE_BYTES = 1024 * 1024
"""Send a large body in pieces of this size, so that other tasks can run in between."""
_HEAD_BYTES_MAX = 64 * 1024
_BODILESS = (204, 304)
_HEX = re.compile(rb"[0-9a-fA-F]{1,15}")


class RawResponse(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    """Response headers, by lower-case name."""
    body: bytes


class ConnectionBroken(Exception):
    """The connection ended, or the response was not HTTP. `silent` is True if nothing was received."""

    def __init__(self, reason: str, *, silent: bool = False) -> None:
        super().__init__(reason)
        self.silent = silent


class ConnectionPool:
    """The idle connections to one server, and the constant parts of each request to it."""

    def __init__(self, url: str, tls_options: TlsOptions) -> None:
        parts = urlsplit(url)
        self.tls = parts.scheme == "https"
        self.path = parts.path if parts.scheme == "unix" else None
        self._tls_options = tls_options
        self.host = parts.hostname or "localhost"
        self.port = parts.port or (443 if self.tls else 80)
        self.prefix = "" if self.path else parts.path
        name = f"[{self.host}]" if ":" in self.host else self.host.encode("idna").decode()
        self.head = f" HTTP/1.1\r\nHost: {name}{f':{parts.port}' if parts.port else ''}\r\nUser-Agent: fairlane\r\n"
        self.login = ""
        """Authorization header for the user and password in the URL, if it has any."""
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.login = f"Authorization: Basic {b64encode(user.encode()).decode()}\r\n"
        self._context: SSLContext | None = None
        self.idle: list[ClientConnection] = []

    def take_idle(self) -> ClientConnection | None:
        """Return a connection that has not been idle for too long, or None."""
        while self.idle:
            connection = self.idle.pop()
            if connection.open and monotonic() - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        if self.path is not None:
            return (await loop.create_unix_connection(ClientConnection, self.path))[1]
        if self.tls and self._context is None:
            self._context = self._tls_options.context()
        # Try the other addresses of a host when one does not answer. uvloop has no such option.
        eyeballs: dict[str, Any] = {"happy_eyeballs_delay": 0.25} if isinstance(loop, asyncio.BaseEventLoop) else {}
        _, connection = await loop.create_connection(
            ClientConnection, self.host, self.port, ssl=self._context, **eyeballs
        )
        return connection

    def release(self, connection: ClientConnection) -> None:
        if connection.open:
            connection.idle_since = monotonic()
            self.idle.append(connection)


class ClientConnection(asyncio.Protocol):
    """A connection. Close it after an exchange that failed."""

    def __init__(self) -> None:
        self.open = True
        self.idle_since = 0.0
        self._writable: asyncio.Event | None = None
        self._answer: asyncio.Future[RawResponse] | None = None
        self._clear()

    def _clear(self) -> None:
        self._received = bytearray()
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._left: int | None = 0
        """Bytes of the body that are still to be read. None means until the connection closes, -1 means chunked."""
        self._chunks: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def exchange(self, head: bytes, body: bytes | None) -> RawResponse:
        """Send a request and return its response. Raises ConnectionBroken."""
        self._clear()
        answer: asyncio.Future[RawResponse] = asyncio.get_running_loop().create_future()
        self._answer = answer
        if body is None or len(body) <= PIECE_BYTES:
            self._transport.write(head + body if body else head)
        else:
            self._transport.write(head)
            for at in range(0, len(body), PIECE_BYTES):
                self._transport.write(body[at : at + PIECE_BYTES])
                await asyncio.sleep(0)
                if self._writable is not None:
                    waiting: asyncio.Future[Any] = asyncio.ensure_future(self._writable.wait())
                    await asyncio.wait(
                        {waiting, cast(asyncio.Future[Any], answer)}, return_when=asyncio.FIRST_COMPLETED
                    )
                    waiting.cancel()
                if answer.done():
                    break  # the server has refused it already, and the connection is not reused
        return await answer

    def close(self) -> None:
        self.open = False
        self._transport.abort()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
        self._writable = None

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self.resume_writing()
        if self._answer is not None and not self._answer.done():
            if self._status and self._left is None:
                self._done(bytes(self._received))
            else:
                silent = not (self._received or self._status)
                self._fail(str(error or "") or "the server closed the connection", silent=silent)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # data without a request
            return
        self._received += data
        try:
            if self._status == 0 and not self._read_head():
                return
            if self._left == -1:
                self._read_chunks()
            elif self._left is not None and len(self._received) >= self._left:
                if len(self._received) > self._left:
                    raise ValueError("more than one answer")
                self._done(bytes(self._received))
        except (ValueError, IndexError) as error:
            self._fail(f"the answer is not HTTP: {error}")

    def _read_head(self) -> bool:
        version, status, lines = b"", b"1", [b""]
        while status[:1] == b"1":  # skip informational responses
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > _HEAD_BYTES_MAX:
                    raise ValueError("its header does not end")
                return False
            first, *lines = bytes(self._received[:end]).split(b"\r\n")
            del self._received[: end + 4]
            version, status, *_ = first.split(b" ", 2)
            if not version.startswith(b"HTTP/1.") or not (status.isdigit() and len(status) == 3):
                raise ValueError("it has no status")
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise ValueError("a header has no name")
            self._headers[name.lower()] = value.strip()
        self._status = int(status)
        coding, length = self._headers.get(b"transfer-encoding"), self._headers.get(b"content-length")
        if self._status in _BODILESS:
            self._left = 0
        elif coding is not None:
            if coding.lower() != b"chunked":
                raise ValueError("its transfer coding is unknown")
            self._left = -1
        elif length is not None:
            if not length.isdigit():
                raise ValueError("its length is not a number")
            self._left = int(length)
        else:
            self._left = None
        if version == b"HTTP/1.0" or self._left is None or self._headers.get(b"connection", b"").lower() == b"close":
            self.open = False
        return True

    def _read_chunks(self) -> None:
        received = self._received
        while (line := received.find(b"\r\n")) >= 0:
            digits = bytes(received[:line]).partition(b";")[0].strip()
            if not _HEX.fullmatch(digits):
                raise ValueError("a chunk has no length")
            if (size := int(digits, 16)) == 0:
                end = line if received[line : line + 4] == b"\r\n\r\n" else received.find(b"\r\n\r\n")
                if end >= 0:
                    self._done(b"".join(self._chunks))
                return
            if len(received) < line + 2 + size + 2:
                return
            self._chunks.append(bytes(received[line + 2 : line + 2 + size]))
            if received[line + 2 + size : line + 4 + size] != b"\r\n":
                raise ValueError("a chunk has no end")
            del received[: line + 4 + size]

    def _done(self, body: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(RawResponse(self._status, self._headers, body))
        if not self.open:
            self._transport.abort()

    def _fail(self, reason: str, *, silent: bool = False) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionBroken(reason, silent=silent))
