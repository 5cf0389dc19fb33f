"""Views of queues, groups and messages, as a broker gives them. Numbers it does not give are 0."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.moment import Moment


class _View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that this version does not know are ignored."""


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
