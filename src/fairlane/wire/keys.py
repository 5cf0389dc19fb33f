"""API keys on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body

GRACE_SECONDS = 24 * 3600
GRACE_SECONDS_MAX = 90 * 24 * 3600
SCOPES_MAX = 100


class KeyOptions(Body):
    """A key to create: its role, its scopes or both, and its expiry."""

    name: str
    role: str | None = None
    """`admin`, `read-write` or `read-only`, optionally limited to queues: `read-only:orders.*`."""
    scopes: Annotated[list[str], msgspec.Meta(max_length=SCOPES_MAX)] = msgspec.field(default_factory=list)
    """Scopes like `push`, `pop:orders` or `status:orders.*`."""
    expires_at: Moment | None = None


class RotateBody(Body):
    grace_seconds: Annotated[int, msgspec.Meta(ge=0, le=GRACE_SECONDS_MAX)] = GRACE_SECONDS
    """Seconds for which the previous secret stays valid."""


class LoginBody(Body):
    """A credential to exchange for a session cookie."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    """An API key, or a token of the identity provider."""


class Key(Answer):
    """A key, without its secret."""

    id: str
    name: str
    tenant: str
    role: str | None
    scopes: list[str]
    status: Literal["active", "expired", "revoked"]
    created_at: Moment
    created_by: str
    expires_at: Moment | None = None
    used_at: Moment | None = None
    """Time of the last use, to the minute."""
    revoked_at: Moment | None = None


class NewKey(Key):
    """A key with its secret, which is shown only once."""

    key: str


class Keys(Answer):
    keys: list[Key]


class Whoami(Answer):
    """The caller of the request, as the broker identified it."""

    name: str
    tenant: str
    scopes: list[str]
    expires_at: Moment | None = None
    open: bool
    """True if the broker requires no credentials."""
    cells: int = 1
    """Number of cells of the store, for callers that may list them."""
