"""The audit log on the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Limit


class AuditQuery(msgspec.Struct, rename="camel", kw_only=True):
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """Entries below this number; the newest without one."""
    limit: Limit = 100


class AuditLine(Answer):
    """One entry: who did what, and what came of it."""

    number: int
    at: Moment
    tenant: str
    caller: str
    action: str
    target: str
    outcome: str
    """`done`, `refused` or `failed`; `begun` of an action that is under way, or whose broker ended before it could say
    what came of it."""
    ended_at: Moment | None = None
    source: str
    hash: str
    """SHA-256 over the entry and the hash of the one before."""


class AuditPage(Answer):
    entries: list[AuditLine]
    """Newest first."""


class AuditVerified(Answer):
    """Whether every entry is as it was written, and none is missing."""

    whole: bool
    entries: int
    first: int | None = None
    last: int | None = None
    head: str = ""
    """The hash of the last entry: note it elsewhere, and whoever rewrites the whole log is found out too."""
    error: str | None = None
