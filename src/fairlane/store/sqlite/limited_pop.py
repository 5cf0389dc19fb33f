"""Pop of a limited group on SQLite. Serves claim by claim or lane by lane, within what is allowed at that moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import QueueOptions
from fairlane.model.rate import DeliveryRate
from fairlane.model.segment import encode
from fairlane.store.contract.values import PopCall, PopResult
from fairlane.store.sqlite.limits import SQL, allowance
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.unordered import SQL as UNORDERED

LOOK_US = 1_000_000
"""Polls retry after this time, because an ack that ends no lease wakes no poll."""
Run = Callable[[PopCall], PopResult]


def pop(db: apsw.Connection, now: int, call: PopCall, options: QueueOptions, run: Run) -> PopResult:
    found = PopResult([[] for _ in call.claims])
    if options.rate or options.rate_per_key:
        _correct_starts(db, now, call.group_id)
    allowed = allowance(db, now, call.group_id, options).allowed
    for index, claim in enumerate(call.claims):
        if allowed is not None and allowed <= 0:
            break
        batch = claim.batch if allowed is None else min(claim.batch, allowed)
        one = msgspec.structs.replace(call, claims=[msgspec.structs.replace(claim, batch=batch)])
        taken = _add(found, index, _pop_keys(db, now, one, options, run) if options.limits_keys else run(one))
        if not taken:
            break
        allowed = None if allowed is None else allowed - taken
        if options.rate:
            db.execute(SQL["start"], (call.group_id, "", now, taken))
    if rates := [DeliveryRate.parse("rate", rate) for rate in (options.rate, options.rate_per_key) if rate]:
        window = max(rate.seconds for rate in rates) * 1_000_000
        db.execute(SQL["forget_starts"], (call.group_id, now - window))
    if allowed is not None and allowed <= 0:
        state = allowance(db, now, call.group_id, options)
        running = state.limited_by == "max_running" and state.until is not None
        found.next_at = min(state.until or now, now + LOOK_US) if running else state.until
    return found


def _correct_starts(db: apsw.Connection, now: int, group_id: int) -> None:
    """Count deliveries of a moment when the clock was ahead as deliveries of now."""
    if ahead := rows(db, SQL["starts_ahead"], group_id, now):
        db.execute(SQL["forget_starts_ahead"], (group_id, now))
        db.executemany(SQL["start"], [(group_id, key, now, n) for key, n in ahead])


def _add(found: PopResult, index: int, result: PopResult) -> int:
    """Add the result of one claim to the total result. Returns the number of its messages."""
    found.lanes[index] += result.lanes[0]
    found.leases_lost += result.leases_lost
    found.dead += result.dead
    found.expired += result.expired
    found.next_at = result.next_at
    return sum(lane.upto - lane.first for lane in result.lanes[0])


def _pop_keys(db: apsw.Connection, now: int, call: PopCall, options: QueueOptions, run: Run) -> PopResult:
    """Serve one claim within the limits of each key."""
    [claim] = call.claims
    found = PopResult([[]])
    batch, partitions, size = claim.batch, claim.partitions, call.bytes_max
    looks, full = _lanes(db, now, call, options)
    times = [now + LOOK_US] if full else []
    for partition_id, name in looks:
        if batch <= 0 or partitions <= 0 or size <= 0:
            return found
        key = options.key_of(name)
        allowed = allowance(db, now, call.group_id, options, key)
        if allowed.allowed is not None and allowed.allowed <= 0:
            times.append(_postpone(db, now, (partition_id, call.group_id), allowed.limited_by, allowed.until or now))
            continue
        most = batch if allowed.allowed is None else min(batch, allowed.allowed)
        lane = msgspec.structs.replace(
            call,
            claims=[msgspec.structs.replace(claim, batch=most, partitions=1)],
            partition=PartitionId.of(partition_id),
            bytes_max=size,
        )
        result = run(lane)
        taken = _add(found, 0, result)
        if taken and options.rate_per_key:
            db.execute(SQL["start"], (call.group_id, key, now, taken))
        batch, partitions = batch - taken, partitions - (taken > 0)
        size -= sum(len(segment.body) for one in result.lanes[0] for segment in one.segments)
    only = call.partition.id if call.partition else None
    later: int | None = value(db, UNORDERED["next_at"], call.group_id, only, now, NEVER_AT)
    found.next_at = min([*times, *([] if later is None else [later])], default=None)
    return found


def _lanes(
    db: apsw.Connection, now: int, call: PopCall, options: QueueOptions
) -> tuple[list[tuple[int, str]], list[Any]]:
    """Return candidate lanes, longest-ready first, and the keys that were skipped because they are full."""
    if call.partition is not None:
        return rows(db, SQL["lane"], call.partition.id), []
    most = options.max_running_per_key
    full = [key for (key,) in rows(db, SQL["full_keys"], call.group_id, now, most)] if most else []
    return rows(db, SQL["lanes"], call.group_id, now, call.queue_id, encode(full).decode()), full


def _postpone(db: apsw.Connection, now: int, lane: tuple[int, int], limited_by: str | None, until: int) -> int:
    """Postpone a lane until the rate of its key allows more. Returns that time.

    An expired lease stays: it is charged when its messages are delivered again.
    """
    if limited_by != "rate_per_key":
        return min(until, now + LOOK_US)
    db.execute(SQL["postpone_lane"], (*lane, now, until))
    db.execute(SQL["postpone_failures"], (*lane, now, until))
    return until
