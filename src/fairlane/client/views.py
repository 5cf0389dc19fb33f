"""Views of queues, groups and messages, as a broker gives them. Numbers it does not give are 0."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.moment import Moment


class _View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that this version does not know are ignored."""


class SourceView(_View, frozen=True, kw_only=True, rename="camel"):
    """A source: how far its records were read, and who reads them."""

    name: str
    revision: str = ""
    cursor: str | None = None
    """Where reading new records goes on; None: at the beginning."""
    token: int = 0
    created_at: Moment
    leased_until: Moment | None = None
    sweep: int = 0
    sweeping: bool = False
    sweep_cursor: str | None = None
    swept_at: Moment | None = None
    committed_at: Moment | None = None
    records: int = 0


class SourceCommitted(_View, frozen=True, kw_only=True, rename="camel"):
    """The result of the commit of a page."""

    revision: str
    created: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    repeated: bool = False
    """It was done before, and nothing happened now."""
    more: bool = False
    """There may be more records that are gone: commit the last page again, without records."""


class SpecPlan(_View, frozen=True, kw_only=True, rename="camel"):
    """The plan of a spec: what applying it would change, one entry for each queue, command or webhook."""

    app: str
    hash: str
    version: int = 0
    """The last that was applied before."""
    changes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    drift: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """What was changed otherwise since the app was last applied."""
    dangers: list[str] = msgspec.field(default_factory=list)
    """By what messages may be lost or refused."""


class AppliedSpec(_View, frozen=True, kw_only=True, rename="camel"):
    version: int
    app: str
    hash: str = ""
    applied_by: str = ""
    applied_at: Moment
    changes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """Of an apply: what it changed."""
    source: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
