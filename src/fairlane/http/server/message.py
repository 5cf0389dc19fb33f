"""Requests as handlers see them, and their responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from fairlane.errors import InvalidRequest

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
_QUERY_FIELDS_MAX = 100
_KNOWN_BYTES_MAX = 256


class Request(msgspec.Struct):
    """One request, whole. `path` is raw, as it was sent. `headers` may be those of other requests too, and are not
    changed. `found` and `params` are the application's own: its route, and the decoded parts that the route names."""

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

    @property
    def query(self) -> dict[str, str]:
        """Query parameters, decoded, not to be changed; of one that is given twice the last counts."""
        query = self.query_string
        return _known_query(query) if len(query) <= _KNOWN_BYTES_MAX else _query(query)


def _query(query: bytes) -> dict[str, str]:
    text = query.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX))
    except ValueError:
        raise InvalidRequest(f"the query may have {_QUERY_FIELDS_MAX} parameters, not more") from None


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

    def plus(self, *headers: tuple[bytes, bytes]) -> Response:
        """The same with more headers."""
        return msgspec.structs.replace(self, headers=(*self.headers, *headers))


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
