"""One client's connection: what it sends becomes requests, answered one at a time and in order.

Parsing is llhttp's, through httptools. A handler whose client goes away is cancelled, so that nobody works, or holds a
lease, for a caller that is not there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, cast

import httptools

from fairlane.http.framing import announced, refusal
from fairlane.http.limits import Refused, bad_request, long_header, overloaded, too_many_connections
from fairlane.http.message import Request, Response, error_response, serialise

if TYPE_CHECKING:
    from fairlane.http.server import Server

_LINGER_SECONDS = 5.0
_SOON_BYTES_MAX = 16 * 1024
"""Shorter answers are written together at the end of the loop's turn: a client with many connections is then woken
once for all of them, which costs more than writing one."""
_ANSWERS_AT_ONCE = 16
_FRAMING_BYTES_MAX = 16 * 1024
"""Of sizes of chunks, their extensions and trailers, beside half of what the chunks hold: so a chunk has about twelve
bytes or more, for each costs as much as a header does."""


class Connection(asyncio.Protocol):
    """One client's connection. The parser calls the `on_` methods."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.limits
        self._budget = server.budget
        self._loop = server.loop
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._working = False
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._request: Request | None = None
        self._body: bytes | bytearray = b""
        self._head_bytes = 0
        self._header_bytes = 0
        self._body_bytes = 0
        self._body_bytes_max = 0
        self._fed_bytes = 0
        """What came since the header: the body, and what frames it."""
        self._held_bytes = 0
        self._unread_bytes = 0
        self._unsent: list[bytes] = []
        self._take_backs: list[Callable[[], None]] = []
        self._in_body = False
        self._continue = False
        self._refusal: tuple[Response, bool] | None = None
        """What is answered last, and whether to linger then; meanwhile nothing that comes is looked at."""
        self._closing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._body_began = 0.0
        self.deadline = 0.0

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self._transport.set_write_buffer_limits(high=_SOON_BYTES_MAX)
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        if isinstance(here, tuple):
            self._server.door.bound(here[0])
        self.deadline = self._loop.time() + self._limits.header_seconds
        if not self._server.admit(self):
            self._refuse(too_many_connections())

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._let_go(self._held_bytes)
        self._read()
        self._closing = True
        self._take_back()
        if self._task is not None:
            self._task.cancel()
        # The parser knows this connection and the task its request: nothing else would part them for a long time.
        self._parser = self._task = self._request = self._refusal = None
        self._waiting.clear()
        self._body = b""

    def data_received(self, data: bytes) -> None:
        if self._closing or self._refusal is not None:
            return
        if self._in_body:
            self._fed_bytes += len(data)
        else:
            if self._head_bytes == 0 and self._task is None:
                self.deadline = self._loop.time() + self._limits.header_seconds
            self._head_bytes += len(data)
        assert self._parser is not None
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._feed_behind(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(*refusal(error))
        else:
            if self._in_body:
                if self._fed_bytes - self._body_bytes > _FRAMING_BYTES_MAX + self._body_bytes // 2:
                    self._refuse(bad_request("the chunks of the body are too small for what frames them"), True)
            elif self._head_bytes > self._limits.header_bytes_max:
                self._refuse(long_header(self._limits))

    def _feed_behind(self, data: memoryview) -> None:
        """The parser stops behind a request that asks for another protocol; that is not had, and it goes on."""
        while data and self._parser is not None:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._read()

    # The parser's calls.

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._body = b""
        self._body_bytes = 0
        self._header_bytes = 0

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > self._limits.target_bytes_max:
            raise Refused(
                error_response(414, "url_too_long", f"the URL may have {self._limits.target_bytes_max} bytes")
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer is no header: what a proxy looks at must not come behind its back
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self._limits.header_bytes_max:
            raise Refused(long_header(self._limits))
        name = name.lower()
        if name in self._headers:
            if name in (b"host", b"content-length", b"authorization"):
                raise Refused(bad_request(f"header {name.decode('latin-1')} is given twice"))
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._in_body = True
        self._head_bytes = self._fed_bytes = 0
        self._body_began = self._loop.time()
        headers = self._headers
        version = self._parser.get_http_version()
        if version != "1.1" and version != "1.0":
            raise Refused(bad_request(f"this is HTTP/{version}; use HTTP/1.1"))
        if b"host" not in headers:
            raise Refused(bad_request("the header host is missing"))
        has_body, length = announced(headers, version)
        method = self._parser.get_method().decode("ascii")
        if method == "CONNECT" or (has_body and b"upgrade" in headers and self._parser.should_upgrade()):
            raise Refused(bad_request("this server does not upgrade connections"))
        request = self._request = Request(method, self._target, headers, b"", self._peer)
        admitted = self._server.door.admit(request, has_body=has_body)
        if not has_body:
            request.refusal = admitted if isinstance(admitted, Response) else None
            return
        if isinstance(admitted, Response):
            raise Refused(admitted, linger=True)
        self._body_bytes_max = min(admitted, self._limits.body_bytes_max)
        if not self._has_room(length, length):
            self._refuse_body(length)
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue" and version == "1.1":
            self._continue = True
            self._go_on()

    def _has_room(self, size: int, more: int) -> bool:
        """Whether a body of `size` bytes, of which `more` are new, may be held."""
        if size > self._body_bytes_max:
            return False
        behind = size > self._limits.behind_bytes_max and (self._working or self._waiting)
        return not behind and self._budget.takes(more, size)

    def _refuse_body(self, size: int) -> NoReturn:
        if size > self._body_bytes_max:
            assert self._request is not None
            raise Refused(self._server.door.too_large(self._request, self._body_bytes_max), linger=True)
        raise Refused(overloaded(), linger=True)

    def on_body(self, chunk: bytes) -> None:
        more = len(chunk)
        size = self._body_bytes + more
        if not self._has_room(size, more):
            self._refuse_body(size)
        self._body_bytes = size
        self._held_bytes += more
        self._budget.held += more
        if not self._body:
            self._body = chunk
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += chunk

    def on_message_complete(self) -> None:
        assert self._parser is not None
        assert self._request is not None
        self._in_body = self._continue = False
        self._head_bytes = 0
        request, self._request = self._request, None
        request.body, self._body = bytes(self._body), b""
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
        answered = 0
        while self._waiting and not self._closing:
            request = self._waiting.popleft()
            if len(self._waiting) < self._limits.pipelined_max:
                transport.resume_reading()
            self.deadline = float("inf")
            response = request.refusal
            if response is None:
                held = len(request.body)
                self._working = True
                self._server.active += 1
                try:
                    response = await self._server.handler(request)
                finally:
                    self._server.active -= 1
                    self._working = False
                    self._let_go(held)
            close = response.close or not request.keep_alive or self._server.draining
            pieces = serialise(response, head_only=request.method == "HEAD", close=close)
            self._unsent += pieces
            if response.unsent is not None:
                self._take_backs.append(response.unsent)
            if transport.is_closing():
                self._take_back()
                return
            large = len(pieces) > 1
            if close or large:
                self.send()
            else:
                self._server.send_soon(self)
            del request, response, pieces  # what is written need not be held until the next request
            if not self._writable.is_set():
                self.deadline = self._loop.time() + self._limits.write_seconds
                await self._writable.wait()
            if close:
                self._shut()
                return
            answered += 1
            if large or answered % _ANSWERS_AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn too
        self._task = None
        if self._refusal is not None:
            self._end(*self._refusal)
            return
        self._go_on()
        patience = self._limits.header_seconds if self._head_bytes else self._limits.idle_seconds
        self.deadline = self._loop.time() + patience

    def _go_on(self) -> None:
        """Let a client that asks first send its body, once it has the answers before."""
        if self._continue and self._task is None and self._transport is not None:
            self._continue = False
            self.send()
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def send(self) -> None:
        """Write the answers that wait."""
        if self._transport is None or self._transport.is_closing():
            self._take_back()
        elif self._unsent:
            pieces, self._unsent = self._unsent, []
            self._take_backs.clear()
            size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            if size > _SOON_BYTES_MAX:
                self._transport.writelines(pieces)
            else:
                self._transport.write(b"".join(pieces))
            if not self._writable.is_set():
                self._unread_bytes += size
                self._budget.held += size

    def _take_back(self) -> None:
        """Nobody is there any more for the answers that wait."""
        take_backs, self._unsent, self._take_backs = self._take_backs, [], []
        for take_back in take_backs:
            take_back()

    def _read(self) -> None:
        """The client read what it was sent, or never will."""
        self._budget.held -= self._unread_bytes
        self._unread_bytes = 0
        self._writable.set()

    def _let_go(self, count: int) -> None:
        """So many bytes of this connection's bodies are no longer held."""
        count = min(count, self._held_bytes)
        self._held_bytes -= count
        self._budget.held -= count

    def _refuse(self, response: Response, linger: bool = False) -> None:
        """Answer what cannot be served, after the answers that are due, and hang up; what came of a body is let go of
        at once."""
        if self._in_body:
            self._let_go(self._body_bytes)
        self._in_body = False
        self._body = b""
        self._refusal = response, linger
        if self._task is None:
            self._end(response, linger)

    def _end(self, response: Response, linger: bool) -> None:
        """The last answer. With `linger` the client may first send on what it is sending, and is not listened to: hung
        up on at once, it might lose the answer with the connection."""
        self.send()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(serialise(response, head_only=False, close=True))
        if not linger or self._transport is None or not self._transport.can_write_eof():
            self._shut()
            return
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
        elif self._in_body:
            late = now - self._body_began - self._limits.body_grace_seconds
            slow = late > 0 and self._body_bytes < late * self._limits.body_rate_min
            if slow or now > self._body_began + self._limits.body_seconds:
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
