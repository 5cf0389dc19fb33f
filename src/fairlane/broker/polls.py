"""Polls: pops as callers ask for them, of one queue or of several, and while the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

import msgspec

from fairlane.broker.journal_route import JournalRoute
from fairlane.broker.pop import Popper, PopRequest
from fairlane.broker.popped import Popped
from fairlane.broker.wide_pop import WidePopper
from fairlane.errors import LaneLocked, OutcomeUnknown, StoreUnavailable, Unavailable
from fairlane.telemetry import Telemetry

_PAUSE_SECONDS = 0.2
"""Before a poll that waits tries again what failed for it alone."""


class Polls:
    def __init__(
        self, popper: Popper, wide_popper: WidePopper, telemetry: Telemetry, route: JournalRoute | None
    ) -> None:
        self._popper = popper
        self._wide_popper = wide_popper
        self._telemetry = telemetry
        self._route = route

    async def pop(self, request: PopRequest) -> Popped:
        return await self._counted(request, self._popper.pop)

    async def pop_any(self, request: PopRequest, *, namespace: str | None, task: str | None) -> Popped:
        """Pop from whichever queue with these labels has something."""

        async def pop(request: PopRequest) -> Popped:
            return await self._wide_popper.pop(request, namespace, task)

        return await self._counted(request, pop)

    async def _counted(self, request: PopRequest, pop: Callable[[PopRequest], Awaitable[Popped]]) -> Popped:
        route = self._route
        try:
            return await (pop(request) if route is None else _pop_when_up(request, route, pop))
        except Exception:
            self._telemetry.pop.errors += 1
            raise


async def _pop_when_up(
    request: PopRequest, route: JournalRoute, pop: Callable[[PopRequest], Awaitable[Popped]]
) -> Popped:
    """A poll that waits, waits for the store as well; one that does not is told at once that it is away. A pop that
    fails while the store is there fails alone."""
    watch, give_up_at = route.watch, perf_counter() + request.wait_seconds
    while True:
        if not watch.up and not await watch.wait_back(give_up_at - perf_counter()):
            raise StoreUnavailable(f"the store does not answer: {watch.why}")
        left = max(0.0, give_up_at - perf_counter()) if request.wait_seconds else 0.0
        error: Unavailable
        try:
            async with asyncio.timeout(None if left else 2 * route.patience.seconds):
                return await pop(msgspec.structs.replace(request, wait_seconds=left))
        except TimeoutError:
            error = StoreUnavailable("a pop got no answer in time; try again")
        except (StoreUnavailable, OutcomeUnknown, LaneLocked) as failure:
            error = failure
        if isinstance(error, LaneLocked) or await route.is_there(str(error)):
            if give_up_at - perf_counter() <= _PAUSE_SECONDS:
                raise error
            await asyncio.sleep(_PAUSE_SECONDS)
