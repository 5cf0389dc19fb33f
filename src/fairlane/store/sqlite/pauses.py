"""Pauses of queues, groups, partitions and lanes. What is paused is decided by the pop that meets it."""

from __future__ import annotations

import apsw

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.queue import Paused
from fairlane.store import statements
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.lanes import load, save
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.rows import rows, value

SQL = statements.load("fairlane.store.sqlite", "pauses.sql")


class Pauses:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def pause(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            if partition is not None and group_id is not None:
                return bool(rows(db, SQL["park_lane"], queue_id, _id(partition), group_id))
            if partition is not None:
                return bool(rows(db, SQL["pause_partition"], queue_id, _id(partition), now))
            if group_id is not None:
                return bool(rows(db, SQL["pause_group"], queue_id, group_id, now))
            return bool(rows(db, SQL["pause_queue"], queue_id, now))

        return await self._database.write(work)

    async def resume(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            if partition is not None and group_id is not None:
                return bool(_resume_lanes(db, now, group_id, _id(partition)))
            if partition is not None:
                db.execute(SQL["wake_partition"], (_id(partition), now, NEVER_AT))
                return bool(rows(db, SQL["resume_partition"], queue_id, _id(partition)))
            if group_id is not None:
                return bool(rows(db, SQL["resume_group"], queue_id, group_id))
            return bool(rows(db, SQL["resume_queue"], queue_id))

        return await self._database.write(work)

    async def resume_lanes(self, group_id: int) -> int:
        return await self._database.write(lambda db, now: _resume_lanes(db, now, group_id, None))

    async def paused(self, queue_id: int) -> Paused:
        def work(db: apsw.Connection, now: int) -> Paused:
            return Paused(
                queue_at=value(db, SQL["queue"], queue_id),
                groups=dict(rows(db, SQL["groups"], queue_id)),
                partitions=dict(rows(db, SQL["partitions"], queue_id)),
            )

        return await self._database.read(work)


def _id(partition: PartitionId) -> int:
    return partition.id if partition.shard == 0 else -1


def _resume_lanes(db: apsw.Connection, now: int, group_id: int, only: int | None) -> int:
    stopped = rows(db, SQL["stopped_lanes"], group_id, only, NEVER_AT)
    for (partition_id,) in stopped:
        loaded = load(db, partition_id, group_id)
        assert loaded is not None, "a lane that was just read is there"
        lane, _ = loaded
        lane.parked = 0
        db.execute(SQL["forget_failure"], (partition_id, group_id, lane.committed))
        lane.failing = value(db, LOG["any_obstacle"], partition_id, group_id, lane.committed)
        if lane.ready_at == NEVER_AT:
            lane.free(now)
        save(db, lane)
    return len(stopped)
