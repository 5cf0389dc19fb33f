"""Groups: listed, sent elsewhere in a queue, deleted."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from collections.abc import Callable

from fairlane.broker.catalogue import Catalogue
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.group import Group, LaneState, Seek
from fairlane.model.limits import COUNT_MAX
from fairlane.model.names import QUEUE_MODE, check_count, check_name
from fairlane.store.contract.store import Store


class Groups:
    def __init__(self, store: Store, tenant: str, catalogue: Catalogue, announce: Callable[[int, int], None]) -> None:
        self._store = store
        self._tenant = tenant
        self._catalogue = catalogue
        self._announce = announce

    async def list(self, queue: str) -> List[Group]:
        return await self._store.groups.list(
            (await self._catalogue.existing(self._tenant, check_name("queue", queue))).id
        )

    async def lanes(self, queue: str, group: str = QUEUE_MODE, *, limit: int = 1000) -> List[LaneState]:
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self._store.groups.lanes((await self._existing(queue, group)).id, limit=limit)

    async def seek(self, queue: str, group: str, seek: Seek, *, partition: str | None = None) -> int:
        """Send a group to the beginning, the end, a time or a position; how many lanes moved."""
        if not isinstance(seek, Seek):
            raise InvalidRequest("say where to with a Seek")
        seek.check()
        found = await self._existing(queue, group)
        lane = None
        if partition is not None:
            named = await self._store.queues.named(found.queue_id, check_name("partition", partition))
            if named is None:
                raise NotFound(f"queue {queue!r} has no partition {partition!r}")
            lane = named.id
        moved = await self._store.groups.seek(found.id, seek, partition=lane)
        self._announce(found.queue_id, moved)
        return moved

    async def delete(self, queue: str, group: str) -> int:
        found = await self._existing(queue, group)
        deleted = await self._store.groups.delete(found.id)
        self._catalogue.forget_group(found.queue_id, group)
        return deleted

    async def _existing(self, queue: str, name: str) -> Group:
        found = await self._catalogue.existing(self._tenant, check_name("queue", queue))
        group = await self._store.groups.get(found.id, check_name("group", name))
        if group is None:
            raise NotFound(f"queue {queue!r} has no group {name!r}")
        return group
