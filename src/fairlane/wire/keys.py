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
    """A key to be made: what it may do, by a role, by scopes or by both, and until when."""

    name: str
    role: str | None = None
    """`admin`, `read-write` or `read-only`, also for some queues: `read-only:orders.*`."""
    scopes: Annotated[list[str], msgspec.Meta(max_length=SCOPES_MAX)] = msgspec.field(default_factory=list)
    """Like `push`, `pop:orders` or `status:orders.*`."""
    expires_at: Moment | None = None


class RotateBody(Body):
    grace_seconds: Annotated[int, msgspec.Meta(ge=0, le=GRACE_SECONDS_MAX)] = GRACE_SECONDS
    """So long the secret before is good too."""


class LoginBody(Body):
    """A credential for the cookie of a browser."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
    """A key, or a token of the identity provider."""


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
    """To the minute."""
    revoked_at: Moment | None = None


class NewKey(Key):
    """A key with its secret, which is shown this once."""

    key: str


class Keys(Answer):
    keys: list[Key]


class Whoami(Answer):
    """The caller, as the broker knows it."""

    name: str
    tenant: str
    scopes: list[str]
    expires_at: Moment | None = None
    open: bool
    """Nobody is asked for a credential."""
