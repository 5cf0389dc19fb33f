"""The limits of a connection, and the answers past them."""

from __future__ import annotations

import msgspec

from fairlane.http.server.message import Response, error_response


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
