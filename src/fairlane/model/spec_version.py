"""Spec versions: specs that were applied. What a document says is `fairlane.spec`'s to know; here it is text."""

from __future__ import annotations

import msgspec

from fairlane.model.queue import QueueOptions
from fairlane.model.schedule import Schedule


class SpecVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an app's spec. The latest of each app is in force."""

    tenant: str
    version: int
    """Counts what was applied for the tenant, of whatever app."""
    app: str
    hash: str
    """Of the document: what says the same has the same."""
    applied_by: str
    applied_at: int
    source: str
    """The text that it was compiled from, as its author wrote it; "" if that was not told."""
    document: str


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A queue to make or to change."""

    name: str
    before: QueueOptions | None
    """What the plan was made against; None: it was not there."""
    after: QueueOptions


class SpecChange(msgspec.Struct, frozen=True, kw_only=True):
    """All that applying a spec changes."""

    spec: SpecVersion
    """With the version that it is to get; `applied_at` is the store's to say."""
    queues: tuple[QueueChange, ...] = ()
    queues_gone: tuple[str, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    schedules_gone: tuple[str, ...] = ()
