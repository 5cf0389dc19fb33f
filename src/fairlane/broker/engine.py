"""The engine of a broker: the components that all tenants share, built once and in the order of their dependencies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fairlane.broker.ack import Acker
from fairlane.broker.ack_and_pop import AttachedAcker
from fairlane.broker.admission import PATIENT, Admission, Kind, Limit
from fairlane.broker.audit import KEEP_SECONDS, AuditLog
from fairlane.broker.capacity import QueueCapacity
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.compiled_specs import AllSpecs, CompiledSpecs
from fairlane.broker.credentials import Credentials
from fairlane.broker.deferral.drain import FAILED_SECONDS, OperationDrain
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.journal_drain import JournalDrain
from fairlane.broker.deferral.open_operations import OpenOperations
from fairlane.broker.deferral.store_timeout import STORE_TIMEOUT_SECONDS
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.fan_in_watch import FanInWatch
from fairlane.broker.flags import Flags
from fairlane.broker.intake import Intake
from fairlane.broker.leases import Leases
from fairlane.broker.peer_stats import PeerStats
from fairlane.broker.pop import Popper
from fairlane.broker.pop_any import AnyQueuePopper
from fairlane.broker.priority import Priorities
from fairlane.broker.push import Announcer, Pusher
from fairlane.broker.retention import RetentionService
from fairlane.broker.scheduled import Scheduler
from fairlane.broker.schedules import Ticks
from fairlane.broker.services.catalogue_watch import CatalogueWatch
from fairlane.broker.services.fan_in_callbacks import FanInCallbacks
from fairlane.broker.services.forwarder import Forwarder
from fairlane.broker.services.history_recorder import HistoryRecorder
from fairlane.broker.services.scheduler_loop import SchedulerLoop
from fairlane.broker.services.staged_mover import StagedMover
from fairlane.broker.services.wake_repair import WakeRepair
from fairlane.broker.staged_move import MoveParts
from fairlane.broker.statistics import Statistics
from fairlane.broker.tenants import TenantQuota, Tenants
from fairlane.broker.transact import Transactor
from fairlane.broker.unique import UniquePusher
from fairlane.broker.waiters import Waiters
from fairlane.config import SECRET_NAMES, named_variables
from fairlane.errors import Unavailable
from fairlane.model.limits import POLLS_MAX
from fairlane.model.names import check_name
from fairlane.outbound.addresses import NOTHING_INSIDE, Allowed
from fairlane.runtime.memory import ByteBudget
from fairlane.runtime.peer_processes import PeerProcesses
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store
from fairlane.store.families.queues import CATALOGUE
from fairlane.telemetry import Telemetry

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal

TENANTS_MAX = 1000
"""Largest number of tenants in memory, not counting those with specs."""


@dataclass(frozen=True)
class Engine:
    """The components of a broker. None of them is replaced after `build_engine`."""

    store: Store
    journal: Journal | None
    budget: ByteBudget
    """Bytes of requests and answers in flight. Unlimited unless a server sets a limit."""
    telemetry: Telemetry
    peer_stats: PeerStats
    flags: Flags
    tenants: Tenants
    all_specs: AllSpecs
    catalogue: Catalogue
    credentials: Credentials
    audit: AuditLog
    waiters: Waiters
    """Waiting pops."""
    result_waiters: Waiters
    """Callers that wait for the result of a message."""
    announcer: Announcer
    priorities: Priorities
    open_operations: OpenOperations
    operation_drain: OperationDrain
    pusher: Pusher
    acker: Acker
    attached_acker: AttachedAcker
    popper: Popper
    any_queue_popper: AnyQueuePopper
    scheduler: Scheduler
    scheduler_loop: SchedulerLoop
    ticks: Ticks
    transactor: Transactor
    forwarder: Forwarder
    write_router: WriteRouter
    admission: Admission
    journal_drain: JournalDrain | None
    catalogue_watch: CatalogueWatch
    retention_service: RetentionService
    statistics: Statistics
    """Statistics of all tenants together."""
    services: Sequence[Service]
    """Background services, in the order in which they stop."""
    scopes: dict[str, TenantScope] = field(default_factory=dict)

    def scope(self, tenant: str) -> TenantScope:
        """Return the scope of a tenant, which is created when first used."""
        found = self.scopes.get(tenant)
        if found is None:
            if len(self.scopes) > TENANTS_MAX:
                self._forget_scopes()
            found = self.scopes[tenant] = TenantScope(self, check_name("tenant", tenant))
        return found

    def _forget_scopes(self) -> None:
        """Drop the older half of the tenants without specs, except the tenant that opened the broker.

        A scope holds only caches of the store.
        """
        for tenant in list(self.scopes)[1 : TENANTS_MAX // 2]:
            if self.all_specs.forget(tenant):
                del self.scopes[tenant]

    def on_hint(self, queue_id: int) -> None:
        """Handle a hint of another broker: the catalogue changed, or a queue may have messages or results."""
        if queue_id == CATALOGUE:
            self.catalogue_watch.wake()
        else:
            self.waiters.wake(queue_id, 100)
            if queue_id in self.result_waiters.parked:
                self.result_waiters.wake(queue_id, len(self.result_waiters))

    def on_spec_applied(self) -> None:
        self.catalogue.forget_all()
        self.store.hint(CATALOGUE)
        self.scheduler_loop.wake()
        if self.journal_drain is not None:
            self.journal_drain.save_soon()

    async def start(self) -> None:
        """Load the keys and tenants, and drain entries that an earlier process left in the journal."""
        if self.journal is None or self.journal_drain is None:
            await self.credentials.reload()
            await self.tenants.reload()
            return
        if (keys := await self.journal.keys()) is not None:
            self.credentials.load(keys)
        self.catalogue.recollect(await self.journal.queues())
        await self.all_specs.load(await self.journal.specs())
        try:
            async with asyncio.timeout(self.write_router.timeout.seconds):
                await self.credentials.reload()
                await self.tenants.reload()
                await self.flags.refresh()
                await self.all_specs.reload()
        except (Unavailable, TimeoutError) as error:
            await self.write_router.check_store(str(error) or "it does not answer")
        self.journal_drain.start()

    @property
    def pending(self) -> int:
        """Return the number of unanswered requests, without waiting polls."""
        return self.admission.pending + self.popper.pending

    async def stop(self) -> None:
        """Accept nothing new, end long polls with an empty answer, and finish the rest."""
        self.admission.stop_accepting()
        self.result_waiters.end()
        for scope in list(self.scopes.values()):
            await scope.stop()
        await self.admission.stop_pushes()
        await self.statistics.stop()
        await self.popper.stop()
        await self.admission.stop()
        for service in self.services:
            await service.stop()
        if self.journal_drain is not None:
            await self.journal_drain.stop()
        await self.write_router.stop()
        await self.flags.stop()
        await self.retention_service.stop()

    async def close(self) -> None:
        await self.stop()
        await self.store.close()
        if self.journal is not None:
            await self.journal.close()


class TenantScope:
    """The components of one tenant: its quota, its compiled specs, its intake of pushes and its statistics."""

    def __init__(self, engine: Engine, tenant: str) -> None:
        self.engine = engine
        self.tenant = tenant
        self.compiled_specs: CompiledSpecs = engine.all_specs.of(tenant)
        self.quota = TenantQuota(engine.store, tenant, engine.tenants)
        self.intake = Intake(
            self.quota,
            engine.all_specs,
            self.compiled_specs,
            engine.priorities,
            engine.scheduler,
            UniquePusher(tenant, engine.transactor, engine.announcer, engine.write_router),
            engine.admission,
            engine.write_router,
            engine.open_operations,
            engine.telemetry,
        )
        self.statistics = Statistics(engine.store, tenant, engine.peer_stats)

    async def stop(self) -> None:
        await self.intake.stop()
        await self.statistics.stop()


def build_engine(
    store: Store,
    *,
    polls_max: int = POLLS_MAX,
    journal: Journal | None = None,
    limits: Mapping[Kind, Limit] = PATIENT,
    store_timeout_seconds: float = STORE_TIMEOUT_SECONDS,
    failed_operations_seconds: int = FAILED_SECONDS,
    audit_seconds: int = KEEP_SECONDS,
    allowed: Allowed = NOTHING_INSIDE,
    secret_names: str = SECRET_NAMES,
    peer_processes: PeerProcesses | None = None,
) -> Engine:
    """Build the components over a store, and start the background services.

    With a `journal`, await `start()` before the first call.
    """
    budget = ByteBudget()
    telemetry = Telemetry()
    peer_stats = PeerStats(telemetry, peer_processes)
    flags = Flags(store)
    tenants = Tenants(store, peer_stats)
    all_specs = AllSpecs(store, partial(named_variables, allowed=secret_names), allowed, tenants.work_limits)
    catalogue = Catalogue(store, tenants, all_specs.declared)
    credentials = Credentials(store, polls_max)
    waiters, result_waiters = Waiters(polls_max), Waiters(polls_max)
    announcer = Announcer(store, waiters, telemetry)
    forwarder = Forwarder(store, catalogue, announcer)
    leases = Leases(store)
    capacity = QueueCapacity()
    open_operations = OpenOperations()
    enqueuer = Enqueuer(store, catalogue, open_operations, capacity)
    pusher = Pusher(store, catalogue, announcer, enqueuer, capacity)
    fan_in_watch = FanInWatch()
    acker = Acker(store, catalogue, leases, waiters, result_waiters, telemetry, enqueuer, forwarder, fan_in_watch)
    drain = OperationDrain(store, catalogue, announcer, acker, open_operations, failed_operations_seconds)
    scheduler = Scheduler(store, pusher)
    transactor = Transactor(store, pusher, scheduler, acker, fan_in_watch)
    priorities = Priorities(store, catalogue)
    ticks = Ticks(store, transactor, all_specs, announcer)
    scheduler_loop = SchedulerLoop(store, announcer, ticks, telemetry, scheduler.news)
    router = WriteRouter(store, catalogue, flags, pusher, acker, enqueuer, announcer, journal, store_timeout_seconds)
    attached_acker = AttachedAcker(store, acker, router, telemetry)
    popper = Popper(
        store,
        catalogue,
        leases,
        waiters,
        telemetry=telemetry,
        flags=flags,
        budget=budget,
        acker=attached_acker,
        write_router=router if journal is not None else None,
    )
    catalogue_watch = CatalogueWatch(store, catalogue, tenants, all_specs, credentials, router.on_store_error)
    audit = AuditLog(store, audit_seconds)
    statistics = Statistics(store, None, peer_stats)
    history_recorder = HistoryRecorder(store, telemetry, statistics)
    wake_repair = WakeRepair(store, announcer)
    fan_ins = FanInCallbacks(store, fan_in_watch, transactor, all_specs, priorities, announcer)
    mover = StagedMover(MoveParts(store, catalogue, tenants, all_specs, priorities, pusher, scheduler), announcer)
    services = [mover, scheduler_loop, forwarder, fan_ins, drain, wake_repair, catalogue_watch, audit, history_recorder]
    engine = Engine(
        store=store,
        journal=journal,
        budget=budget,
        telemetry=telemetry,
        peer_stats=peer_stats,
        flags=flags,
        tenants=tenants,
        all_specs=all_specs,
        catalogue=catalogue,
        credentials=credentials,
        audit=audit,
        waiters=waiters,
        result_waiters=result_waiters,
        announcer=announcer,
        priorities=priorities,
        open_operations=open_operations,
        operation_drain=drain,
        pusher=pusher,
        acker=acker,
        attached_acker=attached_acker,
        popper=popper,
        any_queue_popper=AnyQueuePopper(store, catalogue, popper, waiters),
        scheduler=scheduler,
        scheduler_loop=scheduler_loop,
        ticks=ticks,
        transactor=transactor,
        forwarder=forwarder,
        write_router=router,
        admission=Admission(store, router, scheduler, open_operations, telemetry, limits),
        journal_drain=None
        if journal is None
        else JournalDrain(journal, router, store, enqueuer, open_operations, flags, all_specs, credentials),
        catalogue_watch=catalogue_watch,
        retention_service=RetentionService(store, telemetry),
        statistics=statistics,
        services=services,
    )
    for service in services:
        service.start()
    store.listen(engine.on_hint)
    return engine
