"""The parser: turns the bytes of one connection into requests, with llhttp through httptools."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import httptools

from fairlane.http.server.message import Limits, Refused, Request, Response, bad_request, error_response, long_header

END = b"\r\n\r\n"
_KNOWN_MAX = 1000
KNOWN_BYTES_MAX = 1024
_FRAMING_BYTES_MAX = 16 * 1024
"""Largest size of chunk headers, extensions and trailers, in addition to half the size of the content.

So chunks have about twelve bytes or more, because each costs as much as a header.
"""
_LENGTH_DIGITS_MAX = 20
_PACKED = error_response(
    415,
    "unsupported_media_type",
    "content-encoding is not supported; send the body without it",
    headers=((b"accept-encoding", b"identity"),),
)
_ONCE = (b"host", b"content-length", b"authorization")

Refusal = tuple[Response, bool]
"""The last answer of a connection, and True to linger after it."""


class KnownHeader(NamedTuple):
    """A parsed header of a request whose body has `length` bytes."""

    method: str
    path: bytes
    headers: dict[bytes, bytes]
    query_string: bytes
    length: int
    keep_alive: bool


KnownHeaders = dict[bytes, KnownHeader]


class Sink(Protocol):
    """Receives what the parser finds. `begin` and `grow` may raise Refused."""

    def begin(self, request: Request, length: int | None, received: int = 0) -> None:
        """Handle the complete header of a request. `received` bytes of its body are here already.

        The body has `length` bytes. None means that it is chunked.
        """

    def grow(self, request: Request, size: int, more: int) -> None:
        """Handle `more` bytes of a body, which has `size` bytes so far."""

    def may_continue(self) -> None:
        """Handle a client that waits for 100 Continue."""

    def complete(self, request: Request) -> None:
        """Handle a complete request."""


class Parser:
    """The HTTP parser of one connection. llhttp calls the `on_` methods."""

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
        """Bytes since the header: the body and its framing."""
        self._ends = 0
        """Number of requests that ended in the current data."""
        self._found: KnownHeader | None = None
        """Header of the first of them, if it can be cached."""
        self.ended = False
        """True after the last request of the connection. Later bytes are ignored."""
        self.in_head = False
        self.in_body = False
        self.body_bytes = 0

    def feed(self, data: bytes) -> Refusal | None:
        """Parse received bytes. Returns the refusal if they cannot be served, after which nothing may be fed."""
        between = not (self.in_head or self.in_body)
        refusal = self._parse(data)
        if between and refusal is None:
            self._remember(data[: data.find(END, 0, KNOWN_BYTES_MAX) + 4], len(data))
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
                    # llhttp stops after a request to upgrade. Upgrades are not supported, so parsing continues.
                    rest = memoryview(rest)[upgrade.args[0] :]
                    self._found = None
        except httptools.HttpParserError as error:
            return None if self.ended else _refusal(error)
        if self.in_body:
            if self._fed_bytes - self.body_bytes > _FRAMING_BYTES_MAX + self.body_bytes // 2:
                return bad_request("the chunks of the body are too small; send larger ones"), True
        elif self._head_bytes > self._limits.header_bytes_max:
            return long_header(self._limits), False
        return None

    def _remember(self, head: bytes, size: int) -> None:
        """Cache this header, if the data was exactly one request, so that the rest is its body."""
        found, self._found = self._found, None
        if found is None or self._ends != 1 or self.in_head or self.in_body or size != len(head) + found.length:
            return
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[head] = found

    def close(self) -> None:
        """Drop the state. llhttp refers to this parser, which would otherwise form a cycle that lives long."""
        self._llhttp = self._request = None
        self._body = b""
        self.in_head = self.in_body = False

    # Calls by llhttp.

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
            return  # a trailer is not a header: a proxy in front would not have seen it
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
            self._found = KnownHeader(*start, self._length, request.keep_alive)
        self._sink.complete(request)


def body_length(headers: dict[bytes, bytes], version: str) -> int | None:
    """Return the length of the body. None if it is chunked. Raises Refused if the length is ambiguous."""
    if b"transfer-encoding" not in headers:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > _LENGTH_DIGITS_MAX:
            raise Refused(bad_request("content-length is not a number"))
        return int(length)
    if version == "1.0":
        raise Refused(bad_request("HTTP/1.0 has no transfer-encoding"))
    if headers[b"transfer-encoding"].lower() != b"chunked":
        raise Refused(error_response(501, "not_implemented", "the only supported transfer-encoding is chunked"))
    return None


def _refusal(error: httptools.HttpParserError) -> Refusal:
    """Return the response to an error of our callbacks or of llhttp.

    The cause is fetched in this frame of its own, to avoid a reference cycle between the two exceptions.
    """
    cause = error.__context__
    if isinstance(cause, Refused):
        return cause.response, cause.linger
    return bad_request(f"this is not HTTP/1.1: {error}"), False
