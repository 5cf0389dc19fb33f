"""Admission: decides if a request is executed, becomes an operation or is refused, by its expected wait.

Requests wait in their batcher and are flushed together. A request that would wait too long becomes an operation, which
is applied later (202). It is refused (429) only if there are too many operations. Pops never become operations. They
are refused while acks would wait too long, because popped messages could not be finished in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from fairlane.broker.ack import AckRequest
from fairlane.broker.deferral.open_operations import OpenOperations
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.push_batch import PushRequest
from fairlane.broker.scheduled import Scheduler
from fairlane.errors import LaneLocked, Overloaded, ShuttingDown
from fairlane.model.outcome import AckOutcome, PushOutcome, RenewOutcome
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.runtime.rate import RateEstimate, retry_after
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Renewal
from fairlane.telemetry import Telemetry

Kind = Literal["push", "ack", "pop"]
Decision = Literal["execute", "enqueue", "refuse"]
Pushes = Batcher[PushRequest, list[PushOutcome]]
Acks = Batcher[AckRequest, Sequence[AckOutcome]]

WAIT_SECONDS_MAX: Final = 2.0
CALLERS: Final = 500
"""Concurrent requests that are never refused.

If no more can become operations, they wait for the store, however slow it is.
"""


class Limit(NamedTuple):
    wait_seconds: float
    """Longest wait before execution. If negative, nothing is executed."""
    operations: int
    """Largest number of operations of any kind. 0 if there are none."""


LIMITS: Final[Mapping[Kind, Limit]] = {
    "push": Limit(WAIT_SECONDS_MAX, 10_000),
    "ack": Limit(WAIT_SECONDS_MAX, 50_000),
    "pop": Limit(WAIT_SECONDS_MAX, 0),
}
_tenant_of = attrgetter("tenant")
PATIENT: Final[Mapping[Kind, Limit]] = {}
"""Limits that execute everything, however long it takes, for callers that wait anyway."""


class Admission:
    """Admission, and the batchers of requests. `push_operations` and `ack_operations` create operations."""

    def __init__(
        self,
        store: Store,
        write_router: WriteRouter,
        scheduler: Scheduler,
        open_operations: OpenOperations,
        telemetry: Telemetry,
        limits: Mapping[Kind, Limit],
    ) -> None:
        wide = BatchPolicy(flushes=store.flushes())
        self.pushes: Pushes = Batcher(partial(write_router.push, self), wide, owner=_tenant_of)
        self.scheduled: Pushes = Batcher(scheduler.flush, wide, owner=_tenant_of)
        self.acks: Acks = Batcher(partial(write_router.ack, self), wide, owner=_tenant_of)
        self.renewals: Batcher[Renewal, RenewOutcome] = Batcher(_renewing(store), BatchPolicy())
        self.push_operations: Pushes = Batcher(partial(write_router.enqueue, self), BatchPolicy(), owner=_tenant_of)
        self.ack_operations: Acks = Batcher(partial(write_router.enqueue_acks, self), BatchPolicy(), owner=_tenant_of)
        self.limits = limits
        self.decisions: dict[Kind, dict[Decision, int]] = {
            kind: {"execute": 0, "enqueue": 0, "refuse": 0} for kind in LIMITS
        }
        """Number of decisions by kind, for the metrics."""
        self.stopped = False
        """True if no new requests are accepted."""
        self.health = write_router.health
        self._open_operations = open_operations
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
        """Kinds whose requests are admitted without further checks while no other request waits."""

    def admits_at_once(self, *kinds: Kind) -> bool:
        """Return True if requests of these kinds are executed at once."""
        calm = all(kind in self.calm or kind not in self._limits for kind in kinds)
        return calm and self.health.up and not any(self._batchers[kind][0].waiting for kind in kinds)

    def wait_seconds(self, kind: Kind, tenant: str | None = None) -> float:
        """Return the expected wait of one more request of this kind. For a pop, the wait of its acks.

        A tenant that sends little waits less while another one floods, because tenants take turns.
        """
        batcher = self._batchers[kind][0]
        return batcher.wait_seconds() if tenant is None else batcher.wait_seconds_of(tenant)

    def defers(self, kind: Kind, tenant: str) -> bool:
        """Return True if one more request of this kind becomes an operation. Called once per request.

        While the store is unavailable the journal decides. Raises Overloaded if the request is refused.
        """
        limit = self.limits.get(kind)
        if limit is None or not self.health.up:
            return False
        late = False
        # A request that finds no other waiting does not wait.
        if self._batchers[kind][0].waiting or limit.wait_seconds < 0:
            # The wait of all together is computed faster, and is never shorter.
            late = self.wait_seconds(kind) > limit.wait_seconds and self.wait_seconds(kind, tenant) > limit.wait_seconds
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
        """Return the number of operations, including those about to be created."""
        return self._open_operations.depth + self._batchers[kind][1].items

    def refusal(self, kind: Kind) -> Overloaded | None:
        """Return the error if no more operations of this kind are allowed, else None."""
        limit, depth = self.limits.get(kind), self._depth(kind)
        if limit is None or depth < limit.operations:
            return None
        if (
            self._open_operations.depth < limit.operations
            and sum(one.requests for one in self._batchers[kind]) <= CALLERS
        ):
            return None
        wait = self.wait_seconds(kind)
        if kind == "pop":
            why = f"acks wait {wait:.1f} s, so no more messages are delivered"
            return Overloaded(why, retry_after=retry_after(wait), depth=depth)
        why = f"the store is {wait:.1f} s behind, and {depth} operations wait, of {limit.operations}"
        return Overloaded(why, retry_after=retry_after(self._open_operations.rate.seconds_for(depth)), depth=depth)

    def refusal_by_journal(self, kind: Kind, growth: int, entries: int, rate: RateEstimate) -> Overloaded | None:
        """Return the error if no more requests of this kind may go to the journal, else None.

        The journal has grown by `growth` entries although the store is available, and drains at `rate`.
        """
        limit = self.limits.get(kind)
        if limit is None or growth < limit.operations:
            return None
        why = f"the journal grows faster than the store takes its entries: {entries} wait, {growth} more than before"
        self.decisions[kind]["refuse"] += 1
        return Overloaded(why, retry_after=retry_after(rate.seconds_for(growth)), depth=entries)

    def pause_for_operations(self) -> float:
        """Return how long a push waits for operations of its partition before it becomes one.

        It is the time that they probably take, limited to the longest wait. If pushes became operations at once, each
        would prolong the wait of its partition, and a past load would never drain.
        """
        depth = self._open_operations.depth
        limit = self.limits.get("push") if depth else None
        if limit is None:
            return 0.0
        return max(0.0, min(limit.wait_seconds, self._open_operations.rate.seconds_for(depth) or 0.0))

    @property
    def pending(self) -> int:
        """Return the number of requests that are not answered yet."""
        return sum(batcher.pending for batcher in (self.pushes, self.acks, self.renewals))

    def stop_accepting(self) -> None:
        self.stopped = True

    def check_running(self) -> None:
        if self.stopped:
            raise ShuttingDown("the broker is stopping")

    async def stop_pushes(self) -> None:
        await self.pushes.stop()
        await self.scheduled.stop()

    async def stop(self) -> None:
        """Finish all requests except pushes. Call it after the pops have stopped, because pops may release leases."""
        for batcher in (self.acks, self.renewals, self.push_operations, self.ack_operations):
            await batcher.stop()


def _renewing(store: Store) -> Callable[[list[Renewal]], Awaitable[Sequence[RenewOutcome | Exception]]]:
    async def renew(renewals: list[Renewal]) -> Sequence[RenewOutcome | Exception]:
        """Renew leases together. If a lane is locked, renew them one by one, so that none waits for another."""
        try:
            return await store.messages.renew(renewals)
        except LaneLocked as error:
            if len(renewals) == 1:
                return [error]
        alone = await asyncio.gather(*(renew([one]) for one in renewals))
        return [outcome for outcomes in alone for outcome in outcomes]

    return renew
