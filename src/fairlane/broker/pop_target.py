"""The target of a pop: its queue, group and partition. Creates the lanes of a new group."""

from __future__ import annotations

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.waiters import FLOOR_SECONDS, NOT_MADE_YET, Waiters
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.lease import PopRequest
from fairlane.model.names import QUEUE_MODE
from fairlane.model.queue import Queue
from fairlane.runtime.background import BackgroundTasks
from fairlane.store.contract.store import Store

Target = tuple[Queue, Group, PartitionId | None]


class PopTargets:
    def __init__(self, store: Store, catalogue: Catalogue, waiters: Waiters, background: BackgroundTasks) -> None:
        self._store = store
        self._catalogue = catalogue
        self._waiters = waiters
        self._background = background
        self._seeding: set[int] = set()
        """Groups whose lanes this broker is creating."""

    async def find(self, request: PopRequest) -> Target | None:
        """Return queue, group and partition. None while the queue or the partition does not exist.

        A group that subscribes to new messages only is created even on a queue that does not exist yet: otherwise the
        first messages, pushed after this pop, would later count as history. The same holds for a group that conflates.
        """
        wanted = request.subscription
        make = request.group != QUEUE_MODE and (wanted.mode != "all" or wanted.conflation)
        queue = await self._catalogue.queue(request.tenant, request.queue, make=make)
        if queue is None:
            return None
        if request.subscription.conflation and queue.options.ordering == "unordered":
            raise InvalidRequest(f"queue {queue.name!r:.80} is unordered, and conflation needs an ordered queue")
        try:
            group = await self._catalogue.group(queue, request.group, request.subscription)
        except NotFound:
            self._catalogue.forget(queue.id)
            return None
        if group.seeding:
            self._catalogue.forget_group(queue.id, group.name)
            await self._seed(group)
        if request.partition is None:
            return queue, group, None
        known = self._catalogue.known_partition(queue, request.partition)
        if known is None:
            known = await self._store.queues.named(queue.id, request.partition)
        return None if known is None else (queue, group, known.id)

    async def wait(self, request: PopRequest, seconds: float) -> Target | None:
        """Return the target if it exists.

        Otherwise wait until a new queue or partition gets a message, and return None.
        """
        if seconds <= 0:
            return None
        newcomer = self._waiters.park(NOT_MADE_YET, (0, ""))  # before the lookup, so that no push is missed in between
        try:
            target = await self.find(request)
            if target is None:
                await self._waiters.wait([newcomer], min(seconds, FLOOR_SECONDS))
            return target
        finally:
            self._waiters.remove(NOT_MADE_YET, (0, ""), newcomer)

    async def _seed(self, group: Group) -> None:
        """Create the first lanes of a group, so that there is something to pop, and the rest in the background."""
        if group.id not in self._seeding and await self._store.groups.seed(group.id):
            self._seeding.add(group.id)
            self._background.spawn(self._seed_rest(group))

    async def _seed_rest(self, group: Group) -> None:
        try:
            while await self._store.groups.seed(group.id):
                self._waiters.wake(group.queue_id, 1, group_id=group.id)
        finally:
            self._seeding.discard(group.id)
