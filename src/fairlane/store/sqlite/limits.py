"""Limits on SQLite: how many messages a group may get now, and when it may get more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import apsw
import msgspec

from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.model.rate import DeliveryRate
from fairlane.store import statements
from fairlane.store.contract.limits import Allowance
from fairlane.store.contract.values import PopCall, PopResult
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.rows import first, rows

SQL = statements.load("fairlane.store.sqlite", "limits.sql")
LOOK_US = 1_000_000
"""An ack that ends no lease wakes nobody, so that polls look again after this time."""


def allowance(db: apsw.Connection, now: int, group_id: int, options: QueueOptions) -> Allowance:
    """Return how many messages the group may get now."""
    allowed: int | None = None
    until = limited_by = running = started = None
    if options.max_running:
        running, ends_at = first(db, SQL["held"], group_id, now, NEVER_AT)
        allowed = options.max_running - running
        if allowed <= 0:
            limited_by, until = "max_running", ends_at
    if options.rate:
        count, seconds = DeliveryRate.parse("rate", options.rate)
        window = seconds * 1_000_000
        starts = rows(db, SQL["started"], group_id, now - window)
        started = sum(n for _, n in starts)
        allowed = count - started if allowed is None else min(allowed, count - started)
        if started >= count:
            limited_by = limited_by or "rate"
            gone = accumulate(n for _, n in starts)
            free_at = next(at for (at, _), n in zip(starts, gone, strict=True) if started - n < count) + window
            until = free_at if until is None else max(until, free_at)
    return Allowance(allowed, until, limited_by, running, started)


def state(db: apsw.Connection, now: int, group_id: int) -> Allowance | None:
    row = first(db, SQL["options"], group_id)
    return None if row is None else allowance(db, now, group_id, parse_options(row[0]))


def pop(
    db: apsw.Connection, now: int, call: PopCall, options: QueueOptions, run: Callable[[PopCall], PopResult]
) -> PopResult:
    """Pop claim by claim, each no larger than what is allowed then."""
    found = PopResult([[] for _ in call.claims])
    allowed = allowance(db, now, call.group_id, options).allowed or 0
    for index, claim in enumerate(call.claims):
        if allowed <= 0:
            break
        one = msgspec.structs.replace(claim, batch=min(claim.batch, allowed))
        result = run(msgspec.structs.replace(call, claims=[one]))
        found.lanes[index] = result.lanes[0]
        found.leases_lost += result.leases_lost
        found.dead += result.dead
        found.expired += result.expired
        found.next_at = result.next_at
        taken = sum(lane.upto - lane.first for lane in result.lanes[0])
        if not taken:
            break
        allowed -= taken
        if options.rate:
            db.execute(SQL["start"], (call.group_id, now, taken))
    if options.rate:
        window = DeliveryRate.parse("rate", options.rate).seconds * 1_000_000
        db.execute(SQL["forget_starts"], (call.group_id, now - window))
    if allowed <= 0:
        state = allowance(db, now, call.group_id, options)
        running = state.limited_by == "max_running" and state.until is not None
        found.next_at = min(state.until or now, now + LOOK_US) if running else state.until
    return found
