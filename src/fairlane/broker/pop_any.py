"""Pop by namespace or task: serves from any matching queue that has messages."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.pop import Popper
from fairlane.broker.pop_outcome import PopOutcome
from fairlane.broker.waiters import FLOOR_SECONDS, NOT_MADE_YET, Waiters, WaitKey
from fairlane.model.lease import PopRequest
from fairlane.model.names import QUEUE_MODE
from fairlane.model.principal import Principal
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store

_LIST_SECONDS = 1.0
"""Time for which the queues of a tenant are cached. A woken poll reads them again, because there may be new ones."""
_AGING_POPS = 10
"""One pop in this many visits queues round-robin instead of by priority."""


class AnyQueuePopper:
    def __init__(self, store: Store, catalogue: Catalogue, popper: Popper, waiters: Waiters) -> None:
        self._store = store
        self._catalogue = catalogue
        self._popper = popper
        self._waiters = waiters
        self._queues: dict[str, tuple[list[Queue], float]] = {}
        self._pops = 0

    async def pop(self, request: PopRequest, namespace: str | None, task: str | None, caller: Principal) -> PopOutcome:
        """Pop from any queue with these labels. `request.queue` is ignored; None as a label matches any."""
        return await self._popper.pop(request, partial(self._pop_until, namespace, task, caller))

    async def _pop_until(
        self, namespace: str | None, task: str | None, caller: Principal, request: PopRequest, give_up_at: float
    ) -> PopOutcome:
        anew = False
        while True:
            queues = [
                queue
                for queue in await self._listed_queues(request.tenant, anew=anew)
                if (namespace is None or queue.namespace == namespace)
                and (task is None or queue.task == task)
                and await self._is_allowed(caller, queue, request.group)
            ]
            groups = [await self._catalogue.group_id(queue.id, request.group) for queue in queues]
            keys = [(queue.id, (group_id or 0, "")) for queue, group_id in zip(queues, groups, strict=True)]
            with self._parked([*keys, (NOT_MADE_YET, (0, ""))]) as futures:
                popped = await self._first(request, queues)
                left = give_up_at - time.monotonic()
                if popped is not None or left <= 0 or self._popper.stopping:
                    return popped or PopOutcome("", request.group, None, [], request.subscription.conflation)
                await self._waiters.wait(futures, min(left, FLOOR_SECONDS))
            anew = True

    async def _is_allowed(self, caller: Principal, queue: Queue, group: str) -> bool:
        """Return True if the caller may pop from a queue, and create the group there if it does not exist yet."""
        if not caller.allows("pop", queue.name):
            return False
        if caller.allows("create", queue.name) or group == QUEUE_MODE:
            return True
        return await self._catalogue.group_id(queue.id, group) is not None

    async def _listed_queues(self, tenant: str, *, anew: bool) -> list[Queue]:
        known, until = self._queues.get(tenant, ([], 0.0))
        if anew or time.monotonic() >= until:
            known = await self._store.queues.all(tenant)
            self._queues[tenant] = (known, time.monotonic() + _LIST_SECONDS)
        return known

    def _in_order(self, queues: list[Queue]) -> list[Queue]:
        """Sort by priority, from a random start among equals, so that none is always last.

        Every tenth time, ignore priorities and rotate, so that no queue starves.
        """
        self._pops += 1
        turn, rest = divmod(self._pops, _AGING_POPS)
        if not queues:
            return queues
        if rest == 0:
            by_id = sorted(queues, key=lambda queue: queue.id)
            start = turn % len(queues)
            return by_id[start:] + by_id[:start]
        start = random.randrange(len(queues))  # noqa: S311
        return sorted(queues[start:] + queues[:start], key=lambda queue: -queue.options.priority)

    async def _first(self, request: PopRequest, queues: list[Queue]) -> PopOutcome | None:
        for queue in self._in_order(queues):
            once = msgspec.structs.replace(request, queue=queue.name, wait_seconds=0.0)
            popped = await self._popper.pop_until(once, 0.0)
            if popped.lanes:
                return popped
        return None

    @contextmanager
    def _parked(self, keys: list[tuple[int, WaitKey]]) -> Iterator[list[asyncio.Future[None]]]:
        """Register waiters before the pop, so that no push is missed in between."""
        futures = [self._waiters.park(queue_id, key) for queue_id, key in keys]
        try:
            yield futures
        finally:
            for (queue_id, key), future in zip(keys, futures, strict=True):
                self._waiters.remove(queue_id, key, future)
