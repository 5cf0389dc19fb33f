"""Priorities from 0 to 9: of messages in unordered queues, and of partitions in ordered ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from fairlane.broker.catalogue import Catalogue
from fairlane.errors import OutcomeUnknown, StoreUnavailable
from fairlane.model.limits import NEW_NAMES_MAX
from fairlane.model.message import PushItem
from fairlane.model.names import check_name
from fairlane.model.queue import Queue, with_priority, without_priority
from fairlane.store.contract.store import Store

_KNOWN_SECONDS = 5.0
"""Time after which another broker may have changed the priority of the partition."""
_KNOWN_MAX = 100_000
_TIMEOUT_SECONDS = 2.0
"""Timeout for setting a priority. After it, the message is pushed without the priority."""

T = TypeVar("T")


class Priorities:
    """Priorities of pushes.

    An unordered queue keeps the messages of each priority in a separate partition. In an ordered queue a push sets the
    priority of its whole partition, because order inside it is kept.
    """

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self._known: dict[tuple[int, str], tuple[int, float]] = {}

    async def apply(self, tenant: str, steps: Sequence[T], *, away: bool) -> Sequence[T]:
        """Return the steps, with pushes redirected to the lanes of their priorities.

        While the store is unavailable, uses the cached queues.
        """
        if not any(isinstance(step, PushItem) and step.priority is not None for step in steps):
            return steps
        if not away and len(steps) > NEW_NAMES_MAX:
            await self._catalogue.check_names(tenant, [step for step in steps if isinstance(step, PushItem)])
        return [
            await self._applied(tenant, step, step.priority, away)  # type: ignore[misc]
            if isinstance(step, PushItem) and step.priority is not None
            else step
            for step in steps
        ]

    async def _applied(self, tenant: str, item: PushItem, priority: int, away: bool) -> PushItem:
        if not away:
            try:
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    queue = await self._catalogue.queue(tenant, item.queue, make=True)
                    assert queue is not None, "a missing queue is created"
                    item = _in_partition(item, queue, priority)
                    await self._set(queue, item.partition, priority)
                    return item
            except (StoreUnavailable, OutcomeUnknown, TimeoutError):
                pass  # the push itself finds out if the store is unavailable, and handles it
        known = self._catalogue.recall(tenant, item.queue)
        return item if known is None else _in_partition(item, known, priority)

    async def _set(self, queue: Queue, name: str, priority: int) -> None:
        known, until = self._known.get((queue.id, name), (0, 0.0))
        if known == priority and time.monotonic() < until:
            return
        partition = (await self._catalogue.partitions(queue, [name]))[name]
        await self._store.queues.set_priority(partition.id, priority)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[queue.id, name] = (priority, time.monotonic() + _KNOWN_SECONDS)


def _in_partition(item: PushItem, queue: Queue, priority: int) -> PushItem:
    """Return the item with the partition of its priority, if the queue has one for each."""
    if queue.options.ordering != "unordered" or not priority or item.partition != without_priority(item.partition):
        return item
    return msgspec.structs.replace(item, partition=check_name("partition", with_priority(item.partition, priority)))
