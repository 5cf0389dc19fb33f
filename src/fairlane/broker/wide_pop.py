"""Wide pops, which name no queue but labels: whichever queue with them has something answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.delivery import Popped
from fairlane.broker.pop import FLOOR_SECONDS, Popper
from fairlane.broker.waiters import NOT_MADE_YET, Waiters, WaitKey
from fairlane.model.access import Caller
from fairlane.model.lease import PopRequest
from fairlane.model.names import QUEUE_MODE
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store

_LIST_SECONDS = 1.0
"""How long the queues of a tenant are remembered; a poll that was woken looks anew, for there may be more."""
_AGING_LOOKS = 10
"""One look of so many goes by turns instead of by priority."""


class WidePopper:
    def __init__(self, store: Store, catalogue: Catalogue, popper: Popper, waiters: Waiters) -> None:
        self._store = store
        self._catalogue = catalogue
        self._popper = popper
        self._waiters = waiters
        self._queues: dict[str, tuple[list[Queue], float]] = {}
        self._looks = 0

    async def pop(self, request: PopRequest, namespace: str | None, task: str | None, caller: Caller) -> Popped:
        """`request.queue` is not looked at; None as a label matches any."""
        return await self._popper.pop(request, partial(self._look, namespace, task, caller))

    async def _look(
        self, namespace: str | None, task: str | None, caller: Caller, request: PopRequest, give_up_at: float
    ) -> Popped:
        anew = False
        while True:
            queues = [
                queue
                for queue in await self._list(request.tenant, anew=anew)
                if (namespace is None or queue.namespace == namespace)
                and (task is None or queue.task == task)
                and await self._may(caller, queue, request.group)
            ]
            groups = [await self._catalogue.group_id(queue.id, request.group) for queue in queues]
            keys = [(queue.id, (group_id or 0, "")) for queue, group_id in zip(queues, groups, strict=True)]
            with self._parked([*keys, (NOT_MADE_YET, (0, ""))]) as futures:
                popped = await self._first(request, queues)
                left = give_up_at - time.monotonic()
                if popped is not None or left <= 0 or self._popper.stopping:
                    return popped or Popped("", request.group, None, [], request.subscription.conflation)
                await self._waiters.wait(futures, min(left, FLOOR_SECONDS))
            anew = True

    async def _may(self, caller: Caller, queue: Queue, group: str) -> bool:
        """Whether the caller may pop from a queue, and make its group there if that is not there yet."""
        if not caller.allows("pop", queue.name):
            return False
        if caller.allows("create", queue.name) or group == QUEUE_MODE:
            return True
        return await self._catalogue.group_id(queue.id, group) is not None

    async def _list(self, tenant: str, *, anew: bool) -> list[Queue]:
        known, until = self._queues.get(tenant, ([], 0.0))
        if anew or time.monotonic() >= until:
            known = await self._store.queues.list(tenant)
            self._queues[tenant] = (known, time.monotonic() + _LIST_SECONDS)
        return known

    def _in_turn(self, queues: list[Queue]) -> list[Queue]:
        """Higher priority first, among equals from a random start, so that none is always asked last. Now and then
        priorities are left out of account and each queue comes first in its turn: none is starved."""
        self._looks += 1
        turn, rest = divmod(self._looks, _AGING_LOOKS)
        if not queues:
            return queues
        if rest == 0:
            by_id = sorted(queues, key=lambda queue: queue.id)
            start = turn % len(queues)
            return by_id[start:] + by_id[:start]
        start = random.randrange(len(queues))  # noqa: S311
        return sorted(queues[start:] + queues[:start], key=lambda queue: -queue.options.priority)

    async def _first(self, request: PopRequest, queues: list[Queue]) -> Popped | None:
        for queue in self._in_turn(queues):
            once = msgspec.structs.replace(request, queue=queue.name, wait_seconds=0.0)
            popped = await self._popper.look(once, 0.0)
            if popped.lanes:
                return popped
        return None

    @contextmanager
    def _parked(self, keys: list[tuple[int, WaitKey]]) -> Iterator[list[asyncio.Future[None]]]:
        """Parked before the look, so that no push falls between."""
        futures = [self._waiters.park(queue_id, key) for queue_id, key in keys]
        try:
            yield futures
        finally:
            for (queue_id, key), future in zip(keys, futures, strict=True):
                self._waiters.leave(queue_id, key, future)
