"""Spec versions: specs that were applied. What a document says is `fairlane.spec`'s to know; here it is text."""

from __future__ import annotations

import msgspec


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
