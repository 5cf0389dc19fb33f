"""Requests and responses, the limits of connections, and the error responses beyond them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from fairlane.errors import InvalidRequest

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
_QUERY_FIELDS_MAX = 100
_KNOWN_BYTES_MAX = 256
SOON_BYTES_MAX = 16 * 1024
"""Size below which answers are written together at the end of the loop iteration.

A client with many connections is then woken once for all of them, which saves more than it delays.
"""
# Browsers must not guess content types, nor cache answers unless they say so: a cached pop would repeat messages.
_HEADS, _CACHED_HEADS = (
    {
        status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\nx-content-type-options: nosniff\r\n"
        f"cache-control: {cache}\r\n".encode()
        for status in HTTPStatus
    }
    for cache in ("no-store", "no-cache")
)


class Request(msgspec.Struct):
    """One complete request.

    `path` is raw, as it was sent. `headers` may be shared with other requests and must not be changed. The application
    sets `found`, `params` and `caller`: the route, its decoded parameters, and the caller.
    """

    method: str
    path: bytes
    headers: dict[bytes, bytes]
    body: bytes
    peer: str
    query_string: bytes = b""
    keep_alive: bool = True
    found: Any = None
    refusal: Response | None = None
    """Response, if the headers alone decided it."""
    params: dict[str, str] = {}
    caller: Any = None
    outside: bool = False
    """True if it came from a public listener, where every request must authenticate itself."""

    @property
    def query(self) -> dict[str, str]:
        """Return the decoded query parameters, which must not be changed. The last of repeated ones counts."""
        query = self.query_string
        return _known_query(query) if len(query) <= _KNOWN_BYTES_MAX else _query(query)

    @property
    def repeated(self) -> list[str]:
        """Return the names of repeated query parameters."""
        names = [name for name, _ in _pairs(self.query_string)]
        return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def _pairs(query: bytes) -> list[tuple[str, str]]:
    text = query.decode("utf-8", "replace")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError:
        raise InvalidRequest(f"the query may have {_QUERY_FIELDS_MAX} parameters, not more") from None


def _query(query: bytes) -> dict[str, str]:
    return dict(_pairs(query))


_known_query = lru_cache(maxsize=1000)(_query)
"""Cached decoder: clients repeat the same few queries, and decoding one takes longer than the rest of the request."""


class Response(msgspec.Struct):
    """The answer to a request."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    close: bool = False
    parts: Sequence[bytes] = ()
    """Parts that follow the body, so that long parts need not be copied together."""
    unsent: Callable[[], None] | None = None
    """Called if the client disconnects before the first byte, so that the work behind the answer can be undone."""

    stream: AsyncGenerator[bytes] | None = None
    """Parts of an endless answer, until the client disconnects or the server drains.

    It is the last answer of its connection. A HEAD request does not start it.
    """
    cached: bool = False
    """True if clients may cache the answer, and revalidate it each time."""

    def plus(self, *headers: tuple[bytes, bytes]) -> Response:
        """Return a copy with more headers."""
        return msgspec.structs.replace(self, headers=(*self.headers, *headers))


def serialise(response: Response, *, head_only: bool, close: bool) -> list[bytes]:
    """Return the bytes of a response, in one piece unless it is long."""
    head = [_CACHED_HEADS[response.status] if response.cached else _HEADS[response.status]]
    size = len(response.body)
    if response.parts:
        size += sum(map(len, response.parts))
    if response.stream is not None:
        head.append(b"content-type: %b\r\n" % response.content_type)
    elif response.status not in (204, 304):
        head.append(b"content-type: %b\r\ncontent-length: %d\r\n" % (response.content_type, size))
    for name, value in response.headers:
        head.append(b"%b: %b\r\n" % (name, value))
    if close:
        head.append(b"connection: close\r\n")
    head.append(b"\r\n")
    if head_only or response.status == 204:
        return [b"".join(head)]
    if size <= SOON_BYTES_MAX:
        return [b"".join((*head, response.body, *response.parts))]
    return [b"".join(head), response.body, *response.parts]


_encode = msgspec.json.Encoder().encode


def json_response(value: Any, status: int = 200, *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    return Response(status, _encode(value), headers=headers)


def error_response(
    status: int,
    code: str,
    error: str,
    *,
    headers: tuple[tuple[bytes, bytes], ...] = (),
    close: bool = False,
    **more: Any,
) -> Response:
    """Return an error response: a sentence for people, and a code for programs."""
    body = _encode({"error": error, "code": code, **more})
    return Response(status, body, headers=headers, close=close)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection, and of all connections together."""

    header_bytes_max: int = 16 * 1024
    target_bytes_max: int = 8 * 1024
    body_bytes_max: int = 32 * 1024 * 1024
    header_seconds: float = 10.0
    """Timeout from the start of the connection, or the first byte of a request, to the end of its header."""
    body_seconds: float = 30.0
    body_rate_min: int = 1024
    """Smallest rate of a body in bytes per second, after the grace period. A slower body is cut off."""
    body_grace_seconds: float = 5.0
    idle_seconds: float = 75.0
    write_seconds: float = 60.0
    connections_max: int = 10_000
    peer_connections_max: int = sys.maxsize
    """Largest number of connections of one address."""
    peer_requests_max: int = sys.maxsize
    """Largest number of requests in flight of one address, long polls included."""
    peer_bytes_max: int = sys.maxsize
    inflight_bytes_max: int = 256 * 1024 * 1024
    """Largest size of all request bodies in flight and all unread answers. Beyond it bodies are refused unread."""
    pipelined_max: int = 16
    pipelined_bytes_max: int = 64 * 1024
    """Largest body of a request that waits for an earlier one of its connection, which may be a long poll."""


class Refused(Exception):
    """The response to a request whose connection is closed.

    With `linger` the client may first finish sending.
    """

    def __init__(self, response: Response, *, linger: bool = False) -> None:
        self.response = response
        self.linger = linger


def long_header(limits: Limits) -> Response:
    return error_response(431, "header_too_large", f"the header may have {limits.header_bytes_max} bytes")


def _try_later(status: int, code: str, error: str) -> Response:
    return error_response(status, code, error, headers=((b"retry-after", b"1"),))


def overloaded() -> Response:
    error = "the broker holds all the bytes of requests and answers that it may; nothing was done for this request"
    return _try_later(429, "overloaded", error)


def too_large(bytes_max: int) -> Response:
    return error_response(413, "body_too_large", f"the body may have {bytes_max} bytes")


def bad_request(error: str) -> Response:
    return error_response(400, "bad_request", error)


def too_many_connections() -> Response:
    return _try_later(503, "too_many_connections", "too many connections; try again soon")


def peer_limit_reached() -> Response:
    reached = "your address has reached its limit of requests, or of bytes of requests and unread answers"
    return _try_later(429, "overloaded", f"{reached}; nothing was done for this request")
