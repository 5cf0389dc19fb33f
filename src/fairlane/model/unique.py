"""Unique messages: the values of `unique`, and the hash of a key."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, get_args

from fairlane.errors import InvalidRequest
from fairlane.model.names import check_name

Unique = Literal["while_waiting", "while_running"]
"""Time for which a message excludes others with its key: until a group begins with it, or until one has finished it."""
_CHOICES: tuple[str, ...] = get_args(Unique)


def check_unique(unique: object, key: object) -> None:
    """Raise InvalidRequest unless a message can have this `unique` and this key."""
    if unique is None and key is not None:
        raise InvalidRequest("uniqueKey is the key of a unique message; give unique as well")
    if unique is not None and unique not in _CHOICES:
        raise InvalidRequest(f"unique is {unique!r:.40}; it must be {' or '.join(_CHOICES)}")
    if key is not None:
        check_name("uniqueKey", key)


def unique_hash(key: str | None, type: str | None, payload: bytes) -> str:
    """Return the hash of a key, or without one of type and payload."""
    if key is not None:
        return blake2b(key.encode(), digest_size=16, person=b"key").hexdigest()
    kind = (type or "").encode()
    return blake2b(b"%d %b%b" % (len(kind), kind, payload), digest_size=16, person=b"data").hexdigest()
