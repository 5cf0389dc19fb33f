"""Statistics of queues, partitions and groups.

Numbers come from heads and cursors, so no message is counted one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.stats import (
    LANE_STATES,
    ActiveLease,
    GroupStats,
    LaggingLane,
    PartitionStats,
    QueueStats,
    Standing,
    StoppedLane,
)
from fairlane.store.families.groups import group_of
from fairlane.store.families.query import Family, Value, View, struct

_SUMS = ("lanes", "lagging", "lag", "finished", "leases", "leased", "dead", "losing", *LANE_STATES)


class _Counted:
    """Counts of some queues or partitions, by id."""

    def __init__(self) -> None:
        self.sums: dict[int, Counter[str]] = defaultdict(Counter)
        self.last_at: dict[int, int] = {}

    async def add(self, view: View, of: str, ids: Iterable[int]) -> None:
        where: dict[str, Value] = {"ids": list(ids)}
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
        """Return statistics of the queues that exist, in the given order."""
        counted = _Counted()

        async def read(view: View) -> set[int]:
            there = {id for (id,) in await view.run("statistics.queues_there", queue_ids=queue_ids)}
            await counted.add(view, "queues", there)
            return there

        there = await self._runner.view(read)
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
        """Return partitions whose name is greater than `after`, by name."""
        counted = _Counted()
        page: dict[str, Value] = {"queue_id": queue_id, "after": after, "limit": limit}

        async def read(view: View) -> dict[int, dict[str, Any]]:
            names = ("name", "start", "head", "created_at", "last_at", "oldest_at")
            rows = await view.run("statistics.partitions_there", **page)
            found = {id: dict(zip(names, rest, strict=True)) for id, *rest in rows}
            await counted.add(view, "partitions", found)
            return found

        found = await self._runner.view(read)
        return [PartitionStats(id=PartitionId.of(id), **(fields | counted.counts(id))) for id, fields in found.items()]

    async def oldest(self, queue_ids: Sequence[int], *, partitions: int) -> dict[int, int]:
        """Return when the oldest message in the first `partitions` partitions of each queue was created.

        The first partitions are those with the smallest names.
        """
        rows = await self._runner.read("statistics.oldest", queue_ids=queue_ids, partitions=partitions)
        return {queue_id: oldest_at for queue_id, oldest_at in rows if oldest_at is not None}

    async def groups(self, queue_ids: Sequence[int]) -> list[GroupStats]:
        """Return statistics of each group of these queues, in no order."""
        sums: dict[int, Counter[str]] = defaultdict(Counter)
        oldest: dict[int, int] = {}
        taken: dict[int, int] = {}

        async def read(view: View) -> list[Any]:
            rows = await view.run("statistics.groups", queue_ids=queue_ids)
            for id, lanes, lagging, lag, oldest_at, *rest, taken_at in rows:
                sums[id].update(dict(zip(_SUMS, (lanes, lagging, lag, *rest), strict=True)))
                if oldest_at is not None:
                    oldest[id] = oldest_at
                if taken_at is not None:
                    taken[id] = taken_at
            for id, skips in await view.run("statistics.skips_of_groups", queue_ids=queue_ids):
                sums[id].update(lag=-skips)
            return await view.run("statistics.groups_there", queue_ids=queue_ids)

        return [
            GroupStats(
                group=group,
                oldest_at=oldest.get(group.id),
                taken_at=taken.get(group.id),
                **{name: sums[group.id][name] for name in _SUMS},
            )
            for group in map(group_of, await self._runner.view(read))
        ]

    async def lagging(self, queue_ids: Sequence[int], *, oldest_before: int, limit: int = 1000) -> list[LaggingLane]:
        """Return lanes whose first unfinished message was created before `oldest_before`, oldest first."""
        where: dict[str, Value] = {"queue_ids": queue_ids, "oldest_before": oldest_before, "limit": limit}
        found = [struct(LaggingLane, row) for row in await self._runner.read("statistics.lagging", **where)]
        found.sort(key=lambda lane: (lane.oldest_unconsumed_at, lane.partition_name, lane.consumer_group))
        return found[:limit]

    async def leases(
        self, queue_ids: Sequence[int], *, group: str | None = None, ends_before: int = NEVER_AT, limit: int = 1000
    ) -> list[ActiveLease]:
        """Return live leases, of one group or of all, that end before a time, the next to end first."""
        where: dict[str, Value] = {"queue_ids": queue_ids, "group": group, "limit": limit}
        where["ends_before"] = min(ends_before, NEVER_AT)
        found = [struct(ActiveLease, row) for row in await self._runner.read("statistics.leases", **where)]
        return sorted(found, key=lambda one: (one.expires_at, one.partition_id, one.consumer_group))[:limit]

    async def stopped(self, queue_ids: Sequence[int], *, limit: int = 1000) -> list[StoppedLane]:
        """Return blocked and parked lanes by queue, group and partition.

        A lane becomes blocked when a pop reaches it. Reads only the rows of these lanes.
        """
        rows = await self._runner.read("statistics.stopped", queue_ids=queue_ids, limit=limit)
        found = [struct(StoppedLane, row) for row in rows]
        return sorted(found, key=lambda one: (one.queue_id, one.group, one.partition))[:limit]

    async def standings(self, partitions: Sequence[PartitionId]) -> list[Standing]:
        """Return every group's cursor in these partitions, by partition and group."""
        ids = [partition.id for partition in partitions]
        return [struct(Standing, row) for row in await self._runner.read("statistics.standings", ids=ids)]

    async def dead_among(self, positions: Sequence[tuple[PartitionId, int]]) -> set[tuple[PartitionId, int]]:
        """Return the positions whose message is a dead letter of some group."""
        columns: dict[str, Value] = {
            "ids": [partition.id for partition, _ in positions],
            "positions": [position for _, position in positions],
        }
        rows = await self._runner.read("statistics.dead_among", **columns)
        return {(PartitionId.of(id), position) for id, position in rows}
