"""The connection of one client: answers requests in order, within deadlines. A disconnect cancels the handler."""

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
    peer_limit_reached,
    serialise,
    too_many_connections,
)
from fairlane.http.server.parser import END, KNOWN_BYTES_MAX, Parser, Refusal
from fairlane.http.server.peer_limits import UNLIMITED
from fairlane.runtime.memory import SMALL_BYTES_MAX

if TYPE_CHECKING:
    from fairlane.http.server.server import RequestPolicy, Server

_LINGER_SECONDS = 5.0
_ANSWERS_AT_ONCE = 16


class Connection(asyncio.Protocol):
    """The connection of one client. Headers seen before, byte for byte, skip the parser.

    For other requests the parser calls `begin`, `grow`, `may_continue` and `complete`.
    """

    def __init__(self, server: Server, policy: RequestPolicy) -> None:
        self._server = server
        self._policy = policy
        self._limits = server.limits
        self._budget = server.budget
        self._loop = server.loop
        self._parser: Parser | None = None
        """Created for the first request whose header was not seen before."""
        self._peer_limit = UNLIMITED
        """The limit of the peer, or of the client that a trusted proxy named last."""
        self._peer, self._proxied = "", False
        self._caller: Any = None  # the caller of the last request; set by the policy
        self.ended = False
        """The last request of the connection was read. Further bytes are ignored."""
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._working = self._continue = self._closing = self._streaming = False
        self._body_bytes_max = self._used_bytes = self._unread_bytes = 0
        self._small_bytes_max = min(SMALL_BYTES_MAX, server.limits.pipelined_bytes_max)
        self._body_began = self.deadline = 0.0
        self._unsent: list[bytes] = []
        self._unsent_callbacks: list[Callable[[], None]] = []
        self._refusal: Refusal | None = None
        """The last answer of the connection. Bytes received after it are ignored."""
        self._full: asyncio.Future[None] | None = None
        """Resolved when the client has read enough to be written to again. None while writing is allowed."""

    # Calls by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it
        self._transport.set_write_buffer_limits(high=SOON_BYTES_MAX)
        server = self._server
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        limit = self._peer_limit = server.peer_limits.get(self._peer) or server.peer_limits.of(self._peer)
        self._proxied = limit.proxied
        limit.connections += 1
        server.connections.add(self)
        here = transport.get_extra_info("sockname")
        if isinstance(here, tuple) and here[0] not in server.addresses:
            server.addresses.add(here[0])
            self._policy.on_bound(here[0])
        self.deadline = self._loop.time() + self._limits.header_seconds
        if limit.connections > limit.connections_max or len(server.connections) > self._limits.connections_max:
            self._refuse((too_many_connections(), False))

    def connection_lost(self, error: Exception | None) -> None:
        self._uncharge(self._used_bytes + self._unread_bytes)
        self._used_bytes = self._unread_bytes = 0
        self._server.connections.discard(self)
        self._policy.on_disconnect(self._caller)
        self._peer_limit.connections -= 1
        if not self._peer_limit.connections:
            del self._server.peer_limits[self._peer_limit.address]
        self._closing = True
        if self._full is not None:
            self.resume_writing()
        if self._unsent_callbacks:
            self._report_unsent()
        if self._task is not None:
            self._task.cancel()
        # The parser and the task refer to this connection. Without this they would form a cycle that lives long.
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
        """Release the byte budget of answers that the client has read or will never read."""
        self._uncharge(self._unread_bytes)
        self._unread_bytes = 0
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    # Calls by the parser.

    def begin(self, request: Request, length: int | None, received: int = 0) -> None:
        self._body_began = self._loop.time()
        if self._proxied:
            self._charge_client(request)
        limit = self._peer_limit
        decision: Response | int
        if limit.requests >= limit.requests_max or limit.used > limit.bytes_max:
            decision = peer_limit_reached()
        else:
            request.caller = self._caller
            decision = self._policy.on_headers(request, has_body=length != 0)
            self._caller = request.caller
        if length == 0:
            request.refusal = decision if isinstance(decision, Response) else None
            return
        if isinstance(decision, Response):
            raise Refused(decision, linger=True)
        self._body_bytes_max = most = min(decision, self._limits.body_bytes_max)
        budget, size = self._budget, length or 0
        beyond = budget.used + size > budget.bytes_max or limit.used + size > limit.bytes_max
        if beyond or size > most or size > self._small_bytes_max:
            self._check_size(request, size, size)
        self._used_bytes += received
        budget.used += received
        limit.used += received

    def _charge_client(self, request: Request) -> None:
        """Charge the connection to the client that the proxy names in this request."""
        server, limit = self._server, self._peer_limit
        request.peer = server.proxies.client(self._peer, request.headers.get(b"x-forwarded-for", b""))
        if server.peer_limits.key(request.peer) != limit.address:
            holds = self._used_bytes + self._unread_bytes
            limit.used -= holds
            server.peer_limits.disconnect(limit)
            limit = self._peer_limit = server.peer_limits.of(request.peer)
            limit.connections += 1
            limit.used += holds

    def _uncharge(self, size: int) -> None:
        self._budget.used -= size
        self._peer_limit.used -= size

    def grow(self, request: Request, size: int, more: int) -> None:
        self._check_size(request, size, more)
        self._used_bytes += more
        self._budget.used += more
        self._peer_limit.used += more

    def _check_size(self, request: Request, size: int, more: int) -> None:
        """Raise Refused if a body of `size` bytes, of which `more` are new, exceeds a limit."""
        if size > self._body_bytes_max:
            raise Refused(self._policy.on_body_too_large(request, self._body_bytes_max), linger=True)
        pipelined = size > self._limits.pipelined_bytes_max and (self._working or self._waiting)
        if pipelined or not self._budget.fits(more, size):
            raise Refused(overloaded(), linger=True)
        if self._peer_limit.used + more > self._peer_limit.bytes_max:
            raise Refused(peer_limit_reached(), linger=True)

    def may_continue(self) -> None:
        self._continue = True
        self._send_continue()

    def complete(self, request: Request) -> None:
        self._continue = False
        self._waiting.append(request)
        if self._task is None:
            self._task = self._loop.create_task(self._serve())
        elif len(self._waiting) > self._limits.pipelined_max and self._transport is not None:
            self._transport.pause_reading()

    # Serving requests.

    async def _serve(self) -> None:
        """Answer the received requests one after another."""
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
                limit = self._peer_limit
                self._working = True
                server.active += 1
                limit.requests += 1
                try:
                    response = await server.handler(request)
                    if response.__class__ is not Response:
                        raise TypeError(f"the handler of {request.method} {request.path!r} gave {response!r:.100}")
                except Exception as error:  # the request's boundary: its failure does not end the connection
                    response = self._policy.on_error(error, request)
                finally:
                    server.active -= 1
                    limit.requests -= 1
                    self._working = False
                    freed = min(len(request.body), self._used_bytes)
                    self._used_bytes -= freed
                    self._budget.used -= freed
                    self._peer_limit.used -= freed
                if response.unsent and self._peer_limit.used and self._peer_limit.exceeded_by(response.parts):
                    response.unsent()
                    response = peer_limit_reached()
            stream = None if request.method == "HEAD" else response.stream
            close = response.close or not request.keep_alive or server.draining or stream is not None
            pieces = serialise(response, head_only=request.method == "HEAD", close=close)
            self._unsent += pieces
            if response.unsent is not None:
                self._unsent_callbacks.append(response.unsent)
            if transport.is_closing():
                self._report_unsent()
                return
            if stream is not None:
                await self._stream(stream)
            if close:
                self._close()
                return
            large = len(pieces) > 1
            if large:
                self.send()
            else:
                server.send_soon(self)
            del request, response, pieces, stream  # frees the written answer before the next request
            if self._full is not None:
                self.deadline = self._loop.time() + self._limits.write_seconds
                await self._full
            answered += 1
            if large or answered % _ANSWERS_AT_ONCE == 0:
                await asyncio.sleep(0)  # yields to other connections
        self._task = None
        if self._refusal is not None:
            self._send_last(*self._refusal)
            return
        if self._continue:
            self._send_continue()
        in_head = self._parser is not None and self._parser.in_head
        self.deadline = self._loop.time() + (self._limits.header_seconds if in_head else self._limits.idle_seconds)

    async def _stream(self, parts: AsyncGenerator[bytes]) -> None:
        """Send part by part. The next part is made only once the client has read enough of those before."""
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
        except Exception as error:  # the request's boundary: the error is logged, and the stream ends
            self._policy.on_error(error)

    def _send_continue(self) -> None:
        """Send 100 Continue to a client that waits for it, after the answers before."""
        if self._task is None and self._transport is not None:
            self._continue = False
            self.send()
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def send(self) -> None:
        """Write the pending answers."""
        if self._transport is None or self._transport.is_closing():
            self._report_unsent()
        elif self._unsent:
            pieces, self._unsent = self._unsent, []
            self._unsent_callbacks.clear()
            size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            if size > SOON_BYTES_MAX:
                self.write_large(self._transport, pieces)
            else:
                self._transport.write(b"".join(pieces))
            if self._full is not None:
                self._unread_bytes += size
                self._budget.used += size
                self._peer_limit.used += size

    def write_large(self, transport: asyncio.Transport, pieces: list[bytes]) -> None:
        transport.writelines(pieces)

    def _report_unsent(self) -> None:
        """Call the callbacks of pending answers that can no longer be sent."""
        callbacks, self._unsent, self._unsent_callbacks = self._unsent_callbacks, [], []
        for callback in callbacks:
            callback()

    def _refuse(self, refusal: Refusal) -> None:
        """Send a refusal after the pending answers, then close. Frees the received part of a body at once."""
        if self._parser is not None:
            freed = min(self._parser.body_bytes, self._used_bytes) if self._parser.in_body else 0
            self._used_bytes -= freed
            self._uncharge(freed)
            self._parser.close()
        self._refusal = refusal
        if self._task is None:
            self._send_last(*refusal)

    def _send_last(self, response: Response, linger: bool) -> None:
        """Send the last answer and close. With `linger`, what the client still sends is read and ignored for a while.

        Closing at once could reset the connection before the client has read the answer.
        """
        self.send()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(serialise(response, head_only=False, close=True))
        if not linger or self._transport is None:
            self._close()
            return
        self._closing = True
        self.deadline = self._loop.time() + _LINGER_SECONDS
        if self._transport.can_write_eof():  # TLS cannot half-close
            self._transport.write_eof()

    def _close(self) -> None:
        self.send()
        self._closing = True
        self.deadline = self._loop.time() + self._limits.write_seconds
        if self._transport is not None:
            self._transport.close()

    # Calls by the server.

    def check_deadlines(self, now: float) -> None:
        """Close the connection if the client took too long. The server calls this about every second."""
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
        self._close()

    def hang_up_if_idle(self) -> None:
        if self._streaming or (self._task is None and not (self._parser is not None and self._parser.in_body)):
            self._close()
