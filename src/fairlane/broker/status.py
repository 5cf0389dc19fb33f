"""Status of a broker: health, journal, pending requests and latencies."""

from __future__ import annotations

import os
from typing import Any

from fairlane.broker.cells import missing_cells
from fairlane.broker.resource import Resource
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_TENANT
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.process import cpu_seconds, resident_bytes
from fairlane.store.contract.journal import Entry
from fairlane.store.contract.operations import FIRST
from fairlane.wire import status as wire
from fairlane.wire.operations import DrainBacklog, OperationCounts, OperationStats, SystemHealth

_HEALTH_SECONDS = 2.0
_BACKLOGS_SHOWN = 100


class Status(Resource):
    async def healthy(self) -> bool:
        """Return True if the store commits a write in reasonable time. All callers within a second share one."""
        write_router = self._engine.write_router
        return await write_router.health.healthy(_HEALTH_SECONDS, journalled=write_router.journal is not None)

    def cell_health(self) -> dict[int, str]:
        """Return the reason why each cell does not answer. The reason is empty if it answers."""
        return self._store.cell_health()

    def missing_cells(self) -> dict[int, str]:
        """Return the cells that do not answer, with the reasons. Lists and totals leave out their queues."""
        return missing_cells(self._store)

    def uptime_seconds(self) -> float:
        return max(0.001, (wall_clock() - self._engine.telemetry.started_at) / 1e6)

    @property
    def started_at(self) -> Moment:
        return Moment(self._engine.telemetry.started_at)

    @property
    def store_kind(self) -> str:
        return self._store.kind

    async def store_report(self) -> dict[str, Any]:
        """Return facts about the database."""
        return {"timestamp": Moment(await self._store.now()), **await self._store.report()}

    def parked(self) -> dict[int, int]:
        """Return the number of waiting long polls, by the id of their queue."""
        return self._engine.waiters.counts()

    def drained(self) -> tuple[float, int, int]:
        """Return the recent rate of applied operations, and the numbers applied and failed since the start."""
        drain = self._engine.operation_drain
        return self._engine.open_operations.rate.per_second, drain.completed, drain.failed

    def outages(self) -> int | None:
        """Return the number of outages of the store. None without a journal, which detects them."""
        return None if self._engine.journal is None else self._engine.write_router.health.outages

    def drains_journal(self) -> bool:
        """Return True if this process drains the journal. Only one of several processes does."""
        return self._engine.journal is not None and self._engine.journal.drains()

    def connections(self) -> wire.Connections:
        total, busy = self._store.connections()
        return wire.Connections(total=total, busy=busy)

    async def now(self) -> int:
        """Return the time of the store, in microseconds."""
        return await self._store.now()

    @property
    def pending(self) -> int:
        """Return the number of unanswered requests, without waiting polls."""
        return self._engine.pending

    def engine(self) -> wire.EngineStatus:
        """Return counts and latencies of each verb, connections and pending requests."""
        engine, verbs = self._engine, self._engine.telemetry.verbs
        return wire.EngineStatus(
            connections=self.connections(),
            queue=wire.RequestCounts(
                pending=engine.pending,
                completed=sum(verb.count for verb in verbs.values()),
                parked=len(engine.waiters),
            ),
            operations={
                kind: wire.VerbStatus(
                    count=verb.count,
                    avg_ms=round(verb.mean_ms(), 3),
                    p50_ms=verb.percentile_ms(0.5),
                    p99_ms=verb.percentile_ms(0.99),
                    items=verb.items,
                    errors=verb.errors,
                )
                for kind, verb in verbs.items()
            },
            admission=wire.AdmissionStatus(
                kinds={
                    kind: wire.AdmissionKind(
                        wait_seconds=round(engine.admission.wait_seconds(kind), 4),
                        wait_seconds_max=limit.wait_seconds,
                        operations_max=limit.operations,
                        decisions={str(way): count for way, count in engine.admission.decisions.get(kind, {}).items()},
                    )
                    for kind, limit in engine.admission.limits.items()
                }
            ),
            uptime_seconds=self.uptime_seconds(),
        )

    async def operation_stats(self) -> OperationStats:
        """Return operations by kind and status, and the deepest lanes."""
        store, tenant = self._store, self._tenant
        counts = await store.operations.counts(tenant)
        total, busy = store.connections()
        health = SystemHealth(
            pool_utilization=round(busy / max(1, total), 4),
            pool_waiting=self._engine.pending,
            queue_depth=await store.operations.depth(),
        )
        stats = [
            OperationCounts(
                operation_type=one.type,
                priority=one.priority,
                status=one.status,
                count=one.count,
                oldest=Moment(one.oldest),
                newest=Moment(one.newest),
                avg_latency_seconds=one.latency_seconds,
            )
            for one in sorted(counts, key=lambda one: (one.priority, one.type, one.status))
        ]
        lanes = [
            DrainBacklog(
                queue=one.queue,
                partition=one.partition,
                consumer_group=one.group or None,
                depth=one.open,
                moved_at=Moment(one.moved_at),
            )
            for one in await store.operations.backlogs(tenant, limit=_BACKLOGS_SHOWN)
        ]
        return OperationStats(stats=stats, system_health=health, lanes=lanes)

    async def operations(self, *, stuck_seconds: int) -> tuple[int, int, int]:
        """Return the numbers of pending operations, failed operations, and lanes that have not advanced."""
        store, tenant, stuck = self._store, self._tenant, 0
        depth = await store.operations.depth()
        if depth:
            before = await store.now() - stuck_seconds * 1_000_000
            backlogs = await store.operations.backlogs(tenant, limit=10_000)
            stuck = sum(backlog.moved_at < before for backlog in backlogs)
        return depth, await store.operations.failed(tenant), stuck

    def journal(self) -> wire.JournalStatus | None:
        """Return the state of the journal. None without one, and for tenants other than the default."""
        write_router = self._engine.write_router
        if write_router.journal is None or self._tenant != DEFAULT_TENANT:
            return None
        state, health = write_router.journal.state(), write_router.health
        return wire.JournalStatus(
            store_up=health.up,
            why_not=health.last_error() if state.entries or not health.up else None,
            away_seconds=0.0 if health.up else round(health.unavailable_seconds(), 3),
            entries=state.entries,
            messages=state.messages,
            lanes=state.backlogs,
            bytes=state.bytes,
            bytes_max=state.bytes_max,
            failed=state.failed,
            oldest_seconds=None if state.oldest_at is None else max(0.0, (wall_clock() - state.oldest_at) / 1e6),
            drain_rate=round(write_router.rate.per_second, 1),
            acks_lost=self._engine.operation_drain.acks_lost,
        )

    async def journal_report(self) -> wire.JournalReport:
        """Return the journal of this process, with its failed entries."""
        healthy, status, journal = await self.healthy(), self.journal(), self._engine.journal
        if status is None or journal is None:
            return wire.JournalReport(db_healthy=healthy, worker=os.getpid())
        return wire.JournalReport(
            pending=status.messages,
            failed=status.failed,
            db_healthy=healthy,
            worker=os.getpid(),
            journal=status,
            failed_entries=[_failed(one) for one in await journal.page(FIRST, failed=True, limit=100)],
        )

    def metrics(self) -> wire.Metrics:
        engine = self.engine()
        uptime, completed, connections = engine.uptime_seconds, engine.queue.completed, engine.connections
        messages = sum(operation.items for operation in engine.operations.values())
        user, system = cpu_seconds()
        return wire.Metrics(
            uptime=uptime,
            requests=wire.Rate(total=completed, rate=completed / uptime),
            messages=wire.Rate(total=messages, rate=messages / uptime),
            database=wire.Pool(
                pool_size=connections.total,
                idle_connections=connections.total - connections.busy,
                waiting_requests=engine.queue.pending,
            ),
            memory=wire.Memory(rss=resident_bytes()),
            cpu=wire.Cpu(user=user, system=system),
            engine=engine,
        )


def _failed(entry: Entry) -> wire.FailedEntry:
    kind, _, name, partition = entry.backlog
    return wire.FailedEntry(
        id=str(entry.id),
        kind=kind,
        queue=name if kind == "push" else None,
        consumer_group=name if kind == "ack" else None,
        partition=partition,
        messages=entry.messages,
        error=entry.error or "",
        accepted_at=Moment(entry.created_at),
    )
