"""The engine: the verbs of the queue over a store, each through its batcher."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar

from fairlane.engine.ack import Acker, AckRequest
from fairlane.engine.admission import Admission, Gauge, Kind, Load
from fairlane.engine.batch_policy import BatchPolicy, Weight
from fairlane.engine.batcher import Batcher
from fairlane.engine.capacity import Capacity
from fairlane.engine.catalogue import Catalogue
from fairlane.engine.catalogue_watch import CATALOGUE, CatalogueWatch
from fairlane.engine.draft import PushRequest
from fairlane.engine.enqueue import Enqueuer, enqueue_acks
from fairlane.engine.halts import Halter
from fairlane.engine.leases import Leases
from fairlane.engine.operations import Operations
from fairlane.engine.pop import Popped, Popper, PopRequest
from fairlane.engine.processor import Processor, Work
from fairlane.engine.push import Pusher
from fairlane.engine.reseed import Reseed
from fairlane.engine.retention import RetentionService
from fairlane.engine.switchboard import Switchboard
from fairlane.engine.transact import Outcome, Step, Transactor
from fairlane.engine.waiters import NOT_MADE_YET, Waiters
from fairlane.engine.waiting_acks import WaitingAcks
from fairlane.engine.waiting_pushes import WaitingPushes
from fairlane.engine.wide_pop import WidePopper
from fairlane.errors import Overloaded, ShuttingDown
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.limits import POLLS_MAX
from fairlane.model.outcome import AckOutcome, PushOutcome, RenewOutcome
from fairlane.model.stream import StateChange
from fairlane.store.base import Store
from fairlane.store.operations import ClaimedLane
from fairlane.store.values import Renewal
from fairlane.telemetry import Operation, Telemetry

T = TypeVar("T")
_FLUSHES_WAITING_MAX = 5
"""While more flushes of pushes wait than this, operations are applied at a slower pace."""


class Engine:
    """Callers hand over checked values and wait; no caller touches the store. `stop` answers everybody."""

    def __init__(self, store: Store, *, polls_max: int = POLLS_MAX) -> None:
        self.store = store
        self.telemetry = Telemetry()
        self.switches = Switchboard(store)
        self.retention = RetentionService(store)
        self.catalogue = Catalogue(store)
        self.waiters = Waiters(polls_max)
        self.halts = Halter(store, self.catalogue, self.announce)
        leases = Leases(store)
        self._ready: dict[int, int] = {}
        self.processor = Processor(store, self._begin, lambda: self._pushes.flushes_waiting > _FLUSHES_WAITING_MAX)
        self.operations = Operations(store, self.catalogue, self.processor)
        capacity = Capacity()
        self._enqueuer = Enqueuer(store, self.processor.kept, self.processor.estimate, capacity)
        self._pusher = Pusher(store, self.catalogue, self._got_messages, self._enqueuer.push, capacity)
        self._popper = Popper(
            store, self.catalogue, leases, self.waiters, telemetry=self.telemetry, switches=self.switches
        )
        self._wide_popper = WidePopper(store, self.catalogue, self._popper, self.waiters)
        self._acker = Acker(store, self.catalogue, leases, self.waiters, self.telemetry)
        self._transactor = Transactor(store, self._pusher, self._acker)
        flushes = store.flushes()
        self._pushes: Batcher[PushRequest, list[PushOutcome]] = Batcher(
            self._push, BatchPolicy(flushes=flushes), weigh=_weigh_push
        )
        self._acks: Batcher[AckRequest, list[AckOutcome]] = Batcher(
            self._acker.flush, BatchPolicy(flushes=flushes), weigh=lambda request: Weight(len(request.items))
        )
        self._renewals: Batcher[Renewal, RenewOutcome] = Batcher(store.messages.renew, BatchPolicy())
        self._waiting_pushes: Batcher[PushRequest, list[PushOutcome]] = Batcher(
            self._pusher.enqueue, BatchPolicy(), weigh=_weigh_push
        )
        self._waiting_acks: Batcher[AckRequest, list[AckOutcome]] = Batcher(
            self._enqueue_acks, BatchPolicy(), weigh=lambda request: Weight(len(request.items))
        )
        self.admission = Admission()
        self._gauge = Gauge()
        self._stopped = False
        self.processor.start()
        self._reseed = Reseed(store, self.announce)
        self._watch = CatalogueWatch(store, self.catalogue)
        self._watch.start()
        store.listen(self._heard)

    def _heard(self, queue_id: int) -> None:
        """A hint of another broker."""
        if queue_id == CATALOGUE:
            self._watch.look_soon()
        else:
            self.waiters.wake(queue_id, 100)

    def _check_running(self) -> None:
        if self._stopped:
            raise ShuttingDown("the broker is stopping")

    async def push(self, request: PushRequest) -> list[PushOutcome]:
        self._check_running()
        if not request.items:
            return []
        batcher = self._waiting_pushes if self._must_wait("push") else self._pushes
        return await self._timed(self.telemetry.push, len(request.items), batcher.submit(request))

    def _must_wait(self, kind: Kind) -> bool:
        """Whether an operation is kept and applied later; Overloaded if it is not even that."""
        load = self.load()
        decision = self.admission.decide(kind, load)
        if decision.verdict == "refuse":
            self.telemetry.operations[kind].errors += 1
            raise Overloaded(decision.reason, retry_after=decision.retry_after, depth=load.depth)
        return decision.verdict == "enqueue"

    def _begin(self, lane: ClaimedLane) -> Work:
        if lane.claim.group_id:
            return WaitingAcks(lane, self._acker)
        return WaitingPushes(lane, self.catalogue, self._caught_up)

    def _caught_up(self, queue_id: int, count: int) -> None:
        self.telemetry.queue(queue_id).pushed += count
        self.waiters.wake(NOT_MADE_YET, len(self.waiters))
        self.announce(queue_id, 1)

    async def _enqueue_acks(self, requests: list[AckRequest]) -> list[list[AckOutcome] | Exception]:
        return await enqueue_acks(requests, self.catalogue, self._enqueuer)

    async def _timed(self, operation: Operation, items: int, work: Awaitable[T]) -> T:
        began = perf_counter()
        try:
            outcome = await work
        except Exception:
            operation.errors += 1
            raise
        self.telemetry.done(operation, began, items)
        return outcome

    async def _push(self, requests: list[PushRequest]) -> Sequence[list[PushOutcome] | Exception]:
        outcomes = await self._pusher.flush(requests)
        self._announce()
        return outcomes

    def _got_messages(self, queue_id: int, owners: Sequence[tuple[int, int]]) -> None:
        self._ready[queue_id] = self._ready.get(queue_id, 0) + 1
        counts = self.telemetry.queue(queue_id)
        counts.pushed += len(owners)
        counts.pushes += 1 if owners[0][0] == owners[-1][0] else len({request for request, _ in owners})

    def _announce(self) -> None:
        """Wake polls, here and at other brokers, once for all lanes that a flush filled."""
        ready, self._ready = self._ready, {}
        self.waiters.wake(NOT_MADE_YET, len(self.waiters))
        for queue_id, lanes in ready.items():
            self.announce(queue_id, lanes)

    def announce(self, queue_id: int, lanes: int) -> None:
        """Lanes of a queue became ready by other ways than a push."""
        self.waiters.wake(queue_id, lanes)
        self.store.hint(queue_id)

    async def pop(self, request: PopRequest) -> Popped:
        self._check_running()
        self._must_wait("pop")
        try:
            return await self._popper.pop(request)
        except Exception:
            self.telemetry.pop.errors += 1
            raise

    async def ack(self, request: AckRequest) -> list[AckOutcome]:
        self._check_running()
        if not request.items:
            return []
        batcher = self._waiting_acks if self._must_wait("ack") else self._acks
        return await self._timed(self.telemetry.ack, len(request.items), batcher.submit(request))

    async def renew(self, lease: str, *, seconds: int) -> RenewOutcome:
        self._check_running()
        parsed = LeaseId.parse(lease)
        if parsed is None:
            return RenewOutcome(0, None)
        renewal = self._renewals.submit(Renewal(parsed, seconds))
        return await self._timed(self.telemetry.renew_lease, 1, renewal)

    async def release(self, lease: str, *, partition: PartitionId | None = None) -> int:
        """Give a lease back without charge; how many lanes."""
        self._check_running()
        parsed = LeaseId.parse(lease)
        if parsed is None:
            return 0
        released = await self.store.messages.release(parsed, partition=partition)
        self.waiters.wake_group(parsed.group_id, released)
        queue_id = self.catalogue.queue_of(parsed.group_id)
        if queue_id is not None:
            self.store.hint(queue_id)
        return released

    def give_back(self, lease: LeaseId) -> None:
        """Release a lease whose holder went away before it knew of it. Returns at once."""
        self._popper.give_back(lease)

    async def transact(self, tenant: str, steps: Sequence[Step]) -> list[Outcome]:
        self._check_running()
        bundle = self._transactor.transact(tenant, steps)
        outcomes = await self._timed(self.telemetry.transaction, len(steps), bundle)
        self._announce()
        return outcomes

    async def cycle(self, tenant: str, change: StateChange, steps: Sequence[Step], *, release: bool) -> list[Outcome]:
        """A transaction that changes the state of a stream as well."""
        self._check_running()
        commit = partial(self.store.streams.cycle, change)
        bundle = self._transactor.transact(tenant, steps, commit=commit, release=release)
        outcomes = await self._timed(self.telemetry.transaction, len(steps) + len(change.ops), bundle)
        self._announce()
        return outcomes

    async def pop_any(self, request: PopRequest, *, namespace: str | None, task: str | None) -> Popped:
        """Pop from whichever queue with these labels has something."""
        self._check_running()
        self._must_wait("pop")
        try:
            return await self._wide_popper.pop(request, namespace, task)
        except Exception:
            self.telemetry.pop.errors += 1
            raise

    async def stop(self) -> None:
        """Take nothing new, end long polls with an empty answer, finish the rest."""
        self._stopped = True
        await self._pushes.stop()
        await self._popper.stop()
        await self._acks.stop()
        await self._renewals.stop()
        await self._waiting_pushes.stop()
        await self._waiting_acks.stop()
        await self.processor.stop()
        await self._reseed.stop()
        await self._watch.stop()
        await self.switches.stop()
        await self.retention.stop()

    def load(self) -> Load:
        """What admission decides by, as of now."""
        now = perf_counter()
        busy = max(self._pushes.busy, self._acks.busy)
        waited = max(self._pushes.waited(now), self._acks.waited(now))
        use = self._gauge.feed(now, busy=busy, waited=waited)
        return Load(use, self.processor.depth, self.processor.drain_rate)

    @property
    def pending(self) -> int:
        """Operations handed over and not answered yet; parked polls are not among them."""
        return sum(batcher.pending for batcher in (self._pushes, self._acks, self._renewals)) + self._popper.pending


def _weigh_push(request: PushRequest) -> Weight:
    return Weight(len(request.items), sum(len(item.payload) for item in request.items))
