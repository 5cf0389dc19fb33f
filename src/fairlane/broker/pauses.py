"""Pauses: pausing and resuming queues, groups, partitions and lanes; and why a lane does not move."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairlane.broker.catalogue import Catalogue
from fairlane.errors import NotFound
from fairlane.model.explanation import Explanation, explain
from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.queue import Paused, Queue
from fairlane.store.contract.store import Store

_MANY = 1_000_000


class PauseScope(msgspec.Struct, frozen=True):
    """Pause or resume this: a queue, a group of it, a partition for all groups, or a lane when both are named."""

    tenant: str
    queue: str
    group: str | None = None
    partition: str | None = None


class Pauses:
    """Pauses of queues, groups, partitions and lanes, by name."""

    def __init__(self, store: Store, catalogue: Catalogue, announce: Callable[[int, int], None]) -> None:
        self._store = store
        self._catalogue = catalogue
        self._announce = announce

    async def pause(self, scope: PauseScope) -> None:
        """NotFound if there is no such thing; pausing twice is as good as once."""
        queue, group, partition = await self._find(scope)
        group_id = group.id if group else None
        if not await self._store.pauses.pause(queue.id, group_id=group_id, partition=partition):
            raise NotFound(f"queue {scope.queue!r} was deleted, or its group has not begun to read the partition")

    async def resume(self, scope: PauseScope) -> bool:
        """False if it was not paused."""
        queue, group, partition = await self._find(scope)
        group_id = group.id if group else None
        resumed = await self._store.pauses.resume(queue.id, group_id=group_id, partition=partition)
        self._announce(queue.id, _MANY)
        return resumed

    async def resume_lanes(self, scope: PauseScope) -> int:
        """Resume all blocked and parked lanes of a group; how many."""
        queue = await self._catalogue.existing(scope.tenant, check_name("queue", scope.queue))
        group = await self._group(queue, scope.group or QUEUE_MODE)
        resumed = await self._store.pauses.resume_lanes(group.id)
        self._announce(queue.id, _MANY)
        return resumed

    async def paused(self, tenant: str, queue: str) -> Paused:
        found = await self._catalogue.existing(tenant, check_name("queue", queue))
        return await self._store.pauses.paused(found.id)

    async def explain(self, scope: PauseScope) -> Explanation:
        """NotFound if queue, group or partition are not there."""
        name = scope.group or QUEUE_MODE
        queue, group, partition = await self._find(msgspec.structs.replace(scope, group=name))
        assert group is not None, "a group that is asked for is there"
        lanes = await self._store.groups.lanes(group.id, partition=partition, limit=1)
        if not lanes:
            raise NotFound(f"group {name!r} has not begun to read partition {scope.partition!r}; ask again soon")
        paused = await self._store.pauses.paused(queue.id)
        now, seals = await self._store.now(), self._store.seals
        return explain(lanes[0], queue.options, paused, group=name, now=now, seals=seals)

    async def _find(self, scope: PauseScope) -> tuple[Queue, Group | None, PartitionId | None]:
        queue = await self._catalogue.existing(scope.tenant, check_name("queue", scope.queue))
        group = None if scope.group is None else await self._group(queue, scope.group)
        if scope.partition is None:
            return queue, group, None
        partition = await self._store.queues.named(queue.id, check_name("partition", scope.partition))
        if partition is None:
            raise NotFound(f"queue {scope.queue!r} has no partition {scope.partition!r}")
        return queue, group, partition.id

    async def _group(self, queue: Queue, name: str) -> Group:
        group = await self._store.groups.get(queue.id, check_name("group", name))
        if group is None:
            raise NotFound(f"queue {queue.name!r} has no group {name!r}")
        return group
