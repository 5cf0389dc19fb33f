"""The census: what the queues of a tenant hold, in numbers, remembered for as long as counting them is worth."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from fairlane.model.queue import Queue
from fairlane.model.stats import GroupStats, QueueStats
from fairlane.store.contract.store import Store

_SHARE = 20
_SECONDS_MAX = 10.0
_CHEAP_SECONDS = 0.02
_UNREAD_QUEUES = 100  # that are looked into, each with a statement of its own
_UNREAD_PARTITIONS = 1000

Counted = list[tuple[Queue, QueueStats]]


class _Count(NamedTuple):
    """The count of a queue, by its id: when it began, and until when it serves."""

    at: float
    until: float
    stats: dict[int, QueueStats]


class Census:
    """A census: counting costs a look at every partition. With many of them a count serves for twenty times as long as
    it took, so that dashboards which ask every second do not keep the store busy; while counting is cheap, every answer
    is fresh. Which queues there are, and how they are set up, is read anew each time: whoever has just changed a queue
    sees it so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, _Count] = {}

    async def queues(self, tenant: str) -> Counted:
        """Every queue, newest first, with its numbers."""
        queues = await self._store.queues.list(tenant)
        ids = [queue.id for queue in queues]
        known = self._known.get(tenant)
        if known is None or time.monotonic() >= known.until:
            known = await self._count(tenant, ids)
        elif born := [id for id in ids if id not in known.stats]:
            known.stats.update(await self._stats(born))
        return [(queue, known.stats[queue.id]) for queue in queues if queue.id in known.stats]

    async def _count(self, tenant: str, ids: list[int]) -> _Count:
        began = time.monotonic()
        stats = await self._stats(ids)
        found = _Count(at=began, until=serves_until(began), stats=stats)
        newest = self._known.get(tenant)
        if newest is None or newest.at <= began:  # one that began later may have ended sooner
            self._known[tenant] = found
        return found

    async def _stats(self, ids: list[int]) -> dict[int, QueueStats]:
        return {one.queue_id: one for one in await self._store.statistics.queues(ids)}

    def age_seconds(self, tenant: str) -> int:
        """Of the numbers that `queues` last answered."""
        known = self._known.get(tenant)
        return int(time.monotonic() - known.at) if known is not None else 0

    async def groups(self, tenant: str) -> list[tuple[Queue, GroupStats]]:
        """Every group of every queue, by name and queue."""
        queues = {queue.id: queue for queue in await self._store.queues.list(tenant)}
        found = [
            (queues[counted.group.queue_id], counted) for counted in await self._store.statistics.groups(list(queues))
        ]
        return sorted(found, key=lambda entry: (entry[1].group.name, entry[0].name))

    async def oldest(self, counted: Counted, groups: Iterable[GroupStats]) -> dict[int, int]:
        """When the oldest unfinished message of each queue came, by the slowest of its groups. Of queues that nobody
        reads the first are looked into, and in each the first partitions."""
        oldest: dict[int, int] = {}
        read_by_some: set[int] = set()
        for stats in groups:
            id = stats.group.queue_id
            read_by_some.add(id)
            if stats.oldest_at is not None:
                oldest[id] = min(stats.oldest_at, oldest.get(id, stats.oldest_at))
        unread = [queue.id for queue, stats in counted if queue.id not in read_by_some and stats.unfinished]
        for id in unread[:_UNREAD_QUEUES]:
            partitions = await self._store.statistics.partitions(id, limit=_UNREAD_PARTITIONS)
            times = [each.oldest_at for each in partitions if each.oldest_at is not None]
            if times:
                oldest[id] = min(times)
        return oldest


def serves_until(began: float) -> float:
    """Until when a count serves that began then and has just ended."""
    now = time.monotonic()
    return now + (0.0 if now - began < _CHEAP_SECONDS else min(_SECONDS_MAX, (now - began) * _SHARE))
