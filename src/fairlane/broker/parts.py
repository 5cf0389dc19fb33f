"""The parts of a broker: made and joined here, started and stopped in their order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fairlane import server_extra as _extra  # noqa: F401
from fairlane.broker.ack import Acker
from fairlane.broker.admission import PATIENT, Admission, Intake, Kind, Limit
from fairlane.broker.browse import Browse
from fairlane.broker.capacity import Capacity
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.broker.dead_letters import DeadLetters
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.failed import Operations
from fairlane.broker.deferral.journal_drain import JournalDrain
from fairlane.broker.deferral.patience import PATIENCE_SECONDS
from fairlane.broker.deferral.route import Route
from fairlane.broker.effects import Effects
from fairlane.broker.findings import Findings
from fairlane.broker.flags import POP_MAINTENANCE, PUSH_MAINTENANCE, Flags
from fairlane.broker.groups import Groups
from fairlane.broker.history import History
from fairlane.broker.hooks import Hooks
from fairlane.broker.inbox import Inbox
from fairlane.broker.leases import Leases
from fairlane.broker.messages import Messages
from fairlane.broker.pauses import Pauses
from fairlane.broker.pop import Popper
from fairlane.broker.priority import Priorities
from fairlane.broker.push import Announcer, Pusher
from fairlane.broker.queues import Queues
from fairlane.broker.results import Results
from fairlane.broker.retention import RetentionService
from fairlane.broker.scheduled import ScheduledMessages
from fairlane.broker.schedules import Schedules
from fairlane.broker.services.catalogue_watch import CATALOGUE, CatalogueWatch
from fairlane.broker.services.due import DueService
from fairlane.broker.services.forwarder import Forwarder
from fairlane.broker.services.reseed import Reseed
from fairlane.broker.sources import Sources
from fairlane.broker.specs import Specs
from fairlane.broker.statistics import Statistics
from fairlane.broker.status import Status
from fairlane.broker.streams import Streams
from fairlane.broker.traces import Traces
from fairlane.broker.transact import Step, Transactor
from fairlane.broker.waiters import Waiters
from fairlane.broker.wide_pop import WidePopper
from fairlane.broker.workers import Workers
from fairlane.config import SECRET_NAMES, named_variables
from fairlane.errors import NotAvailable, ShuttingDown, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.limits import POLLS_MAX
from fairlane.model.names import DEFAULT_TENANT, check_name
from fairlane.outbound.addresses import NOTHING_INSIDE, Allowed
from fairlane.runtime.memory import Budget
from fairlane.store.contract.store import Store
from fairlane.telemetry import Telemetry

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal


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
        self.retention = RetentionService(store, tenant, self.statistics, self.telemetry)
        self.catalogue = Catalogue(store)
        self.known_names = self.catalogue.known_names
        self.history = History(tenant, self.catalogue, self.telemetry)
        self.compiled_specs = CompiledSpecs(store, tenant, partial(named_variables, allowed=secret_names), allowed)
        self.specs = Specs(store, self.compiled_specs, tenant, self._applied_spec)
        self.waiters = Waiters(polls_max)
        self._announcer = announcer = Announcer(store, self.waiters, self.telemetry)
        self.pauses = Pauses(store, tenant, self.catalogue, announcer)
        leases = Leases(store)
        self.operation_drain = OperationDrain(store, self.catalogue, announcer)
        self.operations = Operations(store, tenant, self.catalogue, self.operation_drain, journal)
        capacity = Capacity()
        enqueuer = Enqueuer(store, self.catalogue, self.operation_drain, capacity)
        self._pusher = Pusher(store, self.catalogue, announcer, enqueuer, capacity)
        self.due = DueService(store, announcer)
        self.priorities = Priorities(store, self.catalogue)
        self.scheduled = ScheduledMessages(store, tenant, self.catalogue, self._pusher, self.due)
        self._popper = Popper(
            store,
            self.catalogue,
            leases,
            self.waiters,
            telemetry=self.telemetry,
            flags=self.flags,
            budget=self.budget,
        )
        self._awaited = Waiters(polls_max)
        self._acker = Acker(store, self.catalogue, leases, self.waiters, self._awaited, self.telemetry, enqueuer)
        self.operation_drain.acker = self._acker
        self.forwarder = Forwarder(store, announcer)
        self._acker.dead_lettered = self.forwarder.wake
        self._transactor = Transactor(store, self._pusher, self._acker)
        self.schedules = Schedules(store, tenant, self._transactor, self.compiled_specs, announcer, self.due)
        self.due.schedules = self.schedules
        self.sources = Sources(store, tenant, self._transactor, self.compiled_specs, self._check_transaction, announcer)
        self.route = Route(
            store,
            self.catalogue,
            self.flags,
            self._pusher,
            self._acker,
            enqueuer,
            announcer,
            journal,
            patience_seconds,
        )
        self.journal_drain: JournalDrain | None = None
        if journal is not None:
            self.journal_drain = JournalDrain(
                journal,
                self.route,
                store,
                enqueuer,
                self.operation_drain,
                self.flags,
                self.compiled_specs,
                tenant=tenant,
            )
        self._popper.route = self.route if journal is not None else None
        self._wide_popper = WidePopper(store, self.catalogue, self._popper, self.waiters)
        self.admission = Admission(store, self.route, self.scheduled, self.operation_drain, self.telemetry, limits)
        enqueuer.admission = self.admission
        self.intake = Intake(
            self.compiled_specs,
            self.priorities,
            self.scheduled,
            self.admission,
            self.route,
            self.operation_drain,
            self.telemetry,
        )
        self.results = Results(store, tenant, self.catalogue, self.waiters, self._awaited)
        self.inbox = Inbox(tenant, self.intake, self.results)
        self.queues = Queues(store, tenant, self.catalogue, self.forwarder, self.statistics, self.history)
        self.groups = Groups(store, tenant, self.catalogue, announcer, self.statistics)
        self.dead_letters = DeadLetters(
            store, tenant, self.catalogue, announcer, self.operation_drain, self.compiled_specs
        )
        self.browse = Browse(store, tenant)
        self.messages = Messages(store, tenant, self.intake, self.dead_letters, announcer)
        self.traces = Traces(store, tenant, self.catalogue)
        self.workers = Workers(store, tenant)
        self.effects = Effects(store, tenant)
        self.streams = Streams(store, tenant)
        self.hooks = Hooks(self.compiled_specs)
        self.status = Status(self)
        self.findings = Findings(self)
        self._stopped = False
        self._watch = CatalogueWatch(store, self.catalogue, self.compiled_specs)
        reseed = Reseed(store, announcer)
        self._services = [self.due, self.forwarder, self.operation_drain, reseed, self._watch]
        for service in self._services:
            service.start()
        store.listen(self._heard)

    def _heard(self, queue_id: int) -> None:
        """A hint of another broker."""
        if queue_id == CATALOGUE:
            self._watch.wake()
        else:
            self.waiters.wake(queue_id, 100)
            if queue_id in self._awaited.parked:
                self._awaited.wake(queue_id, len(self._awaited))

    def _applied_spec(self) -> None:
        self.catalogue.forget_all()
        self.store.hint(CATALOGUE)
        self.due.wake()
        if self.journal_drain is not None:
            self.journal_drain.save_soon()

    async def start(self) -> None:
        """Take up what an earlier process left in the journal; needed only with one."""
        if self.journal is None or self.journal_drain is None:
            return
        for queue in await self.journal.queues():
            self.catalogue.recollect(queue)
        if specs := await self.journal.specs():
            await self.compiled_specs.load(specs)
        try:
            async with asyncio.timeout(self.route.patience.seconds):
                await self.flags.look()
                await self.compiled_specs.reload()
        except (Unavailable, TimeoutError) as error:
            await self.route.is_there(str(error) or "it does not answer")
        self.journal_drain.start()

    def _check_running(self) -> None:
        if self._stopped:
            raise ShuttingDown("the broker is stopping")

    def announce(self, queue_id: int, lanes: int) -> None:
        """Lanes of a queue became ready by other ways than a push."""
        self._announcer.announce(queue_id, lanes)

    async def pause_pops(self, paused: bool) -> None:
        """Let pops answer that there is nothing, at every broker of the store within two seconds; or go on."""
        await self.flags.turn(POP_MAINTENANCE, paused)
        self.waiters.wake_all()  # parked polls end with an empty answer, or go on

    async def pause_pushes(self, paused: bool) -> None:
        """Keep pushes in the journals of all brokers; or store them. NotAvailable without a journal."""
        if self.journal is not None:
            await self.flags.turn(PUSH_MAINTENANCE, paused)
            self.route.news.set()
        elif paused:
            raise NotAvailable("pushes cannot wait: this broker has no journal for them")

    async def partition_names(
        self, partitions: Iterable[PartitionId]
    ) -> dict[PartitionId, tuple[str | None, str | None]]:
        """The names of each partition's queue and of the partition itself, as far as they are known."""
        catalogue, away = self.catalogue, not self.route.watch.up
        return {
            partition: catalogue.known_names(partition) if away else await catalogue.names(partition)
            for partition in dict.fromkeys(partitions)
        }

    async def wake(self, queue: str) -> None:
        """Let long polls of a queue look again: it may have messages."""
        known = await self.catalogue.queue(self.tenant, check_name("queue", queue), make=False)
        if known is not None:
            self.waiters.wake(known.id, len(self.waiters))

    def _check_transaction(self, tenant: str, steps: Sequence[Step]) -> None:
        self._check_running()
        self.route.check(tenant, steps)

    async def stop(self) -> None:
        """Take nothing new, end long polls with an empty answer, finish the rest."""
        self._stopped = True
        self.results.stop()
        await self.intake.stop()
        await self._popper.stop()
        await self.admission.stop()
        for service in self._services:
            await service.stop()
        if self.journal_drain is not None:
            await self.journal_drain.stop()
        await self.route.stop()
        await self.flags.stop()
        await self.retention.stop()

    @property
    def pending(self) -> int:
        """Requests handed over and not answered yet; parked polls are not among them."""
        return self.admission.pending + self._popper.pending
