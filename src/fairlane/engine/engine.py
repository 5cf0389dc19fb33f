"""The engine: the verbs of the queue over a store, each through its batcher."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar

import msgspec

from fairlane.engine.ack import Acker, AckRequest
from fairlane.engine.admission import LIMITS, Admission, Gauge, Kind, Limit, Load, Verdict
from fairlane.engine.batch_policy import BatchPolicy, Weight
from fairlane.engine.batcher import Batcher
from fairlane.engine.capacity import Capacity
from fairlane.engine.catalogue import Catalogue
from fairlane.engine.catalogue_watch import CATALOGUE, CatalogueWatch
from fairlane.engine.draft import PushRequest
from fairlane.engine.enqueue import Enqueuer, enqueue_acks
from fairlane.engine.forwarder import Forwarder
from fairlane.engine.halts import Halter
from fairlane.engine.inbox import Inbox
from fairlane.engine.journal_drain import JournalDrain
from fairlane.engine.kept import push_lane
from fairlane.engine.leases import Leases
from fairlane.engine.operations import Operations
from fairlane.engine.patience import PATIENCE_SECONDS
from fairlane.engine.pop import Popper, PopRequest
from fairlane.engine.popped import Popped
from fairlane.engine.processor import Processor, Work
from fairlane.engine.programs import Programs
from fairlane.engine.push import Pusher
from fairlane.engine.ranks import Ranks
from fairlane.engine.recurring import Recurring
from fairlane.engine.reseed import Reseed
from fairlane.engine.retention import RetentionService
from fairlane.engine.schedule import Scheduler
from fairlane.engine.shelter import Shelter
from fairlane.engine.sources import Sources
from fairlane.engine.specs import Specs
from fairlane.engine.store_watch import StoreWatch
from fairlane.engine.switchboard import PUSH_ASIDE, Switchboard
from fairlane.engine.timekeeper import Timekeeper
from fairlane.engine.transact import Outcome, Step, Transactor
from fairlane.engine.waiters import NOT_MADE_YET, Waiters
from fairlane.engine.waiting_acks import WaitingAcks
from fairlane.engine.waiting_pushes import WaitingPushes
from fairlane.engine.wide_pop import WidePopper
from fairlane.errors import LaneWaiting, OutcomeUnknown, Overloaded, ShuttingDown, StoreUnavailable, Unavailable
from fairlane.hooks.hook import Secrets, no_secrets
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.limits import POLLS_MAX
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.outcome import AckOutcome, PushOutcome, RenewOutcome
from fairlane.model.stream import StateChange
from fairlane.store.base import Store
from fairlane.store.journal import Journal
from fairlane.store.operations import ClaimedLane
from fairlane.store.values import Renewal
from fairlane.telemetry import Operation, Telemetry

T = TypeVar("T")
_FLUSHES_WAITING_MAX = 5
"""While more flushes of pushes wait than this, operations are applied at a slower pace."""
_LOOK_SECONDS = 0.001
"""When an operation was executed, others of its kind are so for this long without another look at the load."""


class Engine:
    """Callers hand over checked values and wait; no caller touches the store. `stop` answers everybody."""

    def __init__(
        self,
        store: Store,
        *,
        polls_max: int = POLLS_MAX,
        journal: Journal | None = None,
        tenant: str = DEFAULT_TENANT,
        limits: Mapping[Kind, Limit] = LIMITS,
        patience_seconds: float = PATIENCE_SECONDS,
        secrets: Secrets = no_secrets,
    ) -> None:
        self.store = store
        self.telemetry = Telemetry()
        self.switches = Switchboard(store)
        self.retention = RetentionService(store)
        self.catalogue = Catalogue(store)
        self.programs = Programs(store, tenant, secrets)
        self.specs = Specs(store, self.programs, tenant, self._applied_spec)
        self.waiters = Waiters(polls_max)
        self.halts = Halter(store, self.catalogue, self.announce)
        leases = Leases(store)
        self._ready: dict[int, int] = {}
        self.processor = Processor(store, self._begin, lambda: self._pushes.flushes_waiting > _FLUSHES_WAITING_MAX)
        self.operations = Operations(store, self.catalogue, self.processor)
        capacity = Capacity()
        self._enqueuer = Enqueuer(store, self.processor.kept, self.processor.estimate, capacity)
        self._pusher = Pusher(store, self.catalogue, self._got_messages, self._enqueuer.push, capacity)
        self.timekeeper = Timekeeper(store, self._caught_up)
        self.ranks = Ranks(store, self.catalogue)
        self.schedules = Scheduler(store, self.catalogue, self._pusher, self.timekeeper.wake)
        self._popper = Popper(
            store, self.catalogue, leases, self.waiters, telemetry=self.telemetry, switches=self.switches
        )
        self._wide_popper = WidePopper(store, self.catalogue, self._popper, self.waiters)
        self._acker = Acker(store, self.catalogue, leases, self.waiters, self.telemetry, self._keep_acks)
        self.forwarder = Forwarder(store, self._caught_up)
        self._acker.buried = self.forwarder.wake
        self._transactor = Transactor(store, self._pusher, self._acker)
        self.recurring = Recurring(
            store, self._transactor, self.programs.admit_steps, self._announce, self.timekeeper.wake
        )
        self.timekeeper.recurring = self.recurring
        self.sources = Sources(store, self._transactor, self.programs.admit_steps, self._check_bundle, self._announce)
        self.inbox = Inbox(store, self.catalogue, tenant, self.push)
        self.shelter: Shelter | None = None
        self.journal_drain: JournalDrain | None = None
        self._draining: asyncio.Task[None] | None = None
        if journal is not None:
            self._take_shelter(journal, tenant, patience_seconds)
        flushes = store.flushes()
        self._pushes: Batcher[PushRequest, list[PushOutcome]] = Batcher(
            self._push, BatchPolicy(flushes=flushes), weigh=_weigh_push
        )
        self._schedulings: Batcher[PushRequest, list[PushOutcome]] = Batcher(
            self.schedules.flush, BatchPolicy(flushes=flushes), weigh=_weigh_push
        )
        self._acks: Batcher[AckRequest, Sequence[AckOutcome]] = Batcher(
            self._ack, BatchPolicy(flushes=flushes), weigh=lambda request: Weight(len(request.items))
        )
        self._renewals: Batcher[Renewal, RenewOutcome] = Batcher(store.messages.renew, BatchPolicy())
        self._waiting_pushes: Batcher[PushRequest, list[PushOutcome]] = Batcher(
            self._enqueue, BatchPolicy(), weigh=_weigh_push
        )
        self._waiting_acks: Batcher[AckRequest, Sequence[AckOutcome]] = Batcher(
            self._enqueue_acks, BatchPolicy(), weigh=lambda request: Weight(len(request.items))
        )
        self.admission = Admission(limits)
        self._gauge = Gauge()
        self._execute_until: dict[Kind, float] = {}
        self._stopped = False
        self.processor.start()
        self._reseed = Reseed(store, self.announce)
        self.timekeeper.start()
        self.forwarder.start()
        self._watch = CatalogueWatch(store, self.catalogue, self.programs.reload)
        self._watch.start()
        store.listen(self._heard)

    def _heard(self, queue_id: int) -> None:
        """A hint of another broker."""
        if queue_id == CATALOGUE:
            self._watch.look_soon()
        else:
            self.waiters.wake(queue_id, 100)

    def _applied_spec(self) -> None:
        self.catalogue.forget_all()
        self.store.hint(CATALOGUE)
        self.timekeeper.wake()
        if self.journal_drain is not None:
            self.journal_drain.save_soon()

    def _take_shelter(self, journal: Journal, tenant: str, patience_seconds: float) -> None:
        self.shelter = Shelter(
            journal,
            StoreWatch(),
            self.catalogue,
            maintenance=lambda: self.switches.seen(PUSH_ASIDE),
            clock_ms=self.store.id_time,
            patience_seconds=patience_seconds,
        )
        self.journal_drain = JournalDrain(
            self.shelter,
            self.store,
            self._pusher,
            self._acker.flush,
            tenant=tenant,
            applied=self._announce,
            programs=self.programs,
        )

    async def start(self) -> None:
        """Take up what an earlier process left in the journal; needed only with one."""
        if self.shelter is not None and self.journal_drain is not None:
            self.shelter.held.hold(await self.shelter.journal.lanes())
            for queue in await self.shelter.journal.catalogue():
                self.catalogue.recollect(queue)
            if specs := await self.shelter.journal.specs():
                await self.programs.load(specs)
            try:
                async with asyncio.timeout(self.shelter.patience.seconds):
                    await self.store.switches.on()
                    await self.programs.reload()
            except (Unavailable, TimeoutError) as error:
                self.shelter.watch.lost(str(error) or "it does not answer")
            self._draining = asyncio.create_task(self.journal_drain.run(), name="fairlane drain")

    def _check_running(self) -> None:
        if self._stopped:
            raise ShuttingDown("the broker is stopping")

    async def push(self, request: PushRequest) -> list[PushOutcome]:
        self._check_running()
        if not request.items:
            return []
        if not self.programs.idle:
            if not self.programs.loaded:
                await self.know_programs()
            request = self.programs.admit(request)
        if request.special:
            ranked = await self.ranks.place(request.tenant, request.items, away=self._away)
            return await self._push_timed(PushRequest(request.tenant, ranked))
        batcher = self._waiting_pushes if self._must_wait("push") else self._pushes
        return await self._timed(self.telemetry.push, len(request.items), batcher.submit(request))

    async def know_programs(self) -> None:
        """Read the specs in force if that was not done yet. Who cannot, and has a journal, goes on without."""
        if self.programs.loaded or self._away:
            return
        try:
            async with asyncio.timeout(self.shelter.patience.seconds if self.shelter else None):
                await self.programs.reload()
        except (Unavailable, TimeoutError):
            if self.shelter is None:
                raise

    @property
    def _away(self) -> bool:
        """Whether the store is known not to answer."""
        return self.shelter is not None and not self.shelter.watch.up

    async def _push_timed(self, request: PushRequest) -> list[PushOutcome]:
        """Keep what is to be delivered later aside, and push the rest. While the store is away nothing can be kept for
        later: the journal keeps pushes in their order, not by time."""
        later = [index for index, item in enumerate(request.items) if self.schedules.is_later(item)]
        if later and self._away:
            raise StoreUnavailable(
                "the store does not answer, and a message for later cannot wait in the journal; try again, or push it "
                "without deliverAt and delayMs"
            )
        if len(later) == len(request.items):
            return await self._timed(self.telemetry.push, len(later), self._schedulings.submit(request))
        rest = [index for index in range(len(request.items)) if index not in set(later)]
        found: dict[int, PushOutcome] = {}
        if later:
            kept = self._schedulings.submit(PushRequest(request.tenant, [request.items[index] for index in later]))
            found |= zip(later, await self._timed(self.telemetry.push, len(later), kept), strict=True)
        items = [request.items[index] for index in rest]
        traced = any(item.trace_id is not None for item in items)
        pushed = await self.push(PushRequest(request.tenant, items, traced=traced))
        found |= zip(rest, pushed, strict=True)
        return [found[index] for index in range(len(request.items))]

    def _must_wait(self, kind: Kind) -> bool:
        """Whether an operation is kept and applied later; Overloaded if it is not even that. While the store is away
        the journal decides."""
        if kind not in self.admission.limits or self._away:
            return False
        verdict = self._admit(kind)
        self.admission.count(kind, verdict)
        return verdict == "enqueue"

    def check_admission(self, kind: Kind) -> None:
        """Overloaded if one more of this kind is refused now, whatever is in it: so that it need not be read."""
        if self.admission.holds_back(kind) and not self._away:
            self._admit(kind)

    def _admit(self, kind: Kind) -> Verdict:
        now = perf_counter()
        if now < self._execute_until.get(kind, 0.0):
            return "execute"
        load = self.load(kind)
        decision = self.admission.decide(kind, load, now=now)
        if decision.verdict == "execute":
            self._execute_until[kind] = now + _LOOK_SECONDS
        elif decision.verdict == "refuse":
            self.admission.count(kind, "refuse")
            self.telemetry.operations[kind].errors += 1
            raise Overloaded(decision.reason, retry_after=decision.retry_after, depth=load.depth)
        return decision.verdict

    def _begin(self, lane: ClaimedLane) -> Work:
        if lane.claim.group_id:
            return WaitingAcks(lane, self._acker)
        return WaitingPushes(lane, self.catalogue, self._caught_up)

    def _caught_up(self, queue_id: int, count: int) -> None:
        self.telemetry.queue(queue_id).pushed += count
        self.waiters.wake(NOT_MADE_YET, len(self.waiters))
        self.announce(queue_id, 1)

    async def _enqueue_acks(self, requests: list[AckRequest]) -> list[Sequence[AckOutcome] | Exception]:
        keep = self._keep_acks
        return await (self.shelter.ack(requests, keep) if self.shelter is not None else keep(requests))

    async def _keep_acks(self, requests: list[AckRequest]) -> list[Sequence[AckOutcome] | Exception]:
        return await enqueue_acks(requests, self.catalogue, self._enqueuer)

    async def _enqueue(self, requests: list[PushRequest]) -> list[list[PushOutcome] | Exception]:
        if self.shelter is not None:
            return await self.shelter.push(requests, self._pusher.run_enqueue)
        return await self._pusher.enqueue(requests)

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
        if self.shelter is not None:
            outcomes = await self.shelter.push(requests, self._pusher.run)
        else:
            outcomes = await self._pusher.flush(requests)
        self._announce()
        return outcomes

    async def _ack(self, requests: list[AckRequest]) -> Sequence[Sequence[AckOutcome] | Exception]:
        if self.shelter is not None:
            return await self.shelter.ack(requests, self._acker.flush)
        return await self._acker.flush(requests)

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
            if self.shelter is not None:
                return await self._pop_when_up(request, self.shelter, self._popper.pop)
            return await self._popper.pop(request)
        except Exception:
            self.telemetry.pop.errors += 1
            raise

    async def _pop_when_up(
        self, request: PopRequest, shelter: Shelter, pop: Callable[[PopRequest], Awaitable[Popped]]
    ) -> Popped:
        """A poll that waits, waits for the store as well; one that does not is told at once that it is away."""
        watch, give_up_at = shelter.watch, perf_counter() + request.wait_seconds
        while True:
            if not watch.up and not await watch.wait_back(give_up_at - perf_counter()):
                raise StoreUnavailable(f"the store does not answer: {watch.why}")
            left = max(0.0, give_up_at - perf_counter()) if request.wait_seconds else 0.0
            try:
                async with asyncio.timeout(None if left else 2 * shelter.patience.seconds):
                    return await pop(msgspec.structs.replace(request, wait_seconds=left))
            except TimeoutError:
                watch.lost("a pop got no answer in time")
            except (StoreUnavailable, OutcomeUnknown) as error:
                watch.lost(str(error))

    async def ack(self, request: AckRequest) -> Sequence[AckOutcome]:
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

    def _check_bundle(self, tenant: str, steps: Sequence[Step]) -> None:
        self._check_running()
        self._check_lanes(tenant, steps)

    def _check_lanes(self, tenant: str, steps: Sequence[Step]) -> None:
        """A transaction is never kept for later, so it cannot go behind what is."""
        if self.shelter is None or not self.shelter.held:
            return
        for step in steps:
            if isinstance(step, PushItem) and push_lane(tenant, step) in self.shelter.held:
                raise LaneWaiting(
                    f"earlier messages for partition {step.partition!r} of queue {step.queue!r} wait in the journal; "
                    "try again soon"
                )

    async def transact(self, tenant: str, steps: Sequence[Step]) -> list[Outcome]:
        self._check_running()
        await self.know_programs()
        steps = self.programs.admit_steps(tenant, steps)
        steps = await self.ranks.place(tenant, steps, away=self._away)
        self._check_lanes(tenant, steps)
        bundle = self._transactor.transact(tenant, steps)
        outcomes = await self._timed(self.telemetry.transaction, len(steps), bundle)
        self._announce()
        return outcomes

    async def cycle(self, tenant: str, change: StateChange, steps: Sequence[Step], *, release: bool) -> list[Outcome]:
        """A transaction that changes the state of a stream as well."""
        self._check_running()
        await self.know_programs()
        steps = self.programs.admit_steps(tenant, steps)
        steps = await self.ranks.place(tenant, steps, away=self._away)
        self._check_lanes(tenant, steps)
        commit = partial(self.store.streams.cycle, change)
        bundle = self._transactor.transact(tenant, steps, commit=commit, release=release)
        outcomes = await self._timed(self.telemetry.transaction, len(steps) + len(change.ops), bundle)
        self._announce()
        return outcomes

    async def pop_any(self, request: PopRequest, *, namespace: str | None, task: str | None) -> Popped:
        """Pop from whichever queue with these labels has something."""
        self._check_running()
        self._must_wait("pop")

        async def pop(request: PopRequest) -> Popped:
            return await self._wide_popper.pop(request, namespace, task)

        try:
            if self.shelter is not None:
                return await self._pop_when_up(request, self.shelter, pop)
            return await pop(request)
        except Exception:
            self.telemetry.pop.errors += 1
            raise

    async def stop(self) -> None:
        """Take nothing new, end long polls with an empty answer, finish the rest."""
        self._stopped = True
        await self._pushes.stop()
        await self._schedulings.stop()
        await self._popper.stop()
        await self._acks.stop()
        await self._renewals.stop()
        await self._waiting_pushes.stop()
        await self._waiting_acks.stop()
        await self.timekeeper.stop()
        await self.forwarder.stop()
        await self.processor.stop()
        await self._reseed.stop()
        await self._watch.stop()
        await self._stop_draining()
        await self.switches.stop()
        await self.retention.stop()

    async def _stop_draining(self) -> None:
        """What the journal holds stays there. Flushes that nobody waits for have a moment more."""
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait([self._draining])
        left_behind = self.shelter.patience.left_behind if self.shelter is not None else None
        if left_behind:
            await asyncio.wait(left_behind, timeout=1.0)
            for task in list(left_behind):
                task.cancel()
            if left_behind:
                await asyncio.wait(left_behind)

    def load(self, kind: Kind = "push") -> Load:
        """What admission decides by, as of now."""
        now = perf_counter()
        busy = max(self._pushes.busy, self._acks.busy)
        waited = max(self._pushes.waited(now), self._acks.waited(now))
        use = self._gauge.feed(now, busy=busy, waited=waited)
        direct, kept = (self._acks, self._waiting_acks) if kind == "ack" else (self._pushes, self._waiting_pushes)
        backlogs = (direct.backlog_seconds(), kept.backlog_seconds())
        return Load(use, self.processor.depth, self.processor.drain_rate, *backlogs, sure=direct.sure)

    @property
    def pending(self) -> int:
        """Operations handed over and not answered yet; parked polls are not among them."""
        return sum(batcher.pending for batcher in (self._pushes, self._acks, self._renewals)) + self._popper.pending


def _weigh_push(request: PushRequest) -> Weight:
    return Weight(len(request.items), sum(map(len, [item.payload for item in request.items])))
