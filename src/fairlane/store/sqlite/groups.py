"""Consumer groups and their cursors."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections import Counter
from typing import Any

import apsw

from fairlane.errors import NotFound
from fairlane.model.group import Group, LaneState, Seek, Subscription, stopped
from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.store.contract.values import Roused
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.log import first_at_or_after
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.sqlite.seeding import QUEUES, SQL, group_of, recount_depth, seed_partition, seed_step, weigh
from fairlane.store.sqlite.unordered import SQL as CLAIMS


class Groups:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, queue_id: int, name: str) -> Group | None:
        return await self._database.read(lambda db, now: _get(db, queue_id, name))

    async def subscribe(self, queue_id: int, name: str, subscription: Subscription) -> Group:
        group = await self._database.write(lambda db, now: _subscribe(db, now, queue_id, name, subscription))
        if group is None:
            raise NotFound(f"there is no queue with the id {queue_id}")
        return group

    async def seed(self, group_id: int) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            row = first(db, SQL["by_id"], group_id)
            if row is None or not row[-1]:
                return False
            more = seed_step(db, group_id, now)
            recount_depth(db, row[1])
            return more

        return await self._database.write(work)

    async def list(self, queue_id: int) -> List[Group]:
        return await self._database.read(lambda db, now: [group_of(row) for row in rows(db, SQL["list"], queue_id)])

    async def lanes(
        self, group_id: int, *, partition: PartitionId | None = None, after: str = "", limit: int = 1000
    ) -> List[LaneState]:
        def work(db: apsw.Connection, now: int) -> List[LaneState]:
            if partition is None:
                found = rows(db, SQL["lanes"], now, group_id, after, limit)
            else:
                found = rows(db, SQL["lane"], now, group_id, partition.id) if partition.shard == 0 else []
            return [_lane_state(now, *row) for row in found]

        return await self._database.read(work)

    async def seek(self, group_id: int, seek: Seek, *, partition: PartitionId | None = None) -> int:
        return await self._database.write(lambda db, now: _seek(db, now, group_id, seek, partition))

    async def delete(self, group_id: int, *, keep_subscription: bool = False) -> int:
        return await self._database.write(lambda db, now: _delete(db, group_id, keep_subscription))

    async def resubscribe(self, group_id: int, subscription: Subscription) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            db.execute(SQL["resubscribe"], (subscription.mode, subscription.from_at, group_id))
            return db.changes() > 0

        return await self._database.write(work)

    async def result(self, group_id: int, partition: PartitionId, position: int) -> bytes | None:
        if partition.shard != 0:
            return None
        found: bytes | None = await self._database.read(
            lambda db, now: value(db, SQL["result"], partition.id, group_id, position)
        )
        return found and await self._database.codec.open(partition, found, f"result {position}")

    async def rouse(self, after: PartitionId | None, *, limit: int) -> Roused:
        last, asleep = await self._database.read(lambda db, now: _asleep(db, after.id if after else 0, limit))
        if asleep:
            await self._database.write(
                lambda db, now: db.executemany(SQL["rouse"], [(now, id, group, NEVER_AT) for id, group, _ in asleep])
            )
        return Roused(
            dict(Counter(queue_id for _, _, queue_id in asleep)), None if last is None else PartitionId(0, last)
        )

    async def next_ready_at(self, group_id: int) -> int | None:
        def work(db: apsw.Connection, now: int) -> int | None:
            there = value(db, SQL["by_id"], group_id) is not None
            return value(db, CLAIMS["next_at"], group_id, None, -1, NEVER_AT) if there else None

        return await self._database.read(work)


def _asleep(db: apsw.Connection, after: int, limit: int) -> tuple[int | None, List[tuple[int, int, int]]]:
    """The last of the partitions behind `after`, None if there are none, and their lanes that sleep over messages."""
    page = rows(db, SQL["partitions_after"], after, limit)
    if not page:
        return None, []
    last: int = page[-1][0]
    return last, rows(db, SQL["asleep"], after, last, NEVER_AT)


def _get(db: apsw.Connection, queue_id: int, name: str) -> Group | None:
    row = first(db, SQL["get"], queue_id, name)
    return group_of(row) if row else None


def _subscribe(db: apsw.Connection, now: int, queue_id: int, name: str, subscription: Subscription) -> Group | None:
    if value(db, QUEUES["exists"], queue_id) is None:
        return None
    group = _get(db, queue_id, name)
    if group is None:
        begun = (subscription.mode, subscription.from_at, subscription.conflation, subscription.look)
        row = first(db, SQL["make"], queue_id, name, *begun, now)
        seed_step(db, row[0], now)
    elif group.subscription.look and not subscription.look:
        db.execute(SQL["consumed"], (group.id,))
    else:
        return group
    weigh(db, queue_id)
    return _get(db, queue_id, name)


def _seek(db: apsw.Connection, now: int, group_id: int, seek: Seek, only: PartitionId | None) -> int:
    row = first(db, SQL["by_id"], group_id)
    if row is None or (only is not None and only.shard != 0):
        return 0
    queue_id = row[1]
    if only is None:
        while seed_step(db, group_id, now):
            pass
        partitions = rows(db, SQL["partitions_from"], queue_id, 0, -1)
    else:
        seed_partition(db, queue_id, only.id, now)
        partitions = rows(db, SQL["partition_of_queue"], queue_id, only.id)
    moves = []
    for id, start, head, _ in partitions:
        target = _target(db, seek, (id, start, head))
        moves.append((target, now if target < head else None, id, group_id))
    for forget in ("forget_failures", "forget_claims", "forget_skips"):
        db.executemany(SQL[forget], [(id, group_id) for _, _, id, _ in moves])
    db.executemany(SQL["seek_cursor"], moves)
    recount_depth(db, queue_id)
    return len(moves)


def _target(db: apsw.Connection, seek: Seek, partition: tuple[int, int, int]) -> int:
    id, start, head = partition
    if seek.to == "time":
        return first_at_or_after(db, id, start, head, seek.at)
    wanted = {"beginning": start, "end": head, "position": seek.at}[seek.to]
    return max(start, min(head, wanted))


def _delete(db: apsw.Connection, group_id: int, keep_subscription: bool) -> int:
    row = first(db, SQL["by_id"], group_id)
    if row is None:
        return 0
    queue_id = row[1]
    db.execute(SQL["begin_anew" if keep_subscription else "delete"], (group_id,))
    for table in ("failures", "claims", "skips", "dead_letters", "results"):
        db.execute(SQL[f"delete_{table}"], (group_id, queue_id))
    db.execute(SQL["delete_cursors"], (group_id, queue_id))
    gone = db.changes()
    weigh(db, queue_id)
    return gone


def _lane_state(now: int, id: int, name: str, start: int, head: int, *rest: Any) -> LaneState:
    (
        committed,
        ready_at,
        lease,
        lease_end,
        dead,
        expired,
        parked,
        paused_at,
        last_at,
        operations,
        attempts,
        error,
        skipped,
        in_flight,
        oldest_at,
    ) = rest
    live = lease is not None and ready_at is not None and now < ready_at
    return LaneState(
        partition=PartitionId(0, id),
        name=name,
        start=start,
        head=head,
        committed=committed,
        leased_until=lease_end if live else None,
        lease_ends_at=ready_at if live else None,
        ready_at=None if ready_at == NEVER_AT else ready_at,
        attempts=attempts or 0,
        error=error,
        stopped=stopped(parked=bool(parked), paused=paused_at is not None, never=ready_at == NEVER_AT),
        dead=dead,
        expired=expired,
        last_at=last_at,
        skipped=skipped,
        in_flight=in_flight,
        operations=operations,
        oldest_at=oldest_at,
    )
