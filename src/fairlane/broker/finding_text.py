"""Findings and their words: counts, durations and groups, as people read them, and links."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from fairlane.model.names import COMMANDS, QUEUE_MODE
from fairlane.wire.monitoring import Finding, Severity

SHOWN_MAX: Final = 10
"""Largest number of findings of one kind. The rest is only counted."""
STUCK_SECONDS: Final = 60
_CRITICAL: Final = (
    "lanes_stopped",
    "app_lost",
    "operations_failed",
    "journal_waiting",
    "disk_full",
    "hook_unavailable",
    "store_away",
    "cell_away",
)
_SEVERITIES: Final[dict[str, Severity]] = {**dict.fromkeys(_CRITICAL, "critical"), "bloat": "notice"}
"""Severity by the kind of finding. The default is warning."""


def count_text(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def wait_text(count: int, noun: str) -> str:
    return f"{count_text(count, noun)} {'waits' if count == 1 else 'wait'}"


def group_text(name: str) -> str:
    own = {QUEUE_MODE: "the queue's own group", COMMANDS: "the group of commands"}
    return own.get(name) or f"the group {name!r}"


def span_text(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return count_text(int(seconds // size), name)
    return count_text(int(seconds), "second")


def finding(kind: str, sentence: str, page: str, **more: Any) -> Finding:
    """Return a finding with the severity of its kind.

    Its key is made of what it concerns, so that it stays the same while counts and ages change.
    """
    concerns = (more.get(name) for name in ("queue", "group", "partition", "app", "tenant"))
    more.setdefault("key", "/".join(quote(part or "", safe="") for part in (kind, *concerns)).rstrip("/"))
    return Finding(kind=kind, severity=_SEVERITIES.get(kind, "warning"), sentence=sentence, page=page, **more)


def page_of(*parts: str, **query: str) -> str:
    """Return the address of a page of the dashboard."""
    asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return "".join(f"/{quote(part, safe='')}" for part in parts) + asked


def path_of(*parts: str) -> str:
    return "/api/v1" + page_of(*parts)
