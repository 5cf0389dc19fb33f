"""The parts of a broker: made and joined here, started and stopped in their order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from fairlane import server_extra as _extra  # noqa: F401
from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.admission import PATIENT, Admission, Kind, Limit
from fairlane.broker.announcer import Announcer
from fairlane.broker.answer_room import AnswerRoom
from fairlane.broker.batchers import Batchers
from fairlane.broker.capacity import Capacity
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.catalogue_watch import CATALOGUE, CatalogueWatch
from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.broker.dead_letters import DeadLetters
from fairlane.broker.due import DueService
from fairlane.broker.effects import Effects
from fairlane.broker.flags import PUSH_MAINTENANCE, Flags
from fairlane.broker.flushes import Flushes
from fairlane.broker.forwarder import Forwarder
from fairlane.broker.groups import Groups
from fairlane.broker.inbox import Inbox
from fairlane.broker.intake import Intake
from fairlane.broker.journal_acks import AckAnswers
from fairlane.broker.journal_codec import push_backlog
from fairlane.broker.journal_drain import JournalDrain
from fairlane.broker.journal_operations import JournalOperations
from fairlane.broker.journal_route import JournalRoute
from fairlane.broker.leases import Leases
from fairlane.broker.operation_drain import OperationDrain
from fairlane.broker.operation_enqueue import Enqueuer, enqueue_acks
from fairlane.broker.operation_work import AckWork, PushWork, Work
from fairlane.broker.operations import Operations
from fairlane.broker.patience import PATIENCE_SECONDS
from fairlane.broker.pauses import Pauses
from fairlane.broker.pop import Popper
from fairlane.broker.priority import Priorities
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import PushRequest
from fairlane.broker.queues import Queues
from fairlane.broker.reseed import Reseed
from fairlane.broker.retention import RetentionService
from fairlane.broker.scheduled import ScheduledMessages
from fairlane.broker.schedules import Schedules
from fairlane.broker.sources import Sources
from fairlane.broker.specs import Specs
from fairlane.broker.statistics import Statistics
from fairlane.broker.store_watch import StoreWatch
from fairlane.broker.transact import Step, Transactor
from fairlane.broker.waiters import Waiters
from fairlane.broker.wide_pop import WidePopper
from fairlane.broker.workers import Workers
from fairlane.config import SECRET_NAMES, named_variables
from fairlane.errors import LaneWaiting, ShuttingDown, Unavailable
from fairlane.model.limits import POLLS_MAX
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.outcome import (
    OperationReason,
    PushOutcome,
)
from fairlane.outbound.addresses import NOTHING_INSIDE, Allowed
from fairlane.runtime.memory import Budget
from fairlane.store.contract.journal import Journal
from fairlane.store.contract.operations import ClaimedBacklog
from fairlane.store.contract.store import Store
from fairlane.telemetry import Telemetry


class Parts:
    """The parts of a broker over one store."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = DEFAULT_TENANT,
        polls_max: int = POLLS_MAX,
        journal: Journal | None = None,
        limits: Mapping[Kind, Limit] = PATIENT,
        patience_seconds: float = PATIENCE_SECONDS,
        allowed: Allowed = NOTHING_INSIDE,
        secret_names: str = SECRET_NAMES,
    ) -> None:
        """With a `journal`, await `start()` before the first call."""
        self.store = store
        self.journal = journal
        self.tenant = tenant
        self.budget = Budget(sys.maxsize)
        """For those who ask over a network; whoever serves them says how much it is."""
        self.telemetry = Telemetry()
        self.statistics = Statistics(store, tenant, self.telemetry)
        self.flags = Flags(store)
        self.retention = RetentionService(store)
        self.catalogue = Catalogue(store)
        self.compiled_specs = CompiledSpecs(store, tenant, partial(named_variables, allowed=secret_names), allowed)
        self.specs = Specs(store, self.compiled_specs, tenant, self._applied_spec)
        self.waiters = Waiters(polls_max)
        self._announcer = announcer = Announcer(store, self.waiters, self.telemetry)
        self.pauses = Pauses(store, tenant, self.catalogue, self.announce)
        leases = Leases(store)
        self.operation_drain = OperationDrain(store, self._begin)
        self.operations = Operations(store, self.catalogue, self.operation_drain)
        capacity = Capacity()
        enqueuer = Enqueuer(
            store,
            self.operation_drain.enqueued,
            self.operation_drain.estimate,
            capacity,
            refusal=lambda: self.admission.refusal("push"),
        )
        self._pusher = Pusher(store, self.catalogue, announcer.stored, enqueuer.push, capacity)
        self.due = DueService(store, announcer.appended)
        self.priorities = Priorities(store, self.catalogue)
        self.scheduled = ScheduledMessages(store, tenant, self.catalogue, self._pusher, self.due.wake)
        self._popper = Popper(
            store,
            self.catalogue,
            leases,
            self.waiters,
            telemetry=self.telemetry,
            flags=self.flags,
            room=AnswerRoom(self.budget),
        )

        async def defer_acks(requests: list[AckRequest], reason: OperationReason = "system_busy") -> AckAnswers:
            return await enqueue_acks(requests, self.catalogue, enqueuer, reason)

        self._acker = Acker(store, self.catalogue, leases, self.waiters, self.telemetry, defer_acks)
        self.forwarder = Forwarder(store, announcer.appended)
        self._acker.dead_lettered = self.forwarder.wake
        self._transactor = Transactor(store, self._pusher, self._acker)
        self.schedules = Schedules(
            store, tenant, self._transactor, self.compiled_specs.admit_steps, announcer.flushed, self.due.wake
        )
        self.due.schedules = self.schedules
        self.sources = Sources(
            store, self._transactor, self.compiled_specs.admit_steps, self._check_transaction, announcer.flushed
        )
        self.inbox = Inbox(store, self.catalogue, tenant, self.push_request)
        self.journal_route: JournalRoute | None = None
        self.journal_drain: JournalDrain | None = None
        self._draining: asyncio.Task[None] | None = None
        if journal is not None:
            self._use_journal(journal, tenant, patience_seconds)
        self._popper.route = self.journal_route
        self._wide_popper = WidePopper(store, self.catalogue, self._popper, self.waiters)
        flushes = Flushes(self._pusher, self._acker, defer_acks, announcer.flushed, self.journal_route)
        self._batchers = batchers = Batchers(store, flushes, self.scheduled)
        self.admission = Admission(limits, batchers, self.operation_drain, self.telemetry)
        self._intake = Intake(
            self.compiled_specs,
            self.priorities,
            self.scheduled,
            batchers,
            self.admission,
            self.journal_route,
            self.telemetry,
        )
        self.queues = Queues(store, tenant, self.catalogue, self.forwarder, self.statistics)
        self.groups = Groups(store, tenant, self.catalogue, self.announce, self.statistics)
        self.dead_letters = DeadLetters(store, tenant, self.catalogue, self.announce, self.operation_drain)
        self.workers = Workers(store, tenant)
        self.effects = Effects(store, tenant)
        self._stopped = False
        self.operation_drain.start()
        self._reseed = Reseed(store, self.announce)
        self.due.start()
        self.forwarder.start()
        self._watch = CatalogueWatch(store, self.catalogue, self.compiled_specs.reload)
        self._watch.start()
        store.listen(self._heard)

    def _heard(self, queue_id: int) -> None:
        """A hint of another broker."""
        if queue_id == CATALOGUE:
            self._watch.wake()
        else:
            self.waiters.wake(queue_id, 100)

    def _applied_spec(self) -> None:
        self.catalogue.forget_all()
        self.store.hint(CATALOGUE)
        self.due.wake()
        if self.journal_drain is not None:
            self.journal_drain.save_soon()

    def _use_journal(self, journal: Journal, tenant: str, patience_seconds: float) -> None:
        self.journal_route = JournalRoute(
            journal,
            StoreWatch(lambda: self.store.answer()),
            self.catalogue,
            maintenance=lambda: self.flags.seen(PUSH_MAINTENANCE),
            clock_ms=self.store.id_time,
            patience_seconds=patience_seconds,
        )
        operations = JournalOperations(self.journal_route.failed, self.store, self.catalogue)
        self.operations.journal = operations
        self.journal_drain = JournalDrain(
            self.journal_route,
            self.store,
            self._pusher,
            self._acker.flush,
            tenant=tenant,
            applied=self._announcer.flushed,
            compiled_specs=self.compiled_specs,
            operations=operations,
        )

    async def start(self) -> None:
        """Take up what an earlier process left in the journal; needed only with one."""
        if self.journal_route is not None and self.journal_drain is not None:
            self.journal_route.backlogs.hold(await self.journal_route.journal.backlogs())
            for queue in await self.journal_route.journal.catalogue():
                self.catalogue.recollect(queue)
            if specs := await self.journal_route.journal.specs():
                await self.compiled_specs.load(specs)
            try:
                async with asyncio.timeout(self.journal_route.patience.seconds):
                    await self.store.flags.on()
                    await self.compiled_specs.reload()
            except (Unavailable, TimeoutError) as error:
                await self.journal_route.is_there(str(error) or "it does not answer")
            self._draining = asyncio.create_task(self.journal_drain.run(), name="fairlane drain")

    def _check_running(self) -> None:
        if self._stopped:
            raise ShuttingDown("the broker is stopping")

    async def push_request(self, request: PushRequest) -> list[PushOutcome]:
        self._check_running()
        if not request.items:
            return []
        return await self._intake.push(request)

    async def know_specs(self) -> None:
        """Read the specs in force if that was not done yet. Who cannot, and has a journal, goes on without."""
        await self._intake.know_specs()

    def _defers(self, kind: Kind) -> bool:
        """Whether a request becomes an operation; Overloaded if it is not even that. While the store is away the
        journal decides."""
        return not self._intake.away and self.admission.defers(kind)

    def check_admission(self, kind: Kind) -> None:
        """Overloaded if one more of this kind is refused now, whatever is in it: so that it need not be read."""
        if not self._intake.away:
            self.admission.check(kind)

    def _begin(self, lane: ClaimedBacklog) -> Work:
        if lane.claim.group_id:
            return AckWork(lane, self._acker)
        return PushWork(lane, self.catalogue, self._announcer.appended)

    def announce(self, queue_id: int, lanes: int) -> None:
        """Lanes of a queue became ready by other ways than a push."""
        self._announcer.announce(queue_id, lanes)

    def _check_transaction(self, tenant: str, steps: Sequence[Step]) -> None:
        self._check_running()
        self._check_backlogs(tenant, steps)

    def _check_backlogs(self, tenant: str, steps: Sequence[Step]) -> None:
        """A transaction never becomes an operation, so it cannot follow those in the journal."""
        if self.journal_route is None or not self.journal_route.backlogs:
            return
        for step in steps:
            if isinstance(step, PushItem) and push_backlog(tenant, step) in self.journal_route.backlogs:
                raise LaneWaiting(
                    f"earlier messages for partition {step.partition!r} of queue {step.queue!r} wait in the journal; "
                    "try again soon"
                )

    async def stop(self) -> None:
        """Take nothing new, end long polls with an empty answer, finish the rest."""
        self._stopped = True
        await self._intake.stop()
        await self._popper.stop()
        await self._batchers.stop()
        await self.due.stop()
        await self.forwarder.stop()
        await self.operation_drain.stop()
        await self._reseed.stop()
        await self._watch.stop()
        await self._stop_draining()
        await self.flags.stop()
        await self.retention.stop()

    async def _stop_draining(self) -> None:
        """The journal stays as it is. Flushes that nobody waits for have a moment more."""
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait([self._draining])
        if self.journal_route is None:
            return
        await self.journal_route.watch.stop()
        abandoned = self.journal_route.patience.abandoned
        if abandoned:
            await asyncio.wait(abandoned, timeout=1.0)
            for task in list(abandoned):
                task.cancel()
            if abandoned:
                await asyncio.wait(abandoned)

    @property
    def pending(self) -> int:
        """Requests handed over and not answered yet; parked polls are not among them."""
        return self._batchers.pending + self._popper.pending
