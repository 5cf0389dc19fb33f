"""A request as routes see it, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"


class Request:
    """One request, whole. `path` is raw, as it was sent; `params` are the decoded parts that its route names."""

    __slots__ = ("_query", "body", "headers", "keep_alive", "method", "params", "path", "peer", "query_string")

    def __init__(self, method: str, target: bytes, headers: dict[bytes, bytes], body: bytes, peer: str) -> None:
        path, _, query = target.partition(b"?")
        self.method = method
        self.path = path
        self.query_string = query
        self.headers = headers
        self.body = body
        self.peer = peer
        self.keep_alive = True
        self.params: dict[str, str] = {}
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """Query parameters, decoded; of one that is given twice the last counts."""
        if self._query is None:
            text = self.query_string.decode("utf-8", "replace")
            self._query = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=100)) if text else {}
        return self._query


class Response:
    __slots__ = ("body", "close", "content_type", "headers", "status", "unsent")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: bytes = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        close: bool = False,
        unsent: Callable[[], None] | None = None,
    ) -> None:
        """`unsent` is called if the client went away before the first byte: what the answer gives out can be taken
        back."""
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers
        self.close = close
        self.unsent = unsent

    def plus(self, *headers: tuple[bytes, bytes]) -> Response:
        """The same with more headers."""
        return Response(
            self.status,
            self.body,
            content_type=self.content_type,
            headers=(*self.headers, *headers),
            close=self.close,
            unsent=self.unsent,
        )


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


_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def serialise(response: Response, *, head_only: bool, close: bool) -> bytes:
    """The bytes of a response."""
    parts = [_STATUS_LINES[response.status]]
    if response.status != 204:
        parts.append(b"content-type: %b\r\ncontent-length: %d\r\n" % (response.content_type, len(response.body)))
    for name, value in response.headers:
        parts.append(b"%b: %b\r\n" % (name, value))
    if close:
        parts.append(b"connection: close\r\n")
    parts.append(b"\r\n")
    if not head_only and response.status != 204:
        parts.append(response.body)
    return b"".join(parts)
