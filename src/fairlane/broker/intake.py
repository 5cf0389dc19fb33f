"""The intake of pushes of one tenant: applies its specs and quotas, schedules messages, and pushes the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter

from fairlane.broker.admission import Admission
from fairlane.broker.compiled_specs import AllSpecs, CompiledSpecs
from fairlane.broker.deferral.open_operations import OpenOperations
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.priority import Priorities
from fairlane.broker.push_batch import BlockedByOperations, PushRequest
from fairlane.broker.scheduled import Scheduler
from fairlane.broker.tenants import NONE, TenantQuota
from fairlane.broker.unique import UniquePusher
from fairlane.errors import StoreUnavailable, Unavailable
from fairlane.model.outcome import PushOutcome
from fairlane.telemetry import Telemetry


class Intake:
    """The intake of pushes. It applies compiled specs, schedules messages, and chooses the batcher."""

    sleep = staticmethod(asyncio.sleep)

    def __init__(
        self,
        quota: TenantQuota,
        specs: AllSpecs,
        compiled_specs: CompiledSpecs,
        priorities: Priorities,
        scheduler: Scheduler,
        unique: UniquePusher,
        admission: Admission,
        write_router: WriteRouter,
        open_operations: OpenOperations,
        telemetry: Telemetry,
    ) -> None:
        self._quota = quota
        self._specs = specs
        self._compiled_specs = compiled_specs
        self._priorities = priorities
        self._scheduler = scheduler
        self._unique = unique
        self._admission = admission
        self._write_router = write_router
        self._open_operations = open_operations
        self._telemetry = telemetry
        self._pushed = telemetry.tenants.of(quota.tenant)
        self._loading: asyncio.Task[None] | None = None

    def admit(self) -> tuple[bool, bool]:
        """Decide about one more push before its body is read.

        Returns two flags: it becomes an operation, and its items are pushed unchanged because no spec and no quota
        applies. Raises Overloaded if it is refused.
        """
        admission = self._admission
        if admission.pushes.waiting or "push" not in admission.calm or not admission.health.up:
            deferred = admission.defers("push", self._quota.tenant)
        else:
            admission.decisions["push"]["execute"] += 1
            deferred = False
        return deferred, self._compiled_specs.idle and self._quota.quotas is NONE

    def push(self, request: PushRequest, deferred: bool | None = None) -> Awaitable[list[PushOutcome]]:
        """Push the items of a request. Returns one outcome each. `deferred` is the decision of `admit`, if asked."""
        if request.special or not self._compiled_specs.idle or self._quota.quotas is not NONE:
            return self._push_special(request, deferred)
        return self._push(request, deferred)

    async def _push(self, request: PushRequest, deferred: bool | None) -> list[PushOutcome]:
        items, admission, began = request.items, self._admission, perf_counter()
        if not items:
            return []
        if deferred is None:
            deferred, _ = self.admit()
        size = len(items[0].payload) if len(items) == 1 else sum(map(len, [item.payload for item in items]))
        try:
            if deferred:
                outcomes = await admission.push_operations.put(request, len(items), size)
            elif self._open_operations.depth and (pause := admission.pause_for_operations()):
                outcomes = await self._push_with_wait(request, size, pause)
            else:
                outcomes = await admission.pushes.put(request, len(items), size)
        except Exception:  # counted, then raised
            self._telemetry.push.errors += 1
            raise
        self._telemetry.record(self._telemetry.push, began, len(items))
        pushed = self._pushed
        pushed.pushes += 1
        pushed.messages += len(items)
        pushed.bytes += size
        return outcomes

    async def _push_with_wait(self, request: PushRequest, size: int, pause: float) -> list[PushOutcome]:
        """Push, and retry once after open operations in the partition, before the push becomes an operation itself."""
        request.can_wait = True
        pushes = self._admission.pushes
        try:
            return await pushes.put(request, len(request.items), size)
        except BlockedByOperations as blocked:
            await self.sleep(pause)
            items = [request.items[index] for index in blocked.indexes]
            rest = await pushes.put(PushRequest(request.tenant, items, traced=request.traced), len(items), size)
            for index, outcome in zip(blocked.indexes, rest, strict=True):
                blocked.outcomes[index] = outcome
            return blocked.outcomes

    async def _push_special(self, request: PushRequest, deferred: bool | None) -> list[PushOutcome]:
        """Apply the specs, schedule messages with a future delivery time, and push the rest.

        Nothing can be scheduled while the store is unavailable, because the journal keeps pushes in order, not by time.
        """
        await self._quota.check(len(request.items), sum(len(item.payload) for item in request.items))
        if not self._compiled_specs.idle:
            if not self._compiled_specs.loaded:
                await self.load_specs()
            request = self._compiled_specs.admit(request)
        if not request.special:
            return await self._push(request, deferred)
        away = not self._write_router.health.up
        items = await self._priorities.apply(request.tenant, request.items, away=away)
        unique = [index for index, item in enumerate(items) if item.unique is not None]
        scheduled = [
            index for index, item in enumerate(items) if item.unique is None and self._scheduler.is_scheduled(item)
        ]
        rest = [index for index in range(len(items)) if index not in {*scheduled, *unique}]
        found: dict[int, PushOutcome] = {}
        if scheduled:
            if away:
                raise StoreUnavailable(
                    "the store does not answer, and a scheduled message cannot wait in the journal; try again, or push "
                    "it without deliverAt and delayMs"
                )
            some = PushRequest(request.tenant, [items[index] for index in scheduled])
            size = sum(len(item.payload) for item in some.items)
            adding = self._admission.scheduled.put(some, len(scheduled), size)
            added = await self._telemetry.measure(self._telemetry.push, len(scheduled), adding)
            found |= zip(scheduled, added, strict=True)
        if rest:
            traced = any(items[index].trace_id is not None for index in rest)
            other = PushRequest(request.tenant, [items[index] for index in rest], traced=traced)
            found |= zip(rest, await self._push(other, deferred), strict=True)
        if unique:
            pushing = self._unique.push([items[index] for index in unique])
            stored = await self._telemetry.measure(self._telemetry.push, len(unique), pushing)
            found |= zip(unique, stored, strict=True)
        return [found[index] for index in range(len(items))]

    async def load_specs(self) -> None:
        """Load the specs in force, unless they are loaded. A broker with a journal continues without them."""
        if self._compiled_specs.loaded or not self._write_router.health.up:
            return
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._specs.reload())
            # The waiting callers may have given up before it failed.
            self._loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(self._write_router.timeout.seconds if self._write_router.journal else None):
                await asyncio.shield(self._loading)
        except (Unavailable, TimeoutError):
            if self._write_router.journal is None:
                raise

    async def stop(self) -> None:
        """Finish pending work."""
        if self._loading is not None:  # its callers came before the stop
            await asyncio.wait([self._loading])
