"""Admission: whether a request is executed, becomes an operation or is refused, by how long it would wait.

Requests wait in their batcher and travel together. One that would wait there too long becomes an operation, applied
later (202), and only when there are as many operations as may be is it refused (429). A pop never becomes one: it is
refused while acks would wait too long, for then what is handed out could not be finished in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, Literal, NamedTuple

from fairlane.broker.ack import AckRequest
from fairlane.broker.compiled_specs import AllSpecs, CompiledSpecs
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.broker.deferral.route import Route
from fairlane.broker.priority import Priorities
from fairlane.broker.push_batch import MetOperations, PushRequest
from fairlane.broker.scheduled import Scheduler
from fairlane.broker.tenants import NONE, Room
from fairlane.errors import LaneLocked, Overloaded, ShuttingDown, StoreUnavailable, Unavailable
from fairlane.model.outcome import AckOutcome, PushOutcome, RenewOutcome
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.runtime.rate import Rate, retry_after
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Renewal
from fairlane.telemetry import Telemetry

Kind = Literal["push", "ack", "pop"]
Decision = Literal["execute", "enqueue", "refuse"]
Pushes = Batcher[PushRequest, list[PushOutcome]]
Acks = Batcher[AckRequest, Sequence[AckOutcome]]

WAIT_SECONDS_MAX: Final = 2.0
CALLERS: Final = 500
"""So many requests at once are no flood: whoever sent them waits for the answer. While no more can be operations at
once, they wait for the store, however slow it is."""


class Limit(NamedTuple):
    wait_seconds: float
    """The longest wait to be executed. Below 0 nothing is."""
    operations: int
    """How many operations there may be, of any kind; 0 where none is made."""


LIMITS: Final[Mapping[Kind, Limit]] = {
    "push": Limit(WAIT_SECONDS_MAX, 10_000),
    "ack": Limit(WAIT_SECONDS_MAX, 50_000),
    "pop": Limit(WAIT_SECONDS_MAX, 0),
}
PATIENT: Final[Mapping[Kind, Limit]] = {}
"""Everything is executed, however long it takes: for callers that wait anyway."""


class Admission:
    """Admission, and the batchers in which requests wait: `push_operations` and `ack_operations` make operations."""

    def __init__(
        self,
        store: Store,
        route: Route,
        scheduler: Scheduler,
        drain: OperationDrain,
        telemetry: Telemetry,
        limits: Mapping[Kind, Limit],
    ) -> None:
        wide = BatchPolicy(flushes=store.flushes())
        self.pushes: Pushes = Batcher(route.push, wide)
        self.scheduled: Pushes = Batcher(scheduler.flush, wide)
        self.acks: Acks = Batcher(route.ack, wide)
        self.renewals: Batcher[Renewal, RenewOutcome] = Batcher(_renewing(store), BatchPolicy())
        self.push_operations: Pushes = Batcher(route.enqueue, BatchPolicy())
        self.ack_operations: Acks = Batcher(route.enqueue_acks, BatchPolicy())
        self.limits = limits
        self.decisions: dict[Kind, dict[Decision, int]] = {
            kind: {"execute": 0, "enqueue": 0, "refuse": 0} for kind in LIMITS
        }
        """How many of each kind went which way, for the metrics."""
        self.stopped = False
        """Whether nothing new is taken."""
        self.watch = route.watch
        self._drain = drain
        self._telemetry = telemetry
        acks = (self.acks, self.ack_operations)
        self._batchers: Mapping[Kind, tuple[Batcher[Any, Any], Batcher[Any, Any]]] = {
            "push": (self.pushes, self.push_operations),
            "ack": acks,
            "pop": acks,
        }

    @property
    def limits(self) -> Mapping[Kind, Limit]:
        return self._limits

    @limits.setter
    def limits(self, limits: Mapping[Kind, Limit]) -> None:
        self._limits = limits
        self.calm = frozenset([kind for kind, limit in limits.items() if limit.wait_seconds >= 0])
        """Kinds of which one that finds nobody waiting is executed: then there is no more to decide."""

    def wait_seconds(self, kind: Kind) -> float:
        """How long one more of this kind would wait; of a pop, its acks."""
        return self._batchers[kind][0].wait_seconds()

    def defers(self, kind: Kind) -> bool:
        """Whether one more of this kind becomes an operation; Overloaded if it is not even that. Asked once for each
        request. While the store is away the journal decides."""
        limit = self.limits.get(kind)
        if limit is None or not self.watch.up:
            return False
        late = False
        # Who finds nobody waiting waits for nothing.
        if self._batchers[kind][0].waiting or limit.wait_seconds < 0:
            late = self.wait_seconds(kind) > limit.wait_seconds
        if late:
            refusal = self.refusal(kind)
            if refusal is not None:
                self.decisions[kind]["refuse"] += 1
                self._telemetry.verbs[kind].errors += 1
                raise refusal
            late = self._depth(kind) < limit.operations
        self.decisions[kind]["enqueue" if late else "execute"] += 1
        return late

    def _depth(self, kind: Kind) -> int:
        """Operations, and what is on its way to be one."""
        return self._drain.depth + self._batchers[kind][1].items

    def refusal(self, kind: Kind) -> Overloaded | None:
        """Why one more of this kind cannot even be an operation; None if it can."""
        limit, depth = self.limits.get(kind), self._depth(kind)
        if limit is None or depth < limit.operations:
            return None
        if self._drain.depth < limit.operations and sum(one.requests for one in self._batchers[kind]) <= CALLERS:
            return None
        wait = self.wait_seconds(kind)
        if kind == "pop":
            why = f"acks wait {wait:.1f} s, so that nothing more is handed out"
            return Overloaded(why, retry_after=retry_after(wait), depth=depth)
        why = f"the store is {wait:.1f} s behind, and {depth} operations wait, of {limit.operations}"
        return Overloaded(why, retry_after=retry_after(self._drain.rate.seconds_for(depth)), depth=depth)

    def refusal_by_journal(self, kind: Kind, growth: int, entries: int, rate: Rate) -> Overloaded | None:
        """Return why one more of this kind cannot wait in the journal, which has grown by `growth` entries though the
        store is there, and empties at this `rate`. None if it can."""
        limit = self.limits.get(kind)
        if limit is None or growth < limit.operations:
            return None
        why = f"the journal grows faster than the store takes its entries: {entries} wait, {growth} more than before"
        self.decisions[kind]["refuse"] += 1
        return Overloaded(why, retry_after=retry_after(rate.seconds_for(growth)), depth=entries)

    def pause_for_operations(self) -> float:
        """How long a push that meets operations in its partition waits for them before it becomes one: as long as they
        probably take, and no longer than any other waits. Enqueued at once, each push would make its partition
        wait for longer, and a load that is over would never be got rid of."""
        depth = self._drain.depth
        limit = self.limits.get("push") if depth else None
        if limit is None:
            return 0.0
        return max(0.0, min(limit.wait_seconds, self._drain.rate.seconds_for(depth) or 0.0))

    @property
    def pending(self) -> int:
        """Requests handed over and not answered yet."""
        return sum(batcher.pending for batcher in (self.pushes, self.acks, self.renewals))

    def check_running(self) -> None:
        if self.stopped:
            raise ShuttingDown("the broker is stopping")

    async def stop_pushes(self) -> None:
        await self.pushes.stop()
        await self.scheduled.stop()

    async def stop(self) -> None:
        """The rest, when nobody pops any more."""
        for batcher in (self.acks, self.renewals, self.push_operations, self.ack_operations):
            await batcher.stop()


class Intake:
    """The intake of pushes: what the compiled specs make of a message, whether it is scheduled, and which batcher takes
    it."""

    sleep = staticmethod(asyncio.sleep)

    def __init__(
        self,
        room: Room,
        specs: AllSpecs,
        compiled_specs: CompiledSpecs,
        priorities: Priorities,
        scheduler: Scheduler,
        admission: Admission,
        route: Route,
        drain: OperationDrain,
        telemetry: Telemetry,
    ) -> None:
        self._room = room
        self._specs = specs
        self._compiled_specs = compiled_specs
        self._priorities = priorities
        self._scheduler = scheduler
        self._admission = admission
        self._route = route
        self._drain = drain
        self._telemetry = telemetry
        self._loading: asyncio.Task[None] | None = None

    def push(self, request: PushRequest, deferred: bool | None = None) -> Awaitable[list[PushOutcome]]:
        """Push what a request brings; `deferred` is what admission said of it, if it was asked."""
        if request.special or not self.takes_as_is:
            return self._push_special(request, deferred)
        return self._push(request, deferred)

    @property
    def takes_as_is(self) -> bool:
        """Whether neither a spec nor a quota has a say in what is pushed."""
        return self._compiled_specs.idle and self._room.quotas is NONE

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
        except Exception:  # whatever it is, it is counted and goes on to the caller
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
        await self._room.check()
        if not self._compiled_specs.idle:
            if not self._compiled_specs.loaded:
                await self.know_specs()
            request = self._compiled_specs.admit(request)
        if not request.special:
            return await self._push(request, deferred)
        away = not self._route.watch.up
        items = await self._priorities.apply(request.tenant, request.items, away=away)
        scheduled = [index for index, item in enumerate(items) if self._scheduler.is_scheduled(item)]
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
            self._loading = asyncio.create_task(self._specs.reload())
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


def _renewing(store: Store) -> Callable[[list[Renewal]], Awaitable[Sequence[RenewOutcome | Exception]]]:
    async def renew(renewals: list[Renewal]) -> Sequence[RenewOutcome | Exception]:
        """Together; where a lane is locked each by itself, so that none waits for another's."""
        try:
            return await store.messages.renew(renewals)
        except LaneLocked as error:
            if len(renewals) == 1:
                return [error]
        alone = await asyncio.gather(*(renew([one]) for one in renewals))
        return [outcome for outcomes in alone for outcome in outcomes]

    return renew
