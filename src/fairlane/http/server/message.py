"""Requests as handlers see them, their responses, their limits, and the answers past them."""

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
"""Shorter answers are written together at the end of the loop's turn: a client with many connections is then woken
once for all of them, which costs more than writing one."""
# No answer is for a browser to guess at, or, unless it says so, to keep: a pop from a cache gives the same messages
# twice.
_HEADS, _CACHED_HEADS = (
    {
        status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\nx-content-type-options: nosniff\r\n"
        f"cache-control: {cache}\r\n".encode()
        for status in HTTPStatus
    }
    for cache in ("no-store", "no-cache")
)


class Request(msgspec.Struct):
    """One request, whole. `path` is raw, as it was sent. `headers` may be those of other requests too, and are not
    changed. `found`, `params` and `caller` are the application's own: its route, the decoded parts that the route
    names, and who asks."""

    method: str
    path: bytes
    headers: dict[bytes, bytes]
    body: bytes
    peer: str
    query_string: bytes = b""
    keep_alive: bool = True
    found: Any = None
    refusal: Response | None = None
    """The answer, if the header alone decided it."""
    params: dict[str, str] = {}
    caller: Any = None
    outside: bool = False
    """It came where strangers ask: what vouches for it must be in it."""

    @property
    def query(self) -> dict[str, str]:
        """Query parameters, decoded, not to be changed; of one that is given twice the last counts."""
        query = self.query_string
        return _known_query(query) if len(query) <= _KNOWN_BYTES_MAX else _query(query)

    @property
    def repeated(self) -> list[str]:
        """Names of the query parameters that are given more than once."""
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
"""Clients ask the same few questions again and again, and decoding one takes longer than all else of its request."""


class Response(msgspec.Struct):
    """The answer to a request."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    close: bool = False
    parts: Sequence[bytes] = ()
    """They follow the body: what is long already is not copied to be one piece."""
    unsent: Callable[[], None] | None = None
    """Called if the client went away before the first byte: what the answer gives out can be taken back."""

    stream: AsyncGenerator[bytes] | None = None
    """An answer without an end of its own: what it gives follows until the client leaves or the server drains. It is
    the last of its connection, whose end is its own; whoever asks by HEAD does not begin it."""
    cached: bool = False
    """A client may keep it, and asks each time whether it is still the same."""

    def plus(self, *headers: tuple[bytes, bytes]) -> Response:
        """The same with more headers."""
        return msgspec.structs.replace(self, headers=(*self.headers, *headers))


def serialise(response: Response, *, head_only: bool, close: bool) -> list[bytes]:
    """The bytes of a response; one piece, unless it is long."""
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
    """Every error looks like this: a sentence for people, a code for programs."""
    body = _encode({"error": error, "code": code, **more})
    return Response(status, body, headers=headers, close=close)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one connection, and of all together."""

    header_bytes_max: int = 16 * 1024
    target_bytes_max: int = 8 * 1024
    body_bytes_max: int = 32 * 1024 * 1024
    header_seconds: float = 10.0
    """From the connection's first moment, or a request's first byte, to the end of its header."""
    body_seconds: float = 30.0
    body_rate_min: int = 1024
    """Bytes a second, after the grace: a body that comes slower is cut off before its time is up."""
    body_grace_seconds: float = 5.0
    idle_seconds: float = 75.0
    write_seconds: float = 60.0
    connections_max: int = 10_000
    peer_connections_max: int = sys.maxsize
    """Of one address."""
    peer_requests_max: int = sys.maxsize
    """That are answered at once: those that wait for messages among them."""
    peer_bytes_max: int = sys.maxsize
    inflight_bytes_max: int = 256 * 1024 * 1024
    """Of the bodies of all requests that are being received or answered, and of all answers that wait to be read; past
    it a body is refused unread."""
    pipelined_max: int = 16
    pipelined_bytes_max: int = 64 * 1024
    """Of a body whose request waits for an earlier one of its connection: that may be a poll, and last."""


class Refused(Exception):
    """A request is answered by this, and its connection closed. With `linger` the client may first finish what it is
    sending."""

    def __init__(self, response: Response, *, linger: bool = False) -> None:
        self.response = response
        self.linger = linger


def long_header(limits: Limits) -> Response:
    return error_response(431, "header_too_large", f"the header may have {limits.header_bytes_max} bytes")


def overloaded() -> Response:
    return error_response(
        429,
        "overloaded",
        "the broker holds as many bytes of requests and answers as it may; nothing was done for this one",
        headers=((b"retry-after", b"1"),),
    )


def too_large(bytes_max: int) -> Response:
    return error_response(413, "body_too_large", f"the body may have {bytes_max} bytes")


def bad_request(error: str) -> Response:
    return error_response(400, "bad_request", error)


def too_many_connections() -> Response:
    return error_response(
        503,
        "too_many_connections",
        "too many connections; try again soon",
        headers=((b"retry-after", b"1"),),
    )


def share_used() -> Response:
    return error_response(
        429,
        "overloaded",
        "your address has as many requests, or bytes of them and of unread answers, in progress as one may have; "
        "nothing was done for this one",
        headers=((b"retry-after", b"1"),),
    )
