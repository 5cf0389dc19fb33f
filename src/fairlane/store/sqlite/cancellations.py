"""Cancellations on SQLite: take a message away from the lanes of groups, also while a consumer holds it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.queue import QueueOptions
from fairlane.store import statements
from fairlane.store.contract.ack_rules import doubtful
from fairlane.store.contract.values import AckResult, LaneAck
from fairlane.store.sqlite import lanes, log, unordered
from fairlane.store.sqlite.groups import recount_depth, seed_partition
from fairlane.store.sqlite.lanes import LaneRow, parse_options
from fairlane.store.sqlite.rows import first, rows, value

SQL = statements.load("fairlane.store.sqlite", "cancellations.sql")
BROWSE = statements.load("fairlane.store.sqlite", "browse.sql")
Cancelled = tuple[int, str, bytes | None]
"""Group, state, and the token of the lease that held the message."""


def cancel(db: apsw.Connection, now: int, partition_id: int, group_id: int, position: int) -> list[Cancelled]:
    """Cancel a message for a group, or with group 0 for all that have not finished it and for those to come."""
    queue = first(db, BROWSE["queue_of"], partition_id)
    if queue is None or not value(db, log.SQL["is_there"], partition_id, position):
        return []
    seed_partition(db, queue[0], partition_id, now)
    groups = [id for (id,) in rows(db, BROWSE["groups_of"], partition_id) if group_id in (0, id)]
    found = [(id, *_cancel_in_lane(db, now, partition_id, id, position)) for id in sorted(groups)]
    if not found or (group_id == 0 and any(state != "finished" for _, state, _ in found)):
        known = rows(db, SQL["token"], partition_id, group_id, position)
        db.execute(SQL["insert"], (partition_id, group_id, position, None, now))
        found.append((group_id, "already" if known else "cancelled", None))
    if parse_options(queue[1]).ordering == "unordered":
        recount_depth(db, queue[0])
    return found


def _cancel_in_lane(
    db: apsw.Connection, now: int, partition_id: int, group_id: int, position: int
) -> tuple[str, bytes | None]:
    key = (partition_id, group_id)
    if known := rows(db, SQL["token"], *key, position):
        return "already", known[0][0]
    loaded = unordered.load(db, *key)
    assert loaded is not None, "a lane that was just read is there"
    lane, options = loaded
    if position < lane.committed or lanes.next_skip(db, lane, position) == position:
        return "finished", None
    if position < lane.claimed:
        token = value(db, SQL["holder"], *key, position, now)
        if not _take(db, now, lane, options, position):
            return "finished", None
    else:
        token = _leave_out(db, now, lane, options, position)
    db.execute(SQL["insert"], (*key, position, token, now))
    return "cancelled", token


def _take(db: apsw.Connection, now: int, lane: unordered.UnorderedLane, options: QueueOptions, position: int) -> bool:
    """Take a delivered message of an unordered lane from its holder. Returns False if it is finished."""
    claims = unordered.Claims(db, (lane.partition_id, lane.group_id), now, (position, position + 1), ())
    spans, _ = claims.take(position, position + 1, None)
    if not spans:
        return False
    lane.over += spans
    claims.save()
    unordered.save(db, lane, options)
    return True


def _leave_out(db: apsw.Connection, now: int, lane: LaneRow, options: QueueOptions, position: int) -> bytes | None:
    """Make pops skip a message, and end its lease if it was the last one open. Returns the token of a live lease."""
    key = (lane.partition_id, lane.group_id, position)
    live = lane.lease if lane.ready_at is not None and now < lane.ready_at else None
    limit = lane.lease_end or 0
    db.execute(BROWSE["forget_failure"], key)
    db.execute(BROWSE["insert_skip"], (lane.partition_id, position, lane.group_id, now))
    lane.failing = 1
    # The next pop charges the first message of an expired lease, so that cursor stays.
    if lane.lease is None:
        if lanes.step_over(db, lane, options):
            lane.make_ready(now)
    elif live is not None:
        lanes.step_over(db, lane, options)
        if lane.committed >= limit:
            lane.last_lease = live
            lane.make_ready(now)
    lanes.save(db, lane)
    return live if position < limit else None


def noted(db: apsw.Connection, acks: Sequence[LaneAck], acked: list[AckResult]) -> list[AckResult]:
    """Return the results of acks with the messages that were cancelled."""
    for index, (ack, result) in enumerate(zip(acks, acked, strict=True)):
        if spans := doubtful(ack, result):
            key = (ack.partition.id, ack.group_id)
            found = {position for span in spans for (position,) in rows(db, SQL["within"], *key, *span)}
            if found:
                acked[index] = msgspec.structs.replace(result, cancelled=sorted(found))
    return acked


def of_lease(db: apsw.Connection, group_id: int, token: UUID) -> list[tuple[PartitionId, int]]:
    return [(PartitionId.of(id), position) for id, position in rows(db, SQL["of_lease"], group_id, token.bytes)]
