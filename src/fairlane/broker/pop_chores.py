"""Chores of pops: finding what one names and preparing a new group, giving back what nobody will work on, putting off
what cannot be read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.waiters import Waiters
from fairlane.errors import (
    FairlaneError,
    InvalidRequest,
    NotFound,
    SealError,
    ShuttingDown,
    StoreCorrupt,
    Unavailable,
)
from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId, PopRequest
from fairlane.model.names import QUEUE_MODE
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Lane, LaneAck, Nack

Target = tuple[Queue, Group, PartitionId | None]

log = logging.getLogger(__name__)


_CORRUPT_PAUSE_MS = 60_000
_SEALED_PAUSE_MS = 5_000
"""A key that is missing here comes back, and other brokers may have it."""


class PopChores:
    def __init__(self, store: Store, catalogue: Catalogue, waiters: Waiters) -> None:
        self._store = store
        self._catalogue = catalogue
        self._waiters = waiters
        self._tasks: set[asyncio.Task[None]] = set()
        self._seeding: set[int] = set()
        """Groups that this broker gives their lanes."""

    async def target(self, request: PopRequest) -> Target | None:
        """Queue, group and partition; None while the queue or the partition is not there.

        A group that wants only what comes is begun also on a queue that nobody made yet: otherwise the first
        messages, pushed after this pop, would later count as history. So is one that conflates."""
        wanted = request.subscription
        make = request.group != QUEUE_MODE and (wanted.mode != "all" or wanted.conflation)
        queue = await self._catalogue.queue(request.tenant, request.queue, make=make)
        if queue is None:
            return None
        if request.subscription.conflation and queue.options.ordering == "unordered":
            raise InvalidRequest(
                f"queue {queue.name!r:.80} is unordered, where none is the newest: conflation is for ordered queues"
            )
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

    async def _seed(self, group: Group) -> None:
        """One step towards a group that has all its lanes: then there is something to pop. The rest goes on beside."""
        if group.id not in self._seeding and await self._store.groups.seed(group.id):
            self._seeding.add(group.id)
            self._spawn(self._seed_rest(group))

    async def _seed_rest(self, group: Group) -> None:
        try:
            while await self._store.groups.seed(group.id):
                self._waiters.wake(group.queue_id, 1, group_id=group.id)
        finally:
            self._seeding.discard(group.id)

    def give_back(self, lease: LeaseId) -> None:
        """The caller went away before its answer: nobody will work on it, and no message is to blame."""
        self._spawn(self._release(lease))

    async def _release(self, lease: LeaseId) -> None:
        for _ in range(10):
            try:
                released = await self._store.messages.release(lease)
                self._waiters.wake_group(lease.group_id, released)
                return
            except ShuttingDown:
                return
            except Unavailable:
                await asyncio.sleep(1.0)

    def postpone(self, lane: Lane, lease: LeaseId, error: StoreCorrupt) -> None:
        """The bytes of a leased lane cannot be read, now or for good: let go of it for a while."""
        self._spawn(self._postpone(lane, lease, error))

    async def _postpone(self, lane: Lane, lease: LeaseId, error: StoreCorrupt) -> None:
        pause = _SEALED_PAUSE_MS if isinstance(error, SealError) else _CORRUPT_PAUSE_MS
        partition = await self._store.queues.partition(lane.partition)
        unordered = partition is not None and partition.unordered
        nacks = [
            Nack(position, charge=False, error=str(error), delay_ms=pause)
            for position in range(lane.first, lane.upto if unordered else lane.first + 1)
        ]
        ack = LaneAck(
            partition=lane.partition, group_id=lease.group_id, token=lease.token, unordered=unordered, nacks=nacks
        )
        await self._store.messages.ack([ack])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), FairlaneError):
            log.warning("error in a background step of pop: %(error)s", {"error": error})

    async def finish(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)
