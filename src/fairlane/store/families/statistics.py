"""Statistics: what queues hold, in numbers, and how far groups are.

Nothing is counted message by message: numbers come from heads and cursors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.stats import ActiveLease, GroupStats, LaggingLane, PartitionStats, QueueStats, Standing, StoppedLane
from fairlane.store.families.groups import group_of
from fairlane.store.families.port import Family, Value, View, struct

_SUMS = ("lanes", "lagging", "lag", "finished", "leases", "leased", "dead", "losing")


class _Counted:
    """Counts of some queues or partitions, by id. Partitions have ids of their own in all shards, so that they do not
    mix."""

    def __init__(self) -> None:
        self.sums: dict[int, Counter[str]] = defaultdict(Counter)
        self.last_at: dict[int, int] = {}

    async def add(self, view: View, of: str, shard: int, ids: Iterable[int]) -> None:
        """One shard's counts."""
        where: dict[str, Value] = {"shard": shard, "ids": list(ids)}
        for id, partitions, total, unfinished, leased, last_at in await view.run(f"statistics.logs_of_{of}", **where):
            self.sums[id].update(partitions=partitions, total=total, unfinished=unfinished, leased=leased)
            if last_at is not None:
                self.last_at[id] = max(last_at, self.last_at.get(id, 0))
        for id, holes, open_holes in await view.run(f"statistics.holes_of_{of}", **where):
            self.sums[id].update(total=-holes, unfinished=-open_holes)
        for id, count in await view.run(f"statistics.failures_of_{of}", **where):
            self.sums[id].update(failed=count)
        for id, count in await view.run(f"statistics.dead_of_{of}", **where):
            self.sums[id].update(dead=count)

    def counts(self, id: int) -> dict[str, int]:
        return {name: self.sums[id][name] for name in ("total", "unfinished", "leased", "failed", "dead")}


class Statistics(Family):
    async def queues(self, queue_ids: Sequence[int]) -> list[QueueStats]:
        """One for each queue that is there, in the order asked."""
        counted = _Counted()

        async def look(view: View) -> set[int]:
            there = {id for (id,) in await view.run("statistics.queues_there", queue_ids=queue_ids)}
            for shard in self._port.shards:
                await counted.add(view, "queues", shard, there)
            return there

        there = await self._port.view(look)
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
        """Partitions whose name is greater than `after`, by name."""
        counted = _Counted()
        where: dict[str, Value] = {"shard": self._shard_of(queue_id), "queue_id": queue_id}

        async def look(view: View) -> list[tuple[PartitionId, dict[str, Any]]]:
            names = ("name", "start", "head", "created_at", "last_at", "oldest_at")
            found = [
                (PartitionId(shard, id), dict(zip(names, rest, strict=True)))
                for shard, id, *rest in await view.run("statistics.partitions_there", after=after, limit=limit, **where)
            ]
            for shard, ids in _by_shard(id for id, _ in found).items():
                await counted.add(view, "partitions", shard, ids)
            return found

        found = await self._port.view(look)
        return [PartitionStats(id=id, **(fields | counted.counts(id.id))) for id, fields in found]

    async def oldest(self, queue_ids: Sequence[int], *, partitions: int) -> dict[int, int]:
        """When the oldest message came that is stored in the first so many partitions of each queue, by name."""
        by_shard: dict[int, list[int]] = defaultdict(list)
        for id in queue_ids:
            by_shard[self._shard_of(id)].append(id)
        return {
            id: oldest_at
            for shard, ids in by_shard.items()
            for id, oldest_at in await self._port.read(
                "statistics.oldest", shard=shard, queue_ids=ids, partitions=partitions
            )
        }

    async def groups(self, queue_ids: Sequence[int]) -> list[GroupStats]:
        """One for each group of these queues, in no order."""
        sums: dict[int, Counter[str]] = defaultdict(Counter)
        oldest: dict[int, int] = {}
        taken: dict[int, int] = {}

        async def look(view: View) -> list[Any]:
            for shard in self._port.shards:
                for id, lanes, lagging, lag, oldest_at, *rest, taken_at in await view.run(
                    "statistics.groups", shard=shard, queue_ids=queue_ids
                ):
                    sums[id].update(dict(zip(_SUMS, (lanes, lagging, lag, *rest), strict=True)))
                    if oldest_at is not None:
                        oldest[id] = min(oldest_at, oldest.get(id, oldest_at))
                    if taken_at is not None:
                        taken[id] = max(taken_at, taken.get(id, taken_at))
                for id, skips in await view.run("statistics.skips_of_groups", shard=shard, queue_ids=queue_ids):
                    sums[id].update(lag=-skips)
            return await view.run("statistics.groups_there", queue_ids=queue_ids)

        return [
            GroupStats(
                group=group,
                oldest_at=oldest.get(group.id),
                taken_at=taken.get(group.id),
                **{name: sums[group.id][name] for name in _SUMS},
            )
            for group in map(group_of, await self._port.view(look))
        ]

    async def lagging(self, queue_ids: Sequence[int], *, oldest_before: int, limit: int = 1000) -> list[LaggingLane]:
        """Lanes whose first unfinished message came before this time, oldest first."""
        where: dict[str, Value] = {"queue_ids": queue_ids, "oldest_before": oldest_before, "limit": limit}
        found = [struct(LaggingLane, row) for row in await self._read_all("statistics.lagging", **where)]
        found.sort(key=lambda lane: (lane.oldest_unconsumed_at, lane.partition_name, lane.consumer_group))
        return found[:limit]

    async def leases(
        self, queue_ids: Sequence[int], *, group: str | None = None, ends_before: int = NEVER_AT, limit: int = 1000
    ) -> list[ActiveLease]:
        """Live leases, of one group or of all, that end before this time unless they are renewed, the next to end
        first."""
        where: dict[str, Value] = {"queue_ids": queue_ids, "group": group, "limit": limit}
        where["ends_before"] = min(ends_before, NEVER_AT)
        found = [struct(ActiveLease, row) for row in await self._read_all("statistics.leases", **where)]
        return sorted(found, key=lambda one: (one.expires_at, one.partition_id, one.consumer_group))[:limit]

    async def stopped(self, queue_ids: Sequence[int], *, limit: int = 1000) -> list[StoppedLane]:
        """Lanes of these queues that are blocked or parked, by queue, group and partition, those that a pop has met;
        only they are looked at."""
        rows = await self._read_all("statistics.stopped", queue_ids=queue_ids, limit=limit)
        found = [struct(StoppedLane, row) for row in rows]
        return sorted(found, key=lambda one: (one.queue_id, one.group, one.partition))[:limit]

    async def standings(self, partitions: Sequence[PartitionId]) -> list[Standing]:
        """Every group's cursor in these partitions, by partition and group."""
        return [
            struct(Standing, row)
            for shard, ids in sorted(_by_shard(partitions).items())
            for row in await self._port.read("statistics.standings", shard=shard, ids=ids)
        ]

    async def dead_among(self, positions: Sequence[tuple[PartitionId, int]]) -> set[tuple[PartitionId, int]]:
        """Those of the messages that some group gave up on."""
        by_shard: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for partition, position in positions:
            by_shard[partition.shard].append((partition.id, position))
        found: set[tuple[PartitionId, int]] = set()
        for shard, wanted in by_shard.items():
            columns: dict[str, Value] = {"ids": [id for id, _ in wanted], "positions": [at for _, at in wanted]}
            rows = await self._port.read("statistics.dead_among", shard=shard, **columns)
            found |= {(PartitionId(shard, id), position) for shard, id, position in rows}
        return found


def _by_shard(partitions: Iterable[PartitionId]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for partition in partitions:
        found[partition.shard].append(partition.id)
    return found
