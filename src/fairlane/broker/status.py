"""Status of a broker: its health, its journal, what waits, and how long verbs take."""

from __future__ import annotations

import os
from typing import Any

from fairlane.broker.part import Part
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_TENANT
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.process import cpu_seconds, resident_bytes
from fairlane.store.contract.journal import Entry
from fairlane.store.contract.operations import FIRST
from fairlane.wire import status as wire
from fairlane.wire.base import made
from fairlane.wire.operations import Backlog, OperationCounts, OperationStats, SystemHealth

_HEALTH_SECONDS = 2.0
_BACKLOGS_SHOWN = 100


class Status(Part):
    async def healthy(self) -> bool:
        """Return True if the store commits a write in reasonable time. All callers within a second share one."""
        route = self._broker.route
        return await route.watch.healthy(_HEALTH_SECONDS, journalled=route.journal is not None)

    def uptime_seconds(self) -> float:
        return max(0.001, (wall_clock() - self._broker.telemetry.started_at) / 1e6)

    @property
    def started_at(self) -> Moment:
        return Moment(self._broker.telemetry.started_at)

    @property
    def store_kind(self) -> str:
        return self._store.kind

    async def store_report(self) -> dict[str, Any]:
        """What the database says of itself."""
        return {"timestamp": Moment(await self._store.now()), **await self._store.report()}

    def parked(self) -> dict[int, int]:
        """Long polls that wait until there is something, by the id of their queue."""
        return self._broker.waiters.counts()

    def drained(self) -> tuple[float, int, int]:
        """Operations: applied a second lately, applied since the start, given up on since the start."""
        drain = self._broker.operation_drain
        return drain.rate.a_second, drain.completed, drain.failed

    def outages(self) -> int | None:
        """How often the store went away; None without a journal, which alone notices."""
        return None if self._broker.journal is None else self._broker.route.watch.outages

    def drains_journal(self) -> bool:
        """Whether this process drains the journal; of several that share one, one does."""
        return self._broker.journal is not None and self._broker.journal.drains()

    def connections(self) -> wire.Connections:
        total, busy = self._store.connections()
        return wire.Connections(total=total, busy=busy)

    def engine(self) -> wire.EngineStatus:
        """Counts and latencies of each verb, connections, what waits."""
        broker, verbs = self._broker, self._broker.telemetry.verbs
        return wire.EngineStatus(
            connections=self.connections(),
            queue=wire.RequestCounts(
                pending=broker.pending,
                completed=sum(verb.count for verb in verbs.values()),
                parked=len(broker.waiters),
            ),
            operations={
                kind: made(
                    wire.VerbStatus,
                    verb,
                    avg_ms=round(verb.mean_ms(), 3),
                    p50_ms=verb.percentile_ms(0.5),
                    p99_ms=verb.percentile_ms(0.99),
                )
                for kind, verb in verbs.items()
            },
            admission=wire.AdmissionStatus(
                kinds={
                    kind: wire.AdmissionKind(
                        wait_seconds=round(broker.admission.wait_seconds(kind), 4),
                        wait_seconds_max=limit.wait_seconds,
                        operations_max=limit.operations,
                        decisions={str(way): count for way, count in broker.admission.decisions.get(kind, {}).items()},
                    )
                    for kind, limit in broker.admission.limits.items()
                }
            ),
            uptime_seconds=self.uptime_seconds(),
        )

    async def operation_stats(self) -> OperationStats:
        """Operations by kind and status, and the deepest lanes."""
        store, tenant = self._store, self._tenant
        counts = await store.operations.counts(tenant)
        total, busy = store.connections()
        health = SystemHealth(
            pool_utilization=round(busy / max(1, total), 4),
            pool_waiting=self._broker.pending,
            queue_depth=await store.operations.depth(),
        )
        stats = [
            made(OperationCounts, one, operation_type=one.type, avg_latency_seconds=one.latency_seconds)
            for one in sorted(counts, key=lambda one: (one.priority, one.type, one.status))
        ]
        lanes = [
            made(Backlog, one, consumer_group=one.group or None, depth=one.open)
            for one in await store.operations.backlogs(tenant, limit=_BACKLOGS_SHOWN)
        ]
        return OperationStats(stats=stats, system_health=health, lanes=lanes)

    async def operations(self, *, stuck_seconds: int) -> tuple[int, int, int]:
        """How many operations are not applied yet, how many failed, and how many lanes of them have not moved."""
        store, tenant, stuck = self._store, self._tenant, 0
        depth = await store.operations.depth()
        if depth:
            before = await store.now() - stuck_seconds * 1_000_000
            backlogs = await store.operations.backlogs(tenant, limit=10_000)
            stuck = sum(backlog.moved_at < before for backlog in backlogs)
        return depth, await store.operations.failed(tenant), stuck

    def journal(self) -> wire.JournalStatus | None:
        """None if this broker has no journal, and for who does not run it: there is one for all tenants."""
        route = self._broker.route
        if route.journal is None or self._tenant != DEFAULT_TENANT:
            return None
        state, watch = route.journal.state(), route.watch
        return made(
            wire.JournalStatus,
            state,
            store_up=watch.up,
            why_not=None if watch.up else watch.why,
            away_seconds=0.0 if watch.up else round(watch.away_seconds(), 3),
            lanes=state.backlogs,
            oldest_seconds=None if state.oldest_at is None else max(0.0, (wall_clock() - state.oldest_at) / 1e6),
            drain_rate=round(route.rate.a_second, 1),
            acks_lost=self._broker.operation_drain.acks_lost,
        )

    async def journal_report(self) -> wire.JournalReport:
        """The journal of this process, and the entries that failed in it."""
        healthy, status, journal = await self.healthy(), self.journal(), self._broker.journal
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
    return made(
        wire.FailedEntry,
        entry,
        kind=kind,
        queue=name if kind == "push" else None,
        consumer_group=name if kind == "ack" else None,
        partition=partition,
        error=entry.error or "",
        accepted_at=Moment(entry.created_at),
    )
