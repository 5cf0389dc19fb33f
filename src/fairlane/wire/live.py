"""JSON of the live stream: what is watched, and its events."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fairlane.wire.base import Answer, Body

WATCHED_MAX = 16


class LiveQuery(Body):
    """`watch` is given once for each path."""

    watch: Annotated[list[str], msgspec.Meta(min_length=1, max_length=WATCHED_MAX)]


class Snapshot(Answer):
    """The answer to a path, whole, or the error that it is now."""

    path: str
    status: int
    body: msgspec.Raw


class Change(Answer):
    """The difference to what came before, a JSON merge patch (RFC 7396)."""

    path: str
    patch: dict[str, Any]
