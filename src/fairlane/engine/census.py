"""What the queues of a tenant hold, in numbers, remembered for as long as counting them is worth."""

from __future__ import annotations

import time

from fairlane.model.queue import Queue
from fairlane.model.stats import GroupStats, QueueStats
from fairlane.store.base import Store

_SHARE = 20
_SECONDS_MAX = 10.0
_CHEAP_SECONDS = 0.02

Counted = list[tuple[Queue, QueueStats]]


class Census:
    """Counting costs a look at every partition. With many of them an answer serves for twenty times as long as it
    took, so that dashboards which ask every second do not keep the store busy; while counting is cheap, every
    answer is fresh."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[Counted, float, float]] = {}

    async def queues(self, tenant: str) -> Counted:
        """Every queue, newest first, with its numbers."""
        known, _, until = self._known.get(tenant, ([], 0.0, 0.0))
        began = time.monotonic()
        if began < until:
            return known
        queues = await self._store.queues.list(tenant)
        counted = {one.queue_id: one for one in await self._store.statistics.queues([queue.id for queue in queues])}
        found = [(queue, counted[queue.id]) for queue in queues if queue.id in counted]
        took = time.monotonic() - began
        rest = 0.0 if took < _CHEAP_SECONDS else min(_SECONDS_MAX, took * _SHARE)
        self._known[tenant] = (found, began, time.monotonic() + rest)
        return found

    def age_seconds(self, tenant: str) -> int:
        """Of what `queues` last answered."""
        _, at, _ = self._known.get(tenant, ([], time.monotonic(), 0.0))
        return int(time.monotonic() - at)

    async def groups(self, tenant: str) -> list[tuple[Queue, GroupStats]]:
        """Every group of every queue, by name and queue."""
        queues = {queue.id: queue for queue in await self._store.queues.list(tenant)}
        found = [
            (queues[counted.group.queue_id], counted) for counted in await self._store.statistics.groups(list(queues))
        ]
        return sorted(found, key=lambda entry: (entry[1].group.name, entry[0].name))
