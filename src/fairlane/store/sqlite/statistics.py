"""Statistics: numbers of queues, partitions and groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import apsw
import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.limits import NEVER_AT
from fairlane.model.stats import ActiveLease, GroupStats, LaggingLane, PartitionStats, QueueStats, Standing
from fairlane.store import statements
from fairlane.store.sqlite import unordered
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.rows import rows
from fairlane.store.sqlite.seeding import group_of

SQL = statements.load("fairlane.store.sqlite", "statistics.sql")


class Statistics:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def queues(self, queue_ids: Sequence[int]) -> list[QueueStats]:
        return await self._database.read(lambda db, now: _queues(db, now, queue_ids))

    async def partitions(self, queue_id: int, *, after: str = "", limit: int = 1000) -> list[PartitionStats]:
        return await self._database.read(lambda db, now: _partitions(db, now, (queue_id, after, limit)))

    async def groups(self, queue_ids: Sequence[int]) -> list[GroupStats]:
        return await self._database.read(lambda db, now: _groups(db, now, queue_ids))

    async def lagging(self, queue_ids: Sequence[int], *, oldest_before: int, limit: int = 1000) -> list[LaggingLane]:
        def work(db: apsw.Connection, now: int) -> list[LaggingLane]:
            return [_lagging(*row) for row in rows(db, SQL["lagging"], now, _json(queue_ids), oldest_before, limit)]

        return await self._database.read(work)

    async def leases(
        self, queue_ids: Sequence[int], *, group: str | None = None, ends_before: int = NEVER_AT, limit: int = 1000
    ) -> list[ActiveLease]:
        def work(db: apsw.Connection, now: int) -> list[ActiveLease]:
            bounds = (group, now, min(ends_before, NEVER_AT), limit)
            return [_lease(*row) for row in rows(db, SQL["leases"], _json(queue_ids), *bounds)]

        return await self._database.read(work)

    async def standings(self, partitions: Sequence[PartitionId]) -> list[Standing]:
        ids = _json(partition.id for partition in partitions if partition.shard == 0)

        def work(db: apsw.Connection, now: int) -> list[Standing]:
            return [_standing(*row) for row in rows(db, SQL["standings"], now, ids)]

        return await self._database.read(work)

    async def dead_among(self, positions: Sequence[tuple[PartitionId, int]]) -> set[tuple[PartitionId, int]]:
        wanted = _json([partition.id, position] for partition, position in positions if partition.shard == 0)

        def work(db: apsw.Connection, now: int) -> set[tuple[PartitionId, int]]:
            return {(PartitionId(0, id), position) for id, position in rows(db, SQL["dead_among"], wanted)}

        return await self._database.read(work)


def _json(values: Iterable[Any]) -> str:
    return msgspec.json.encode(list(values)).decode()


class _Counted:
    """Counts of some queues, or of some partitions, by id."""

    def __init__(self, db: apsw.Connection, now: int, of: str, ids: Iterable[int]) -> None:
        wanted = _json(ids)
        self.logs = {row[0]: row[1:] for row in rows(db, SQL[f"logs_of_{of}"], now, wanted)}
        self.holes = {row[0]: row[1:] for row in rows(db, SQL[f"holes_of_{of}"], wanted)}
        self.failed = dict(rows(db, SQL[f"failures_of_{of}"], wanted))
        self.dead = dict(rows(db, SQL[f"dead_of_{of}"], wanted))
        self.open = unordered.open_of(db, of, wanted)

    def counts(self, id: int) -> dict[str, int]:
        _, total, unfinished, leased, _ = self.logs.get(id, (0, 0, 0, 0, None))
        holes, open_holes = self.holes.get(id, (0, 0))
        return {
            "total": total - holes,
            "unfinished": unfinished - open_holes + self.open.get(id, 0),
            "leased": leased,
            "failed": self.failed.get(id, 0),
            "dead": self.dead.get(id, 0),
        }


def _queues(db: apsw.Connection, now: int, queue_ids: Sequence[int]) -> list[QueueStats]:
    there = {id for (id,) in rows(db, SQL["queues_there"], _json(queue_ids))}
    counted = _Counted(db, now, "queues", there)
    found = []
    for id in queue_ids:
        if id in there:
            partitions, *_, last_at = counted.logs.get(id, (0, None))
            found.append(QueueStats(queue_id=id, partitions=partitions, last_at=last_at, **counted.counts(id)))
    return found


def _partitions(db: apsw.Connection, now: int, page: tuple[int, str, int]) -> list[PartitionStats]:
    there = rows(db, SQL["partitions_there"], *page)
    counted = _Counted(db, now, "partitions", [row[0] for row in there])
    return [
        PartitionStats(
            id=PartitionId(0, id),
            name=name,
            start=start,
            head=head,
            created_at=created_at,
            last_at=last_at,
            oldest_at=oldest_at,
            **counted.counts(id),
        )
        for id, name, start, head, created_at, last_at, oldest_at in there
    ]


def _groups(db: apsw.Connection, now: int, queue_ids: Sequence[int]) -> list[GroupStats]:
    skipped = dict(rows(db, SQL["skips_of_groups"], _json(queue_ids)))
    names = GroupStats.__struct_fields__[1:]
    found = []
    for row in rows(db, SQL["groups"], now, _json(queue_ids)):
        group = group_of(row[:9])
        fields = dict(zip(names, row[9:], strict=True))
        fields["lag"] -= skipped.get(group.id, 0)
        found.append(GroupStats(group=group, **fields))
    return found


def _lagging(queue_id: int, group: str, id: int, name: str, *rest: Any) -> LaggingLane:
    lag, oldest_at, lease_ends_at = rest
    return LaggingLane(
        queue_id=queue_id,
        group=group,
        partition=PartitionId(0, id),
        partition_name=name,
        lag=lag,
        oldest_at=oldest_at,
        lease_ends_at=lease_ends_at,
    )


def _lease(queue_id: int, group: str, id: int, name: str, group_id: int, *rest: Any) -> ActiveLease:
    token, first, upto, committed, leased_at, ends_at = rest
    return ActiveLease(
        queue_id=queue_id,
        group=group,
        partition=PartitionId(0, id),
        partition_name=name,
        lease=LeaseId(group_id, UUID(bytes=token)),
        first=first,
        upto=upto,
        committed=committed,
        leased_at=leased_at,
        ends_at=ends_at,
    )


def _standing(
    id: int, group: str, committed: int, leased_until: int | None, lease_ends_at: int | None, ahead: str
) -> Standing:
    return Standing(
        partition=PartitionId(0, id),
        group=group,
        committed=committed,
        leased_until=leased_until,
        lease_ends_at=lease_ends_at,
        ahead=msgspec.json.decode(ahead, type=list[int]),
    )
