"""The push intake: what the compiled specs make of a message, whether it is scheduled, and through which batcher it
goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter

from fairlane.broker.admission import Admission
from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.broker.deferral.route import Route
from fairlane.broker.priority import Priorities
from fairlane.broker.push_batch import MetOperations, PushRequest
from fairlane.broker.scheduled import ScheduledMessages
from fairlane.errors import StoreUnavailable, Unavailable
from fairlane.model.outcome import PushOutcome
from fairlane.telemetry import Telemetry


class Intake:
    sleep = staticmethod(asyncio.sleep)

    def __init__(
        self,
        compiled_specs: CompiledSpecs,
        priorities: Priorities,
        scheduled: ScheduledMessages,
        admission: Admission,
        route: Route,
        drain: OperationDrain,
        telemetry: Telemetry,
    ) -> None:
        self._compiled_specs = compiled_specs
        self._priorities = priorities
        self._scheduled = scheduled
        self._admission = admission
        self._route = route
        self._drain = drain
        self._telemetry = telemetry
        self._loading: asyncio.Task[None] | None = None

    def push(self, request: PushRequest, deferred: bool | None = None) -> Awaitable[list[PushOutcome]]:
        """Push what a request brings; `deferred` is what admission said of it, if it was asked."""
        if request.special or not self._compiled_specs.idle:
            return self._push_special(request, deferred)
        return self._push(request, deferred)

    async def _push(self, request: PushRequest, deferred: bool | None) -> list[PushOutcome]:
        items, admission, began = request.items, self._admission, perf_counter()
        if not items:
            return []
        if deferred is None:
            deferred = admission.defers("push")
        size = len(items[0].payload) if len(items) == 1 else sum(map(len, [item.payload for item in items]))
        try:
            if deferred:
                outcomes = await admission.push_operations.put(request, len(items), size)
            elif self._drain.depth and (pause := admission.pause_for_operations()):
                outcomes = await self._push_patiently(request, size, pause)
            else:
                outcomes = await admission.pushes.put(request, len(items), size)
        except Exception:
            self._telemetry.push.errors += 1
            raise
        self._telemetry.done(self._telemetry.push, began, len(items))
        return outcomes

    async def _push_patiently(self, request: PushRequest, size: int, pause: float) -> list[PushOutcome]:
        """A push that meets operations in its partition comes a second time, and only then becomes one."""
        request.patient = True
        pushes = self._admission.pushes
        try:
            return await pushes.put(request, len(request.items), size)
        except MetOperations as met:
            await self.sleep(pause)
            items = [request.items[index] for index in met.indexes]
            rest = await pushes.put(PushRequest(request.tenant, items, traced=request.traced), len(items), size)
            for index, outcome in zip(met.indexes, rest, strict=True):
                met.outcomes[index] = outcome
            return met.outcomes

    async def _push_special(self, request: PushRequest, deferred: bool | None) -> list[PushOutcome]:
        """Do what the specs say, schedule what has a delivery time to come, and push the rest. While the store is away
        nothing can be scheduled: the journal has pushes in their order, not by time."""
        if not self._compiled_specs.idle:
            if not self._compiled_specs.loaded:
                await self.know_specs()
            request = self._compiled_specs.admit(request)
        if not request.special:
            return await self._push(request, deferred)
        away = not self._route.watch.up
        items = await self._priorities.apply(request.tenant, request.items, away=away)
        scheduled = [index for index, item in enumerate(items) if self._scheduled.is_scheduled(item)]
        rest = [index for index in range(len(items)) if index not in set(scheduled)]
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
            added = await self._telemetry.measured(self._telemetry.push, len(scheduled), adding)
            found |= zip(scheduled, added, strict=True)
        if rest:
            traced = any(items[index].trace_id is not None for index in rest)
            other = PushRequest(request.tenant, [items[index] for index in rest], traced=traced)
            found |= zip(rest, await self._push(other, deferred), strict=True)
        return [found[index] for index in range(len(items))]

    async def know_specs(self) -> None:
        """Read the specs in force if that was not done yet. Who cannot, and has a journal, goes on without."""
        if self._compiled_specs.loaded or not self._route.watch.up:
            return
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._compiled_specs.reload())
            # Whoever waited for it may have given up before it failed.
            self._loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(self._route.patience.seconds if self._route.journal else None):
                await asyncio.shield(self._loading)
        except (Unavailable, TimeoutError):
            if self._route.journal is None:
                raise

    async def stop(self) -> None:
        """Finish what others wait for."""
        if self._loading is not None:  # who waits for it was here before
            await asyncio.wait([self._loading])
        await self._admission.stop_pushes()
