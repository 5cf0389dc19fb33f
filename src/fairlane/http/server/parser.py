"""The parser: bytes of one connection become requests. Parsing is llhttp's, through httptools."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import httptools

from fairlane.http.server.message import Limits, Refused, Request, Response, bad_request, error_response, long_header

END = b"\r\n\r\n"
_KNOWN_MAX = 1000
KNOWN_BYTES_MAX = 1024
_FRAMING_BYTES_MAX = 16 * 1024
"""Of sizes of chunks, their extensions and trailers, beside half of what the chunks hold: so a chunk has about twelve
bytes or more, for each costs as much as a header does."""
_LENGTH_DIGITS_MAX = 20
_PACKED = error_response(
    415,
    "unsupported_media_type",
    "a body is taken as it is: send it without content-encoding",
    headers=((b"accept-encoding", b"identity"),),
)
_ONCE = (b"host", b"content-length", b"authorization")

Refusal = tuple[Response, bool]
"""The last answer of a connection, and whether to linger then."""


class Known(NamedTuple):
    """A header that llhttp read, with a body of `length` bytes behind it."""

    method: str
    path: bytes
    headers: dict[bytes, bytes]
    query_string: bytes
    length: int
    keep_alive: bool


KnownHeaders = dict[bytes, Known]


class Sink(Protocol):
    """Takes what the parser finds. `begin` and `grow` may raise Refused."""

    def begin(self, request: Request, length: int | None, came: int = 0) -> None:
        """The header of a request is whole. Its body has `length` bytes, of which `came` came already; None: only its
        chunks will tell."""

    def grow(self, request: Request, size: int, more: int) -> None:
        """The body has `size` bytes by now, of which `more` just came."""

    def may_continue(self) -> None:
        """The client waits to be told that it may send its body."""

    def complete(self, request: Request) -> None:
        """The request is whole."""


class Parser:
    """One connection's. llhttp calls the `on_` methods."""

    def __init__(self, sink: Sink, limits: Limits, known: KnownHeaders, peer: str) -> None:
        self._sink = sink
        self._limits = limits
        self._known = known
        self._peer = peer
        self._llhttp: httptools.HttpRequestParser | None = None
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._request: Request | None = None
        self._length: int | None = 0
        self._body: bytes | bytearray = b""
        self._head_bytes = 0
        self._header_bytes = 0
        self._fed_bytes = 0
        """What came since the header: the body, and what frames it."""
        self._ends = 0
        """Requests that ended in what is being fed."""
        self._found: Known | None = None
        """The first of them, if it can be known by its header."""
        self.ended = False
        """A request was to be the last: nothing behind it is looked at."""
        self.in_head = False
        self.in_body = False
        self.body_bytes = 0

    def feed(self, data: bytes) -> Refusal | None:
        """Parse what came. The answer, if that cannot be served: then nothing more may be fed."""
        between = not (self.in_head or self.in_body)
        refusal = self._parse(data)
        if between and refusal is None:
            self._learn(data[: data.find(END, 0, KNOWN_BYTES_MAX) + 4], len(data))
        return refusal

    def _parse(self, data: bytes) -> Refusal | None:
        if self.in_body:
            self._fed_bytes += len(data)
        else:
            self._head_bytes += len(data)
        self._ends, self._found = 0, None
        if self._llhttp is None:
            self._llhttp = httptools.HttpRequestParser(self)
        rest: bytes | memoryview = data
        try:
            while rest and not self.ended:
                try:
                    self._llhttp.feed_data(rest)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    # It stops behind a request that asks for another protocol; that is not had, and it goes on.
                    rest = memoryview(rest)[upgrade.args[0] :]
                    self._found = None
        except httptools.HttpParserError as error:
            return None if self.ended else _refusal(error)
        if self.in_body:
            if self._fed_bytes - self.body_bytes > _FRAMING_BYTES_MAX + self.body_bytes // 2:
                return bad_request("the chunks of the body are too small for what frames them"), True
        elif self._head_bytes > self._limits.header_bytes_max:
            return long_header(self._limits), False
        return None

    def _learn(self, head: bytes, size: int) -> None:
        """Know this header, if all that came was one request: then the rest is its body."""
        found, self._found = self._found, None
        if found is None or self._ends != 1 or self.in_head or self.in_body or size != len(head) + found.length:
            return
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[head] = found

    def close(self) -> None:
        """Forget what came. llhttp knows this parser: nothing else would part them for a long time."""
        self._llhttp = self._request = None
        self._body = b""
        self.in_head = self.in_body = False

    # llhttp's calls.

    def on_message_begin(self) -> None:
        self.in_head = True
        self._target = b""
        self._headers = {}
        self._body = b""
        self.body_bytes = 0
        self._header_bytes = 0

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > self._limits.target_bytes_max:
            raise Refused(
                error_response(414, "url_too_long", f"the URL may have {self._limits.target_bytes_max} bytes")
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_body:
            return  # a trailer is no header: what a proxy looks at must not come behind its back
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self._limits.header_bytes_max:
            raise Refused(long_header(self._limits))
        name, value = name.lower(), value.rstrip(b" \t")
        if name in self._headers:
            if name in _ONCE:
                raise Refused(bad_request(f"header {name.decode('latin-1')} is given twice"))
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        assert self._llhttp is not None
        self.in_head, self.in_body = False, True
        self._head_bytes = self._fed_bytes = 0
        headers = self._headers
        version = self._llhttp.get_http_version()
        if version != "1.1" and version != "1.0":
            raise Refused(bad_request(f"this is HTTP/{version}; use HTTP/1.1"))
        if b"host" not in headers:
            raise Refused(bad_request("the header host is missing"))
        self._length = length = body_length(headers, version)
        if length != 0 and headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refused(_PACKED, linger=True)
        method = self._llhttp.get_method().decode("ascii")
        if method == "CONNECT" or (length != 0 and b"upgrade" in headers and self._llhttp.should_upgrade()):
            raise Refused(bad_request("this server does not upgrade connections"))
        path, _, query = self._target.partition(b"?")
        self._request = Request(method, path, headers, b"", self._peer, query)
        self._sink.begin(self._request, length)
        if b"expect" in headers and length != 0 and version == "1.1" and headers[b"expect"].lower() == b"100-continue":
            self._sink.may_continue()

    def on_body(self, chunk: bytes) -> None:
        assert self._request is not None
        more = len(chunk)
        self._sink.grow(self._request, self.body_bytes + more, more)
        self.body_bytes += more
        if not self._body:
            self._body = chunk
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += chunk

    def on_message_complete(self) -> None:
        assert self._llhttp is not None
        assert self._request is not None
        self.in_body = False
        self._head_bytes = 0
        request, self._request = self._request, None
        request.body, self._body = bytes(self._body), b""
        request.keep_alive = self._llhttp.should_keep_alive()
        self.ended = not request.keep_alive
        self._ends += 1
        if self._ends == 1 and self._length is not None and b"expect" not in request.headers:
            start = request.method, request.path, request.headers, request.query_string
            self._found = Known(*start, self._length, request.keep_alive)
        self._sink.complete(request)


def body_length(headers: dict[bytes, bytes], version: str) -> int | None:
    """The length of the body that follows; None if its chunks will tell. Refused if it cannot be told for sure."""
    if b"transfer-encoding" not in headers:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX:
            raise Refused(bad_request("content-length is not a number"))
        return int(length)
    if version == "1.0":
        raise Refused(bad_request("HTTP/1.0 has no transfer-encoding"))
    if headers[b"transfer-encoding"].lower() != b"chunked":
        raise Refused(error_response(501, "not_implemented", "of transfer-encoding only chunked is understood"))
    return None


def _refusal(error: httptools.HttpParserError) -> Refusal:
    """The answer to what one of our calls refused, or llhttp itself. The cause is in a frame of its own here: it knows
    the one it was raised from, and both would know each other."""
    cause = error.__context__
    if isinstance(cause, Refused):
        return cause.response, cause.linger
    return bad_request(f"this is not HTTP/1.1: {error}"), False
