"""Limits on SQLite: how many messages a group may get now, and when it may get more."""

from __future__ import annotations

from itertools import accumulate

import apsw

from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.model.rate import DeliveryRate
from fairlane.store import statements
from fairlane.store.contract.limits import Allowance
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.rows import first, rows

SQL = statements.load("fairlane.store.sqlite", "limits.sql")


def allowance(db: apsw.Connection, now: int, group_id: int, options: QueueOptions, key: str = "") -> Allowance:
    """Return how many messages the group may get now, or how many of one key."""
    allowed: int | None = None
    until = limited_by = running = started = None
    limit, rate = (options.max_running_per_key, options.rate_per_key) if key else (options.max_running, options.rate)
    suffix = "_per_key" if key else ""
    if limit:
        held = first(db, SQL["held_of_key"], group_id, now, key) if key else None
        running, ends_at = held or first(db, SQL["held"], group_id, now, NEVER_AT)
        allowed = limit - running
        if allowed <= 0:
            limited_by, until = f"max_running{suffix}", ends_at
    if rate:
        count, seconds = DeliveryRate.parse("rate", rate)
        window = seconds * 1_000_000
        starts = rows(db, SQL["started"], group_id, key, now - window)
        started = sum(n for _, n in starts)
        allowed = count - started if allowed is None else min(allowed, count - started)
        if started >= count:
            limited_by = f"rate{suffix}"
            gone = accumulate(n for _, n in starts)
            until = next(at for (at, _), n in zip(starts, gone, strict=True) if started - n < count) + window
    return Allowance(allowed, until, limited_by, running, started)


def state(db: apsw.Connection, now: int, group_id: int, key: str) -> Allowance | None:
    row = first(db, SQL["options"], group_id)
    return None if row is None else allowance(db, now, group_id, parse_options(row[0]), key)
