"""The machinery of a broker, which all tenants share: made and joined here, started and stopped in its order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from fairlane import server_extra as _extra  # noqa: F401
from fairlane.broker.ack import Acker
from fairlane.broker.admission import PATIENT, Admission, Kind, Limit
from fairlane.broker.audit import AuditLog
from fairlane.broker.capacity import Capacity
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.compiled_specs import AllSpecs
from fairlane.broker.credentials import Credentials
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.journal_drain import JournalDrain
from fairlane.broker.deferral.patience import PATIENCE_SECONDS
from fairlane.broker.deferral.route import Route
from fairlane.broker.flags import POP_MAINTENANCE, PUSH_MAINTENANCE, Flags
from fairlane.broker.leases import Leases
from fairlane.broker.pop import Popper
from fairlane.broker.priority import Priorities
from fairlane.broker.processes import Processes
from fairlane.broker.push import Announcer, Pusher
from fairlane.broker.retention import RetentionService
from fairlane.broker.scheduled import Scheduler
from fairlane.broker.schedules import Ticks
from fairlane.broker.services.catalogue_watch import CatalogueWatch
from fairlane.broker.services.due import DueService
from fairlane.broker.services.forwarder import Forwarder
from fairlane.broker.services.reseed import Reseed
from fairlane.broker.statistics import Statistics
from fairlane.broker.tenants import Tenants
from fairlane.broker.transact import Transactor
from fairlane.broker.waiters import Waiters
from fairlane.broker.wide_pop import WidePopper
from fairlane.config import SECRET_NAMES, named_variables
from fairlane.errors import NotAvailable, Unavailable
from fairlane.model.limits import POLLS_MAX
from fairlane.outbound.addresses import NOTHING_INSIDE, Allowed
from fairlane.runtime.memory import Budget
from fairlane.store.contract.store import Store
from fairlane.store.families.queues import CATALOGUE
from fairlane.telemetry import Telemetry

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal


class Machinery:
    """The parts of a broker that know no tenant, or all of them. `Parts` copies it for each tenant, so that nothing of
    it is assigned anew once it is made."""

    def __init__(
        self,
        store: Store,
        *,
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
        self.budget = Budget(sys.maxsize)
        """For those who ask over a network; whoever serves them says how much it is."""
        self.telemetry = Telemetry()
        self.processes = Processes(self.telemetry)
        self.all_statistics = Statistics(store, None, self.processes)
        self.flags = Flags(store)
        self.retention_service = RetentionService(store, self.telemetry)
        self.tenants = Tenants(store)
        self.catalogue = Catalogue(store, self.tenants)
        secrets = partial(named_variables, allowed=secret_names)
        self.all_specs = AllSpecs(store, secrets, allowed, self.tenants.allowances)
        self.catalogue.declared = self.all_specs.declared
        self.credentials = Credentials(store, polls_max)
        self.audit = AuditLog(store)
        self.waiters = Waiters(polls_max)
        self.announcer = announcer = Announcer(store, self.waiters, self.telemetry)
        leases = Leases(store)
        self.operation_drain = OperationDrain(store, self.catalogue, announcer)
        capacity = Capacity()
        enqueuer = Enqueuer(store, self.catalogue, self.operation_drain, capacity)
        self._pusher = Pusher(store, self.catalogue, announcer, enqueuer, capacity)
        self.due = DueService(store, announcer)
        self.priorities = Priorities(store, self.catalogue)
        self._scheduler = Scheduler(store, self._pusher, self.due)
        self._popper = Popper(
            store,
            self.catalogue,
            leases,
            self.waiters,
            telemetry=self.telemetry,
            flags=self.flags,
            budget=self.budget,
        )
        self.awaited = Waiters(polls_max)
        self._acker = Acker(store, self.catalogue, leases, self.waiters, self.awaited, self.telemetry, enqueuer)
        self.operation_drain.acker = self._acker
        self.forwarder = Forwarder(store, self.catalogue, announcer)
        self._acker.dead_lettered = self.forwarder.wake
        self.transactor = Transactor(store, self._pusher, self._acker)
        self.ticks = self.due.ticks = Ticks(store, self.transactor, self.all_specs, announcer)
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
                self.all_specs,
                self.credentials,
            )
        self._popper.route = self.route if journal is not None else None
        self._wide_popper = WidePopper(store, self.catalogue, self._popper, self.waiters)
        self.admission = Admission(store, self.route, self._scheduler, self.operation_drain, self.telemetry, limits)
        enqueuer.admission = self.route.admission = self.admission
        self._watch = CatalogueWatch(
            store, self.catalogue, self.tenants, self.all_specs, self.credentials, self.route.met
        )
        reseed = Reseed(store, announcer)
        self._services = [self.due, self.forwarder, self.operation_drain, reseed, self._watch, self.audit]
        for service in self._services:
            service.start()
        store.listen(self._heard)

    def _heard(self, queue_id: int) -> None:
        """A hint of another broker."""
        if queue_id == CATALOGUE:
            self._watch.wake()
        else:
            self.waiters.wake(queue_id, 100)
            if queue_id in self.awaited.parked:
                self.awaited.wake(queue_id, len(self.awaited))

    def applied_spec(self) -> None:
        self.catalogue.forget_all()
        self.store.hint(CATALOGUE)
        self.due.wake()
        if self.journal_drain is not None:
            self.journal_drain.save_soon()

    async def start(self) -> None:
        """Know the keys, and take up what an earlier process left in the journal."""
        if self.journal is None or self.journal_drain is None:
            await self.credentials.reload()
            await self.tenants.reload()
            return
        if (keys := await self.journal.keys()) is not None:
            self.credentials.load(keys)
        self.catalogue.recollect(await self.journal.queues())
        await self.all_specs.load(await self.journal.specs())
        try:
            async with asyncio.timeout(self.route.patience.seconds):
                await self.credentials.reload()
                await self.tenants.reload()
                await self.flags.look()
                await self.all_specs.reload()
        except (Unavailable, TimeoutError) as error:
            await self.route.is_there(str(error) or "it does not answer")
        self.journal_drain.start()

    async def pause_pops(self, paused: bool) -> None:
        """Let pops of all tenants answer that there is nothing, at every broker of the store within two seconds; or go
        on."""
        await self.flags.turn(POP_MAINTENANCE, paused)
        self.waiters.wake_all()  # parked polls end with an empty answer, or go on

    async def pause_pushes(self, paused: bool) -> None:
        """Keep pushes of all tenants in the journals of all brokers; or store them. NotAvailable without a journal."""
        if self.journal is not None:
            await self.flags.turn(PUSH_MAINTENANCE, paused)
            self.route.news.set()
        elif paused:
            raise NotAvailable("pushes cannot wait: this broker has no journal for them")

    async def stop(self) -> None:
        """Finish what was taken, when nothing new is."""
        await self.admission.stop_pushes()
        await self.all_statistics.stop()
        await self._popper.stop()
        await self.admission.stop()
        for service in self._services:
            await service.stop()
        if self.journal_drain is not None:
            await self.journal_drain.stop()
        await self.route.stop()
        await self.flags.stop()
        await self.retention_service.stop()

    @property
    def pending(self) -> int:
        """Requests handed over and not answered yet; parked polls are not among them."""
        return self.admission.pending + self._popper.pending
