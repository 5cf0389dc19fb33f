"""Findings on the wire: what is worth acting on, in sentences."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer

Severity = Literal["critical", "warning", "notice"]


class Action(Answer):
    """A request of this API that may mend what was found."""

    label: str
    method: str
    path: str
    body: dict[str, Any] = msgspec.field(default_factory=dict)


class Finding(Answer):
    kind: str
    """lanes_stopped, leases_lost, dead_letters_growing, operations_failed, operations_stuck, journal_waiting,
    group_stopped, queue_unread, schedule_late, hook_refused, hook_unavailable, snapshot_pinned, bloat, store_slow,
    store_away or disk_full."""
    severity: Severity
    sentence: str
    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    count: int | None = None
    since: Moment | None = None
    page: str | None = None
    """Of the dashboard, where to look."""
    action: Action | None = None


class FindingList(Answer):
    findings: list[Finding]
    """The worst first."""
    timestamp: Moment
