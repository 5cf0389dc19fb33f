"""The connection of one client: requests answered one at a time and in order, each within its deadlines.

A handler whose client goes away is cancelled, so that nobody works, or holds anything, for a caller that left."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from fairlane.http.server.message import (
    SOON_BYTES_MAX,
    Refused,
    Request,
    Response,
    error_response,
    overloaded,
    serialise,
    share_used,
    too_many_connections,
)
from fairlane.http.server.parser import END, KNOWN_BYTES_MAX, Parser, Refusal
from fairlane.http.server.shares import NOBODY
from fairlane.runtime.memory import SMALL_BYTES_MAX

if TYPE_CHECKING:
    from fairlane.http.server.server import Door, Server

_LINGER_SECONDS = 5.0
_ANSWERS_AT_ONCE = 16


class Connection(asyncio.Protocol):
    """One client's connection. A header that is known byte for byte is not parsed again: clients send the same few as
    long as they live. The parser of the others calls `begin`, `grow`, `may_continue` and `complete`."""

    def __init__(self, server: Server, door: Door) -> None:
        self._server = server
        self._door = door
        self._limits = server.limits
        self._budget = server.budget
        self._loop = server.loop
        self._parser: Parser | None = None
        """From the first request on whose header is not known."""
        self._share = NOBODY
        """Of its address, or that of the client whom a trusted proxy last sent a request for."""
        self._peer, self._proxied = "", False
        self._caller: Any = None  # who sent the last request; the door's own
        self.ended = False
        """A request was to be the last: nothing behind it is looked at."""
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._working = self._continue = self._closing = self._streaming = False
        self._body_bytes_max = self._used_bytes = self._unread_bytes = 0
        self._small_bytes_max = min(SMALL_BYTES_MAX, server.limits.pipelined_bytes_max)
        self._body_began = self.deadline = 0.0
        self._unsent: list[bytes] = []
        self._take_backs: list[Callable[[], None]] = []
        self._refusal: Refusal | None = None
        """The last answer; meanwhile nothing that comes is looked at."""
        self._full: asyncio.Future[None] | None = None
        """Done when the client has read enough to be written to again; None while it may be."""

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self._transport.set_write_buffer_limits(high=SOON_BYTES_MAX)
        server = self._server
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        share = self._share = server.shares.of(self._peer)
        self._proxied = share.proxied
        share.connections += 1
        server.connections.add(self)
        here = transport.get_extra_info("sockname")
        if isinstance(here, tuple) and here[0] not in server.addresses:
            server.addresses.add(here[0])
            self._door.bound(here[0])
        self.deadline = self._loop.time() + self._limits.header_seconds
        if share.connections > share.connections_max or len(server.connections) > self._limits.connections_max:
            self._refuse((too_many_connections(), False))

    def connection_lost(self, error: Exception | None) -> None:
        self._let_go(self._used_bytes + self._unread_bytes)
        self._used_bytes = self._unread_bytes = 0
        self._server.connections.discard(self)
        self._door.left(self._caller)
        self._share.connections -= 1
        if not self._share.connections:
            del self._server.shares[self._share.address]
        self._closing = True
        if self._full is not None:
            self.resume_writing()
        if self._take_backs:
            self._take_back()
        if self._task is not None:
            self._task.cancel()
        # The parser knows this connection and the task its request: nothing else would part them for a long time.
        if self._parser is not None:
            self._parser.close()
        self._parser = self._task = self._refusal = None
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if self._closing or self.ended or self._refusal is not None:
            return
        if parser is None or not (parser.in_head or parser.in_body):
            head = data[: data.find(END, 0, KNOWN_BYTES_MAX) + 4]
            known = self._server.known_headers.get(head)
            if known is not None and len(data) == len(head) + known.length:
                method, path, headers, query, length, keep_alive = known
                request = Request(method, path, headers, data[len(head) :], self._peer, query, keep_alive)
                self.ended = not keep_alive
                try:
                    self.begin(request, length, length)
                except Refused as refused:
                    self._refuse((refused.response, refused.linger))
                else:
                    self.complete(request)
                return
        if parser is None:
            parser = self._parser = Parser(self, self._limits, self._server.known_headers, self._peer)
        was_in_head = parser.in_head
        refusal = parser.feed(data)
        self.ended = parser.ended
        if refusal is not None:
            self._refuse(refusal)
        elif parser.in_head and not was_in_head and self._task is None:
            self.deadline = self._loop.time() + self._limits.header_seconds

    def pause_writing(self) -> None:
        self._full = self._full or self._loop.create_future()

    def resume_writing(self) -> None:
        """The client read what it was sent, or never will."""
        self._let_go(self._unread_bytes)
        self._unread_bytes = 0
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    # The parser's calls.

    def begin(self, request: Request, length: int | None, came: int = 0) -> None:
        self._body_began = self._loop.time()
        if self._proxied:
            self._charge(request)
        share = self._share
        admitted: Response | int
        if share.requests >= share.requests_max or share.used > share.bytes_max:
            admitted = share_used()
        else:
            request.caller = self._caller
            admitted = self._door.admit(request, has_body=length != 0)
            self._caller = request.caller
        if length == 0:
            request.refusal = admitted if isinstance(admitted, Response) else None
            return
        if isinstance(admitted, Response):
            raise Refused(admitted, linger=True)
        self._body_bytes_max = most = min(admitted, self._limits.body_bytes_max)
        budget, size = self._budget, length or 0
        beyond = budget.used + size > budget.bytes_max or share.used + size > share.bytes_max
        if beyond or size > most or size > self._small_bytes_max:
            self._check_room(request, size, size)
        self._used_bytes += came
        budget.used += came
        share.used += came

    def _charge(self, request: Request) -> None:
        """Let the connection be that of the client whom the proxy names, until it names another."""
        server, share = self._server, self._share
        request.peer = server.proxies.client(self._peer, request.headers.get(b"x-forwarded-for", b""))
        if server.shares.name(request.peer) != share.address:
            holds = self._used_bytes + self._unread_bytes
            share.used -= holds
            server.shares.leave(share)
            share = self._share = server.shares.of(request.peer)
            share.connections += 1
            share.used += holds

    def _let_go(self, size: int) -> None:
        self._budget.used -= size
        self._share.used -= size

    def grow(self, request: Request, size: int, more: int) -> None:
        self._check_room(request, size, more)
        self._used_bytes += more
        self._budget.used += more
        self._share.used += more

    def _check_room(self, request: Request, size: int, more: int) -> None:
        """Refused if a body of `size` bytes, of which `more` are new, may not be held."""
        if size > self._body_bytes_max:
            raise Refused(self._door.too_large(request, self._body_bytes_max), linger=True)
        pipelined = size > self._limits.pipelined_bytes_max and (self._working or self._waiting)
        if pipelined or not self._budget.takes(more, size):
            raise Refused(overloaded(), linger=True)
        if self._share.used + more > self._share.bytes_max:
            raise Refused(share_used(), linger=True)

    def may_continue(self) -> None:
        self._continue = True
        self._go_on()

    def complete(self, request: Request) -> None:
        self._continue = False
        self._waiting.append(request)
        if self._task is None:
            self._task = self._loop.create_task(self._serve())
        elif len(self._waiting) > self._limits.pipelined_max and self._transport is not None:
            self._transport.pause_reading()

    # Serving.

    async def _serve(self) -> None:
        """Answer the requests that wait, one after another."""
        server, transport = self._server, self._transport
        assert transport is not None
        answered = 0
        while self._waiting and not self._closing:
            request = self._waiting.popleft()
            if len(self._waiting) < self._limits.pipelined_max:
                transport.resume_reading()
            self.deadline = float("inf")
            response = request.refusal
            if response is None:
                share = self._share
                self._working = True
                server.active += 1
                share.requests += 1
                try:
                    response = await server.handler(request)
                    if response.__class__ is not Response:
                        raise TypeError(f"the handler of {request.method} {request.path!r} gave {response!r:.100}")
                except Exception as error:  # the request's boundary: one request's mistake is not the connection's
                    response = self._door.failed(error, request)
                finally:
                    server.active -= 1
                    share.requests -= 1
                    self._working = False
                    freed = min(len(request.body), self._used_bytes)
                    self._used_bytes -= freed
                    self._budget.used -= freed
                    self._share.used -= freed
                if response.parts and response.unsent is not None and self._share.lacks(response.parts):
                    response.unsent()
                    response = share_used()
            stream = None if request.method == "HEAD" else response.stream
            close = response.close or not request.keep_alive or server.draining or stream is not None
            pieces = serialise(response, head_only=request.method == "HEAD", close=close)
            self._unsent += pieces
            if response.unsent is not None:
                self._take_backs.append(response.unsent)
            if transport.is_closing():
                self._take_back()
                return
            if stream is not None:
                await self._stream(stream)
            if close:
                self._shut()
                return
            large = len(pieces) > 1
            if large:
                self.send()
            else:
                server.send_soon(self)
            del request, response, pieces, stream  # what is written need not be held until the next request
            if self._full is not None:
                self.deadline = self._loop.time() + self._limits.write_seconds
                await self._full
            answered += 1
            if large or answered % _ANSWERS_AT_ONCE == 0:
                await asyncio.sleep(0)  # others have their turn too
        self._task = None
        if self._refusal is not None:
            self._end(*self._refusal)
            return
        if self._continue:
            self._go_on()
        in_head = self._parser is not None and self._parser.in_head
        self.deadline = self._loop.time() + (self._limits.header_seconds if in_head else self._limits.idle_seconds)

    async def _stream(self, parts: AsyncGenerator[bytes]) -> None:
        """Send part by part, each once the client has read enough of those before: for one that reads nothing nothing
        is made."""
        self.ended = self._streaming = True
        streams, task = self._server.streams, cast("asyncio.Task[None]", self._task)
        streams.add(task)
        task.add_done_callback(streams.discard)
        try:
            async with aclosing(parts):
                while not self._server.draining:
                    self.send()
                    if self._full is not None:
                        self.deadline = self._loop.time() + self._limits.write_seconds
                        await self._full
                        self.deadline = float("inf")
                    self._unsent.append(await anext(parts))
        except StopAsyncIteration:
            pass
        except Exception as error:  # the request's boundary, as above: it is logged, and the stream ends
            self._door.failed(error)

    def _go_on(self) -> None:
        """Let a client that asks first send its body, once it has the answers before."""
        if self._task is None and self._transport is not None:
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
            if size > SOON_BYTES_MAX:
                self.write_large(self._transport, pieces)
            else:
                self._transport.write(b"".join(pieces))
            if self._full is not None:
                self._unread_bytes += size
                self._budget.used += size
                self._share.used += size

    def write_large(self, transport: asyncio.Transport, pieces: list[bytes]) -> None:
        transport.writelines(pieces)

    def _take_back(self) -> None:
        """Nobody is there any more for the answers that wait."""
        take_backs, self._unsent, self._take_backs = self._take_backs, [], []
        for take_back in take_backs:
            take_back()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be served, after the answers that are due, and hang up; what came of a body is let go of
        at once."""
        if self._parser is not None:
            freed = min(self._parser.body_bytes, self._used_bytes) if self._parser.in_body else 0
            self._used_bytes -= freed
            self._let_go(freed)
            self._parser.close()
        self._refusal = refusal
        if self._task is None:
            self._end(*refusal)

    def _end(self, response: Response, linger: bool) -> None:
        """The last answer. With `linger` the client may first send on what it is sending, and is not listened to: hung
        up on at once, it might lose the answer with the connection."""
        self.send()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(serialise(response, head_only=False, close=True))
        if not linger or self._transport is None:
            self._shut()
            return
        self._closing = True
        self.deadline = self._loop.time() + _LINGER_SECONDS
        if self._transport.can_write_eof():  # TLS cannot
            self._transport.write_eof()

    def _shut(self) -> None:
        self.send()
        self._closing = True
        self.deadline = self._loop.time() + self._limits.write_seconds
        if self._transport is not None:
            self._transport.close()

    # The server's calls.

    def overdue(self, now: float) -> None:
        """Hang up if the client took too long; called every second or so."""
        parser = self._parser
        if self._closing or (self._task is not None and self._full is not None):
            if now > self.deadline and self._transport is not None:
                self._transport.abort()
        elif parser is not None and parser.in_body:
            late = now - self._body_began - self._limits.body_grace_seconds
            slow = late > 0 and parser.body_bytes < late * self._limits.body_rate_min
            if slow or now > self._body_began + self._limits.body_seconds:
                self._refuse((error_response(408, "too_slow", "the body did not arrive in time"), False))
        elif self._task is None and now > self.deadline:
            if parser is not None and parser.in_head:
                self._refuse((error_response(408, "too_slow", "the header did not arrive in time"), False))
            elif self._transport is not None:
                self._transport.abort()

    def hang_up(self) -> None:
        self._shut()

    def hang_up_if_idle(self) -> None:
        if self._streaming or (self._task is None and not (self._parser is not None and self._parser.in_body)):
            self._shut()
