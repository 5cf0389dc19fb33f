"""One client's connection: what it sends becomes requests, answered one at a time and in order.

Parsing is llhttp's, through httptools. A handler whose client goes away is cancelled, so that nobody works, or holds a
lease, for a caller that is not there."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from fairlane.http.limits import Refused, long_header, overloaded, too_large, too_many_connections
from fairlane.http.message import Request, Response, error_response, serialise

if TYPE_CHECKING:
    from fairlane.http.server import Server

_LINGER_SECONDS = 5.0
_SOON_BYTES_MAX = 16 * 1024
"""Shorter answers are written together at the end of the loop's turn: a client with many connections is then woken
once for all of them, which costs more than writing one."""


class Connection(asyncio.Protocol):
    """One client's connection. The parser calls the `on_` methods."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = server.loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self._head_bytes = 0
        self._header_bytes = 0
        self._body_bytes = 0
        self._held_bytes = 0
        self._unsent: list[tuple[bytes, Response]] = []
        self._in_body = False
        self._closing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._body_began = 0.0
        self.deadline = 0.0

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        self.deadline = self._loop.time() + self._limits.header_seconds
        if not self._server.admit(self):
            self._refuse(too_many_connections())

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._let_go(self._held_bytes)
        self._closing = True
        self._take_back()
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if not self._in_body:
            if self._head_bytes == 0 and self._task is None:
                self.deadline = self._loop.time() + self._limits.header_seconds
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(error_response(400, "bad_request", "this server does not upgrade connections"))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause.response
                if isinstance(cause, Refused)
                else error_response(400, "bad_request", f"this is not HTTP/1.1: {error}"),
                linger=isinstance(cause, Refused) and cause.linger,
            )
        else:
            if not self._in_body and self._head_bytes > self._limits.header_bytes_max:
                self._refuse(long_header(self._limits))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # The parser's calls.

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._chunks = []
        self._body_bytes = 0
        self._header_bytes = 0

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > self._limits.target_bytes_max:
            raise Refused(
                error_response(414, "url_too_long", f"the URL may have {self._limits.target_bytes_max} bytes")
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self._limits.header_bytes_max:
            raise Refused(long_header(self._limits))
        name = name.lower()
        if name in self._headers:
            if name in (b"host", b"content-length", b"authorization"):
                raise Refused(error_response(400, "bad_request", f"header {name.decode('latin-1')} is given twice"))
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._head_bytes = 0
        self._body_began = self._loop.time()
        if not self._headers and self._parser.get_http_version() == "0.9":
            raise Refused(error_response(400, "bad_request", "this is HTTP/0.9; use HTTP/1.1"))
        length = self._headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limits.body_bytes_max:
            raise Refused(too_large(self._limits))
        if int(length) and self._server.held_bytes + int(length) > self._limits.inflight_bytes_max:
            raise Refused(overloaded(), linger=True)
        if self._task is None:
            self.deadline = self._body_began + self._limits.body_seconds
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, chunk: bytes) -> None:
        self._body_bytes += len(chunk)
        if self._body_bytes > self._limits.body_bytes_max:
            raise Refused(too_large(self._limits))
        self._held_bytes += len(chunk)
        self._server.held_bytes += len(chunk)
        if self._server.held_bytes > self._limits.inflight_bytes_max:
            raise Refused(overloaded(), linger=True)
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._head_bytes = 0
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        method = self._parser.get_method().decode("ascii")
        request = Request(method, self._target, self._headers, body, self._peer)
        request.keep_alive = self._parser.should_keep_alive()
        self._waiting.append(request)
        if self._task is None:
            self._task = self._loop.create_task(self._serve())
        elif len(self._waiting) > self._limits.pipelined_max and self._transport is not None:
            self._transport.pause_reading()

    # Serving.

    async def _serve(self) -> None:
        """Answer the requests that wait, one after another."""
        transport = self._transport
        assert transport is not None
        while self._waiting and not self._closing:
            request = self._waiting.popleft()
            if len(self._waiting) < self._limits.pipelined_max:
                transport.resume_reading()
            self.deadline = float("inf")
            self._server.active += 1
            try:
                response = await self._server.handler(request)
            finally:
                self._server.active -= 1
                self._let_go(len(request.body))
            close = response.close or not request.keep_alive or self._server.draining
            answer = serialise(response, head_only=request.method == "HEAD", close=close)
            self._unsent.append((answer, response))
            if transport.is_closing():
                self._take_back()
                return
            if close or len(answer) > _SOON_BYTES_MAX:
                self.send()
            else:
                self._server.send_soon(self)
            if not self._writable.is_set():
                self.deadline = self._loop.time() + self._limits.write_seconds
                await self._writable.wait()
            if close:
                self._shut()
                return
        self._task = None
        self.deadline = self._loop.time() + self._limits.idle_seconds

    def send(self) -> None:
        """Write the answers that wait."""
        if self._transport is None or self._transport.is_closing():
            self._take_back()
        elif self._unsent:
            answers, self._unsent = self._unsent, []
            self._transport.write(b"".join([answer for answer, _ in answers]))

    def _take_back(self) -> None:
        """Nobody is there any more for the answers that wait."""
        answers, self._unsent = self._unsent, []
        for _, response in answers:
            if response.unsent is not None:
                response.unsent()

    def _let_go(self, count: int) -> None:
        """So many bytes of this connection's bodies are no longer held."""
        count = min(count, self._held_bytes)
        self._held_bytes -= count
        self._server.held_bytes -= count

    def _refuse(self, response: Response, *, linger: bool = False) -> None:
        """Answer what cannot be served, and hang up. With `linger` the client may first send on what it is sending,
        and is not listened to: hung up on at once, it might lose the answer with the connection."""
        self.send()
        if self._transport is not None:
            self._transport.write(serialise(response, head_only=False, close=True))
        if not linger or self._transport is None or not self._transport.can_write_eof():
            self._shut()
            return
        self._chunks = []
        self._let_go(self._held_bytes)
        self._closing = True
        self.deadline = self._loop.time() + _LINGER_SECONDS
        self._transport.write_eof()

    def _shut(self) -> None:
        self.send()
        self._closing = True
        self.deadline = self._loop.time() + self._limits.write_seconds
        if self._transport is not None:
            self._transport.close()

    def overdue(self, now: float) -> None:
        """Hang up if the client took too long; called every second or so."""
        if self._closing or (self._task is not None and not self._writable.is_set()):
            if now > self.deadline and self._transport is not None:
                self._transport.abort()
        elif self._in_body and self._task is None:
            late = now - self._body_began - self._limits.body_grace_seconds
            slow = late > 0 and self._body_bytes < late * self._limits.body_rate_min
            if slow or now > self.deadline:
                self._refuse(error_response(408, "too_slow", "the body did not arrive in time"))
        elif now > self.deadline:
            if self._head_bytes:
                self._refuse(error_response(408, "too_slow", "the header did not arrive in time"))
            elif self._transport is not None:
                self._transport.abort()

    def hang_up(self) -> None:
        self._shut()

    def hang_up_if_idle(self) -> None:
        if self._task is None and not self._in_body:
            self._shut()
