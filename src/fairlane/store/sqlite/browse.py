"""Browsing: pages of messages, and messages taken out of the order of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import apsw
import msgspec

from fairlane.errors import NotFound, Unavailable
from fairlane.model.ids import PartitionId, uuid7_ms
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import HEAD_BYTES, head_of, ids_of
from fairlane.store import statements
from fairlane.store.contract.browse import DeadLettered
from fairlane.store.contract.values import ActivePartition, Dead, Found, LaneAck, MessageHead, Upto
from fairlane.store.sqlite import deleted_ids, lanes, log, unordered
from fairlane.store.sqlite.ack import ack_one
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.dedup import SLACK_US
from fairlane.store.sqlite.lanes import ADD_DEPTH, LaneRow, parse_options
from fairlane.store.sqlite.messages import find
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.sqlite.seeding import QUEUES, recount_depth, seed_partition

SQL = statements.load("fairlane.store.sqlite", "browse.sql")
TRIM_ROWS: Final = 1_000  # deleted in one step: others wait for it some milliseconds
_log = logging.getLogger(__name__)


class Browse:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def active(
        self,
        queue_ids: Sequence[int],
        *,
        name: str | None = None,
        since: int = 0,
        before: tuple[int, PartitionId] | None = None,
        limit: int = 100,
    ) -> list[ActivePartition]:
        last_at, id = (before[0], before[1].id) if before else (None, None)
        ids = msgspec.json.encode(list(queue_ids)).decode()

        def work(db: apsw.Connection, now: int) -> list[ActivePartition]:
            found = rows(db, SQL["active"], ids, since, name, last_at, id, limit)
            return [ActivePartition(PartitionId(0, row[0]), *row[1:]) for row in found]

        return await self._database.read(work)

    async def back(self, where: Sequence[Upto], *, since: int = 0, limit: int = 100) -> list[MessageHead]:
        def work(db: apsw.Connection, now: int) -> list[MessageHead]:
            return [head for upto in where for head in _back(db, upto, since, limit)]

        return await self._database.read(work)

    async def delete(self, partition: PartitionId, position: int) -> bool:
        if partition.shard != 0:
            return False
        return await self._database.write(lambda db, now: _delete(db, now, partition.id, position))

    async def dead_letter(self, partition: PartitionId, group_id: int, position: int, error: str) -> DeadLettered:
        if partition.shard != 0:
            return "gone"
        return await self._database.write(
            lambda db, now: _dead_letter(db, now, (partition.id, group_id, position), error)
        )

    async def clear(self, queue_id: int, *, partition: PartitionId | None = None) -> int:
        only = None if partition is None else 0 if partition.shard else partition.id
        cleared = await self._database.write(lambda db, now: _clear(db, queue_id, only))
        if cleared is None:
            raise NotFound(f"there is no queue with the id {queue_id}")
        await self.trim()
        return cleared

    async def traced(self, queue_ids: Sequence[int], trace_id: str, *, limit: int = 10_000) -> list[Found]:
        ids = msgspec.json.encode(list(queue_ids)).decode()

        def work(db: apsw.Connection, now: int) -> list[Found]:
            found = rows(db, SQL["traced"], trace_id.lower(), ids, limit)
            return [Found(PartitionId(0, id), *rest) for id, *rest in found]

        return await self._database.read(work)

    async def with_id(self, queue_ids: Sequence[int], transaction_id: str) -> list[Found]:
        ids = msgspec.json.encode(list(queue_ids)).decode()
        made_at = uuid7_ms(transaction_id)
        since = 0 if made_at is None else made_at * 1000 - SLACK_US

        def work(db: apsw.Connection, now: int) -> list[Found]:
            partitions = rows(db, SQL["partitions_since"], ids, since)
            found = [(find(db, id, transaction_id), id, queue_id, name) for id, queue_id, name in partitions]
            return [Found(PartitionId(0, id), at, *rest) for at, id, *rest in found if at is not None]

        return await self._database.read(work)

    async def trim(self) -> None:
        """Remove what lies below the start of cleared partitions, also of those that an earlier process cleared."""
        try:
            while await self._database.write(_trim_step):
                pass
        except Unavailable as error:
            _log.warning("cannot delete rows of cleared queues before the next start: %s", error)

    async def trim_some(self, steps: int) -> bool:
        """Forget ids whose window has passed, and do up to so many steps of it; whether some are left."""
        forgotten = await self._database.write(lambda db, now: deleted_ids.forget(db, now, TRIM_ROWS))
        for _ in range(steps):
            if not await self._database.write(_trim_step):
                return forgotten == TRIM_ROWS
        return True


def _back(db: apsw.Connection, upto: Upto, since: int, limit: int) -> Iterator[MessageHead]:
    partition_id = upto.partition.id
    bounds = log.bounds(db, partition_id) if upto.partition.shard == 0 else None
    if bounds is None:
        return
    start, head = bounds
    below = min(upto.position, log.first_at_or_after(db, partition_id, start, head, upto.until))
    for row in db.execute(SQL["segments_backward"], (partition_id, below)):
        segment = log.segment_of(row)
        last = min(below, segment.first + len(segment.ends))
        if segment.created_at < since or last <= start:
            return
        low = max(start, segment.first)
        holes = {position for (position,) in rows(db, SQL["holes_at"], partition_id, low, last)}
        for position in range(last - 1, low - 1, -1):
            if limit <= 0:
                return
            if position not in holes:
                ids = head_of(log.fragment_at(segment, position)[:HEAD_BYTES])
                yield MessageHead(upto.partition, position, segment.created_at, *ids)
                limit -= 1


def _delete(db: apsw.Connection, now: int, partition_id: int, position: int) -> bool:
    queue = first(db, SQL["queue_of"], partition_id)
    if queue is None or not value(db, log.SQL["is_there"], partition_id, position):
        return False
    queue_id, options = queue[0], parse_options(queue[1])
    if options.ordering == "unordered":
        unordered.withdraw(db, partition_id, position)
    elif options.max_size and position >= value(db, SQL["first_open"], partition_id):
        db.execute(ADD_DEPTH, (-1, queue_id))
    fragment = log.fragment_at(log.segment_at(db, partition_id, position), position)
    for statement in ("delete_skips_at", "delete_letters_at", "delete_failures_at", "delete_results_at"):
        db.execute(SQL[statement], (partition_id, position))
    db.execute(SQL["insert_skip"], (partition_id, position, 0, now))
    db.execute(SQL["mark"], (partition_id, position))
    for (group_id,) in rows(db, SQL["groups_of"], partition_id):
        loaded = lanes.load(db, partition_id, group_id)
        if loaded is not None:
            _pass(db, now, *loaded)
    if options.ordering == "unordered":
        unordered.settle_down(db, partition_id)
        recount_depth(db, queue_id)
    for statement in ("delete_traces_of", "delete_trace_names_of"):
        db.execute(SQL[statement], (partition_id, ids_of(fragment)[1]))
    return True


def _pass(db: apsw.Connection, now: int, lane: LaneRow, options: QueueOptions) -> None:
    """A lane that nobody holds moves on at once; what it slept for is gone."""
    if lane.lease is None and lanes.step_over(db, lane, options):
        lane.free(now)
    lanes.save(db, lane)


def _dead_letter(db: apsw.Connection, now: int, key: tuple[int, int, int], error: str) -> DeadLettered:
    partition_id, group_id, position = key
    queue = first(db, SQL["queue_of"], partition_id)
    if queue is None or not value(db, log.SQL["is_there"], partition_id, position):
        return "gone"
    seed_partition(db, queue[0], partition_id, now)
    loaded = lanes.load(db, partition_id, group_id)
    if loaded is None:
        return "gone"
    lane, options = loaded
    if options.ordering == "unordered":
        dead = Dead(position, error[:ERROR_CHARS_MAX])
        ack = LaneAck(
            partition=PartitionId(0, partition_id), group_id=group_id, token=None, unordered=True, dead_letters=[dead]
        )
        result = ack_one(db, now, ack)
        if not result.lost:
            return "dead" if result.died else "finished"
    if position < lane.committed or lanes.next_skip(db, lane, position) == position:
        return "finished"
    lanes.dead_letter(db, lane, position, now, error=error[:ERROR_CHARS_MAX])
    db.execute(SQL["forget_failure"], (partition_id, group_id, position))
    db.execute(SQL["insert_skip"], (partition_id, position, group_id, now))
    lane.failing = 1
    _pass(db, now, lane, options)
    if options.ordering == "unordered":
        recount_depth(db, lane.queue_id)
    return "dead"


_CLEARED = (
    *("cursors", "failures", "claims", "skips", "scheduled_messages", "scheduled_keys", "scheduled_segments"),
    *("to_trim", "partitions", "to_expire"),
)


def _clear(db: apsw.Connection, queue_id: int, only: int | None) -> int | None:
    if value(db, QUEUES["exists"], queue_id) is None:
        return None
    cleared: int = value(db, SQL["count"], queue_id, only)
    for step in _CLEARED:
        db.execute(SQL[f"clear_{step}"], (queue_id, only))
    recount_depth(db, queue_id)
    return cleared


def _trim_step(db: apsw.Connection, now: int) -> bool:
    """Delete some rows; False when none is left anywhere."""
    budget = TRIM_ROWS
    while row := first(db, SQL["trims"]):
        partition_id, start, cleared = row
        budget -= deleted_ids.trim(db, now, partition_id, start, cleared, budget)
        if budget > 0:
            budget -= deleted_ids.trim_beside(db, partition_id, budget)
        for what in ("traced", "traces", "trace_names"):
            if budget <= 0:
                return True
            db.execute(SQL[f"trim_{what}"], (partition_id, start, budget))
            budget -= db.changes()
        if budget <= 0:
            return True
        db.execute(SQL["trimmed"], (partition_id,))
        budget -= 1
    return False
