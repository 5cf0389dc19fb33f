"""Statistics on PostgreSQL: numbers of queues, partitions and groups; each shard is asked for its part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.limits import NEVER_AT
from fairlane.model.stats import ActiveLease, GroupStats, LaggingLane, PartitionStats, QueueStats, Standing
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.groups import group_of
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "statistics.sql")
_SUMS = ("lanes", "lagging", "lag", "finished", "leases", "leased", "dead")


class _Counted:
    """Counts of some queues or partitions; a key is whatever names one of them over all shards."""

    def __init__(self) -> None:
        self.sums: dict[Any, Counter[str]] = defaultdict(Counter)
        self.last_at: dict[Any, int] = {}

    def counts(self, key: Any) -> dict[str, Any]:
        sums = self.sums[key]
        return {
            "total": sums["total"] - sums["holes"],
            "unfinished": sums["unfinished"] - sums["open"],
            "leased": sums["leased"],
            "failed": sums["failed"],
            "dead": sums["dead"],
        }


class Statistics:
    def __init__(self, database: Database, shards: list[int]) -> None:
        self._database = database
        self._shards = shards

    async def queues(self, queue_ids: Sequence[int]) -> list[QueueStats]:
        there = {row["id"] for row in await self._database.read(SQL["queues_there"], list(queue_ids))}
        counted = _Counted()
        for shard in self._shards:
            await self._count(counted, shard, "queues", there)
        return [
            QueueStats(
                queue_id=id,
                partitions=counted.sums[id]["partitions"],
                last_at=counted.last_at.get(id),
                **counted.counts(id),
            )
            for id in queue_ids
            if id in there
        ]

    async def partitions(self, queue_id: int, *, after: str = "", limit: int = 1000) -> list[PartitionStats]:
        rows = await self._database.read(SQL["partitions_there"], self._shards, queue_id, after, limit)
        counted = _Counted()
        for shard, ids in _by_shard(PartitionId(row["shard"], row["id"]) for row in rows).items():
            await self._count(counted, shard, "partitions", ids)
        return [_partition(row, counted) for row in rows]

    async def _count(self, counted: _Counted, shard: int, of: str, ids: Iterable[int]) -> None:
        """Add one shard's counts. Partitions have ids of their own in all shards, so that they do not mix."""
        wanted = list(ids)
        for row in await self._database.read(SQL[f"logs_of_{of}"], shard, wanted, self._database.time()):
            sums = counted.sums[row["id"]]
            for name in ("partitions", "total", "unfinished", "leased"):
                sums[name] += row[name]
            if row["last_at"] is not None:
                counted.last_at[row["id"]] = max(row["last_at"], counted.last_at.get(row["id"], 0))
        for row in await self._database.read(SQL[f"holes_of_{of}"], shard, wanted):
            counted.sums[row["id"]].update({"holes": row["holes"], "open": row["open"]})
        for name, table in (("failed", "failures"), ("dead", "dead")):
            for row in await self._database.read(SQL[f"{table}_of_{of}"], shard, wanted):
                counted.sums[row["id"]][name] += row["n"]

    async def groups(self, queue_ids: Sequence[int]) -> list[GroupStats]:
        there = [group_of(row) for row in await self._database.read(SQL["groups_there"], list(queue_ids))]
        sums: dict[int, Counter[str]] = defaultdict(Counter)
        oldest: dict[int, int] = {}
        for shard in self._shards:
            for row in await self._database.read(SQL["groups"], shard, list(queue_ids), self._database.time()):
                id, at = row["group_id"], row["oldest_at"]
                sums[id].update({name: row[name] for name in _SUMS})
                if at is not None:
                    oldest[id] = min(at, oldest.get(id, at))
            for row in await self._database.read(SQL["skips_of_groups"], shard, list(queue_ids)):
                sums[row["id"]]["lag"] -= row["n"]
        return [
            GroupStats(group=group, oldest_at=oldest.get(group.id), **{name: sums[group.id][name] for name in _SUMS})
            for group in there
        ]

    async def lagging(self, queue_ids: Sequence[int], *, oldest_before: int, limit: int = 1000) -> list[LaggingLane]:
        found = []
        for shard in self._shards:
            rows = await self._database.read(
                SQL["lagging"], shard, list(queue_ids), oldest_before, limit, self._database.time()
            )
            for row in rows:
                fields = dict(row)
                partition = PartitionId(fields.pop("shard"), fields.pop("id"))
                found.append(LaggingLane(partition=partition, **fields))
        found.sort(key=lambda lane: (lane.oldest_at, lane.partition_name, lane.group))
        return found[:limit]

    async def leases(
        self, queue_ids: Sequence[int], *, group: str | None = None, ends_before: int = NEVER_AT, limit: int = 1000
    ) -> list[ActiveLease]:
        found = []
        for shard in self._shards:
            rows = await self._database.read(
                SQL["leases"], shard, list(queue_ids), group, min(ends_before, NEVER_AT), limit, self._database.time()
            )
            for row in rows:
                fields = dict(row)
                partition = PartitionId(shard, fields.pop("partition_id"))
                lease = LeaseId(fields.pop("group_id"), fields.pop("lease"))
                found.append(ActiveLease(partition=partition, **fields | {"lease": lease}))
        found.sort(key=lambda one: (one.ends_at, one.partition, one.group))
        return found[:limit]

    async def standings(self, partitions: Sequence[PartitionId]) -> list[Standing]:
        found = []
        for shard, ids in sorted(_by_shard(partitions).items()):
            for row in await self._database.read(SQL["standings"], shard, ids, self._database.time()):
                fields = dict(row)
                found.append(Standing(partition=PartitionId(shard, fields.pop("partition_id")), **fields))
        return found

    async def dead_among(self, positions: Sequence[tuple[PartitionId, int]]) -> set[tuple[PartitionId, int]]:
        by_shard: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for partition, position in positions:
            by_shard[partition.shard].append((partition.id, position))
        found = set()
        for shard, wanted in by_shard.items():
            rows = await self._database.read(
                SQL["dead_among"], shard, [id for id, _ in wanted], [position for _, position in wanted]
            )
            found |= {(PartitionId(shard, id), position) for id, position in rows}
        return found


def _by_shard(partitions: Iterable[PartitionId]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for partition in partitions:
        found[partition.shard].append(partition.id)
    return found


def _partition(row: asyncpg.Record, counted: _Counted) -> PartitionStats:
    fields: dict[str, Any] = dict(row)
    id = PartitionId(fields.pop("shard"), fields.pop("id"))
    return PartitionStats(id=id, **fields, **counted.counts(id.id))
