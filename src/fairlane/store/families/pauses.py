"""Pauses of queues, groups, partitions and lanes by an operator, and lanes blocked by a message without attempts left.

A pause stops pops only: pushes, acks and live leases continue, and the order is kept. Pops check for pauses when they
reach a lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.model.ids import PartitionId
from fairlane.model.queue import Paused
from fairlane.store.families.query import DatabaseTransaction, Family, Value, View, value


class Pauses(Family):
    async def pause(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        """Pause a queue, one group, one partition for all groups, or one lane, for pops that begin from now on.

        With both `group_id` and `partition` it parks that lane. Returns False if the id does not exist.
        """
        values = _values(queue_id, group_id, partition)
        if partition is not None:
            statement = "pauses.pause_partition" if group_id is None else "pauses.park_lane"
        else:
            statement = "pauses.pause_queue" if group_id is None else "pauses.pause_group"
        return bool(await self._runner.write(statement, **values))

    async def resume(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        """Undo the pause of exactly this queue, group, partition or lane. Returns False if it was not paused.

        A lane is resumed if it is parked or blocked, and the attempts of its message start over.
        """
        values = _values(queue_id, group_id, partition)

        async def resume_partition(transaction: DatabaseTransaction) -> bool:
            await transaction.lock("pauses.lock_partition", **values)
            await transaction.lock("pauses.lock_cursors", **values)
            await transaction.run("pauses.wake_partition", **values)
            return bool(await transaction.run("pauses.resume_partition", **values))

        if partition is not None and group_id is not None:
            return bool(await self._runner.writes.resume_lanes(group_id, partition.id))
        if partition is not None:
            return await self._runner.transact(resume_partition)
        statement = "pauses.resume_queue" if group_id is None else "pauses.resume_group"
        return bool(await self._runner.write(statement, **values))

    async def resume_lanes(self, group_id: int) -> int:
        """Resume every blocked or parked lane of a group and return their number."""
        return await self._runner.writes.resume_lanes(group_id, 0)

    async def queues(self, queue_ids: Sequence[int]) -> set[int]:
        """Return the paused ones among the queues."""
        return {id for (id,) in await self._runner.read("pauses.queues", queue_ids=queue_ids)}

    async def paused(self, queue_id: int) -> Paused:
        """Return the pauses of a queue, of its groups, and of up to 1,000 of its partitions."""

        async def read(view: View) -> Paused:
            return Paused(
                queue_at=value(await view.run("pauses.queue", queue_id=queue_id)),
                groups=dict(await view.run("pauses.groups", queue_id=queue_id)),
                partitions=dict(await view.run("pauses.partitions", queue_id=queue_id)),
            )

        return await self._runner.view(read)


def _values(queue_id: int, group_id: int | None, partition: PartitionId | None) -> dict[str, Value]:
    return {"queue_id": queue_id, "group_id": group_id, "partition_id": partition and partition.id}
