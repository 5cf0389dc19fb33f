"""The push intake: what the compiled specs make of a message, whether it is scheduled, and through which batcher it
goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from fairlane.broker.admission import Admission
from fairlane.broker.batchers import Batchers
from fairlane.broker.compiled_specs import CompiledSpecs
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
        batchers: Batchers,
        admission: Admission,
        route: Route,
        telemetry: Telemetry,
    ) -> None:
        self._compiled_specs = compiled_specs
        self._priorities = priorities
        self._scheduled = scheduled
        self._batchers = batchers
        self._admission = admission
        self._route = route
        self._telemetry = telemetry
        self._loading: asyncio.Task[None] | None = None

    @property
    def away(self) -> bool:
        """Whether the store is known not to answer."""
        return not self._route.watch.up

    async def push(self, request: PushRequest) -> list[PushOutcome]:
        if not self._compiled_specs.idle:
            if not self._compiled_specs.loaded:
                await self.know_specs()
            request = self._compiled_specs.admit(request)
        if request.special:
            items = await self._priorities.apply(request.tenant, request.items, away=self.away)
            return await self._push_scheduled(PushRequest(request.tenant, items))
        return await self._push_now(request)

    def _push_now(self, request: PushRequest) -> Awaitable[list[PushOutcome]]:
        # While the store is away the journal decides.
        if not self.away and self._admission.defers("push"):
            pushed = self._batchers.push_operations.submit(request)
        elif pause := self._admission.pause_for_operations():
            pushed = self._push_patiently(request, pause)
        else:
            pushed = self._batchers.pushes.submit(request)
        return self._telemetry.measured(self._telemetry.push, len(request.items), pushed)

    async def _push_patiently(self, request: PushRequest, pause: float) -> list[PushOutcome]:
        """A push that meets operations in its partition comes a second time, and only then becomes one."""
        request.patient = True
        try:
            return await self._batchers.pushes.submit(request)
        except MetOperations as met:
            await self.sleep(pause)
            items = [request.items[index] for index in met.indexes]
            rest = await self._batchers.pushes.submit(PushRequest(request.tenant, items, traced=request.traced))
            for index, outcome in zip(met.indexes, rest, strict=True):
                met.outcomes[index] = outcome
            return met.outcomes

    async def _push_scheduled(self, request: PushRequest) -> list[PushOutcome]:
        """Schedule what has a delivery time to come, and push the rest. While the store is away nothing can be
        scheduled: the journal has pushes in their order, not by time."""
        scheduled = [index for index, item in enumerate(request.items) if self._scheduled.is_scheduled(item)]
        if scheduled and self.away:
            raise StoreUnavailable(
                "the store does not answer, and a scheduled message cannot wait in the journal; try again, or push it "
                "without deliverAt and delayMs"
            )
        if len(scheduled) == len(request.items):
            return await self._schedule(request)
        rest = [index for index in range(len(request.items)) if index not in set(scheduled)]
        found: dict[int, PushOutcome] = {}
        if scheduled:
            added = await self._schedule(PushRequest(request.tenant, [request.items[index] for index in scheduled]))
            found |= zip(scheduled, added, strict=True)
        items = [request.items[index] for index in rest]
        traced = any(item.trace_id is not None for item in items)
        pushed = await self._push_now(PushRequest(request.tenant, items, traced=traced))
        found |= zip(rest, pushed, strict=True)
        return [found[index] for index in range(len(request.items))]

    def _schedule(self, request: PushRequest) -> Awaitable[list[PushOutcome]]:
        added = self._batchers.scheduled.submit(request)
        return self._telemetry.measured(self._telemetry.push, len(request.items), added)

    async def know_specs(self) -> None:
        """Read the specs in force if that was not done yet. Who cannot, and has a journal, goes on without."""
        if self._compiled_specs.loaded or self.away:
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
        await self._batchers.stop_pushes()
