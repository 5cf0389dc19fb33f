"""The audit log on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Limit


class AuditQuery(msgspec.Struct, rename="camel", kw_only=True):
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """Largest number of an entry, exclusive. The default is the newest."""
    limit: Limit = 100
    search: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    """Text that the caller, action or target contains. The case of ASCII letters is ignored."""


class AuditLine(Answer):
    """One entry: the caller, the action and the outcome."""

    number: int
    at: Moment
    tenant: str
    caller: str
    action: str
    target: str
    outcome: str
    """`done`, `refused` or `failed`. `begun` if the action runs, or its broker ended before recording the result."""
    ended_at: Moment | None = None
    source: str
    hash: str
    """SHA-256 over the entry and the hash of the previous one."""


class AuditPage(Answer):
    entries: list[AuditLine]
    """Entries, newest first."""

    def __iter__(self) -> Iterator[AuditLine]:
        return iter(self.entries)


class AuditVerified(Answer):
    """The result of a verification: True if every entry is unchanged and none is missing."""

    whole: bool
    entries: int
    first: int | None = None
    last: int | None = None
    head: str = ""
    """Hash of the last entry. Note it elsewhere to detect a log that was rewritten completely."""
    error: str | None = None
