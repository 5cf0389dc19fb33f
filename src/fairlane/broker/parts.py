"""The parts of a broker that a tenant sees, over machinery that all tenants share."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import partial
from typing import Any, Final, Self

from fairlane.broker.admission import Intake
from fairlane.broker.browse import Browse
from fairlane.broker.dead_letters import DeadLetters
from fairlane.broker.deferral.failed import Operations
from fairlane.broker.effects import Effects
from fairlane.broker.findings import Findings
from fairlane.broker.groups import Groups
from fairlane.broker.history import History
from fairlane.broker.hooks import Hooks
from fairlane.broker.inbox import Inbox
from fairlane.broker.keys import Keys
from fairlane.broker.machinery import Machinery
from fairlane.broker.messages import Messages
from fairlane.broker.pauses import Pauses
from fairlane.broker.queues import Queues
from fairlane.broker.results import Results
from fairlane.broker.retention import Retention
from fairlane.broker.scheduled import ScheduledMessages
from fairlane.broker.schedules import Schedules
from fairlane.broker.sources import Sources
from fairlane.broker.specs import Specs
from fairlane.broker.statistics import Statistics
from fairlane.broker.status import Status
from fairlane.broker.streams import Streams
from fairlane.broker.tenants import Room
from fairlane.broker.traces import Traces
from fairlane.broker.workers import Workers
from fairlane.model.ids import PartitionId
from fairlane.model.names import DEFAULT_TENANT, check_name
from fairlane.store.contract.store import Store

TENANTS_MAX: Final = 1000
"""Tenants that are in memory at once, besides those with specs."""


class Parts(Machinery):
    """The parts of a broker over one store, as one tenant sees it."""

    def __init__(self, store: Store, *, tenant: str = DEFAULT_TENANT, **options: Any) -> None:
        """The options are those of `Machinery`."""
        super().__init__(store, **options)
        self._by_tenant: dict[str, Any] = {tenant: self}
        self._make(tenant)

    def of(self, tenant: str) -> Self:
        """This broker under another tenant: the same machinery, of which one is stopped and closed with all."""
        found: Self | None = self._by_tenant.get(tenant)
        if found is None:
            if len(self._by_tenant) > TENANTS_MAX:
                self._forget_some()
            found = copy(self)
            found._make(check_name("tenant", tenant))
            self._by_tenant[tenant] = found
        return found

    def _forget_some(self) -> None:
        """Drop the older half of the tenants without specs; all that they had is memory of the store. The first is that
        of who opened the broker."""
        for tenant in list(self._by_tenant)[1 : TENANTS_MAX // 2]:
            if self.all_specs.forget(tenant):
                del self._by_tenant[tenant]

    def _make(self, tenant: str) -> None:
        store = self.store
        self.tenant = tenant
        self.known_names = partial(self.catalogue.known_names, tenant)
        self.compiled_specs = specs = self.all_specs.of(tenant)
        self.room = Room(store, tenant, self.tenants)
        self.intake = Intake(
            self.room,
            self.all_specs,
            specs,
            self.priorities,
            self._scheduler,
            self.admission,
            self.route,
            self.operation_drain,
            self.telemetry,
        )
        self.statistics = Statistics(store, tenant, self.processes)
        self.retention = Retention(self)
        self.history = History(self)
        self.specs = Specs(self)
        self.pauses = Pauses(self)
        self.operations = Operations(self)
        self.scheduled = ScheduledMessages(self)
        self.schedules = Schedules(self)
        self.sources = Sources(self)
        self.results = Results(self)
        self.inbox = Inbox(self)
        self.queues = Queues(self)
        self.groups = Groups(self)
        self.dead_letters = DeadLetters(self)
        self.browse = Browse(self)
        self.messages = Messages(self)
        self.traces = Traces(self)
        self.workers = Workers(self)
        self.effects = Effects(self)
        self.streams = Streams(self)
        self.hooks = Hooks(self)
        self.keys = Keys(store, tenant, self.credentials, self.room)
        self.status = Status(self)
        self.findings = Findings(self)

    async def partition_names(
        self, partitions: Iterable[PartitionId]
    ) -> dict[PartitionId, tuple[str | None, str | None]]:
        """The names of each partition's queue and of the partition itself, as far as they are known."""
        catalogue, away = self.catalogue, not self.route.watch.up
        return {
            partition: self.known_names(partition) if away else await catalogue.names(self.tenant, partition)
            for partition in dict.fromkeys(partitions)
        }

    async def wake(self, queue: str) -> None:
        """Let long polls of a queue look again: it may have messages."""
        known = await self.catalogue.queue(self.tenant, check_name("queue", queue), make=False)
        if known is not None:
            self.waiters.wake(known.id, len(self.waiters))

    async def stop(self) -> None:
        """Take nothing new, end long polls with an empty answer, finish the rest."""
        self.admission.stopped = True
        self.awaited.end()
        for one in list(self._by_tenant.values()):
            await one.intake.stop()
            await one.statistics.stop()
        await super().stop()
