"""Series for Queen's dashboard: the counts of this broker, minute by minute, since it started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlane.broker.broker import Broker
from fairlane.broker.statistics import Bucket, Span
from fairlane.counts import QueueCounts
from fairlane.http.router import Routes
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.principal import ANYBODY, Principal
from fairlane.queen.wire import answers as wire
from fairlane.queen.wire.answers import Page, page
from fairlane.wire.queues import camel
from fairlane.wire.retention import WentAt
from fairlane.wire.status import SpanQuery

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("analytics")
_ANALYTICS = "/api/v1/analytics"
_SUMMED = [f"{kind}_{what}" for what in ("messages", "requests") for kind in ("push", "pop", "ack")]
_SUMMED += ["transactions", "db_errors"]


@routes.get(f"{_ANALYTICS}/system-metrics", needs="status", operator=True)
async def system_metrics(app: HttpApp, broker: Broker, query: wire.ReplicaQuery) -> Page:
    """Show CPU, memory and connections over time."""
    span = await broker.queues.statistics.span(query)
    total, busy = broker.status.connections().total, broker.status.connections().busy
    points: list[dict[str, Any]] = [
        {
            "timestamp": Moment(each.at),
            "sampleCount": each.seconds // 60,
            "metrics": {
                "cpu": {"user_us": _only(each.cpu_seconds[0] * 1e6), "system_us": _only(each.cpu_seconds[1] * 1e6)},
                "memory": {"rss_bytes": _only(each.resident_bytes)},
                "database": {"pool_size": _only(total), "pool_active": _only(busy), "pool_idle": _only(total - busy)},
            },
        }
        for each in await broker.queues.statistics.series(span)
    ]
    return page(
        time_range=span.shown(),
        replicas=[page(hostname=app.hostname, worker_id=app.worker_id, time_series=points)],
        replica_count=1,
        bucket_minutes=span.width_minutes,
        point_count=len(points),
    )


def _only(value: float) -> dict[str, float]:
    """Return a value that was measured once in its bucket."""
    return dict.fromkeys(("avg", "min", "max", "last"), value)


def worker(app: HttpApp) -> Page:
    telemetry = app.broker.process.telemetry
    return page(
        hostname=app.hostname,
        worker_id=app.worker_id,
        db_connections=app.broker.status.connections().total,
        job_queue_size=app.broker.status.pending,
        messages_processed=telemetry.push.items + telemetry.pop.items + telemetry.ack.items,
    )


@routes.get(f"{_ANALYTICS}/worker-metrics", needs="status", operator=True)
async def worker_metrics(app: HttpApp, broker: Broker, query: wire.ReplicaQuery) -> Page:
    """Show the throughput over time."""
    span, series, names = await _requested(broker, query)
    points = [_worker_point(each) for each in series]
    by_queue: dict[int, QueueCounts] = {}
    for bucket in series:
        for id, counts in bucket.queues.items():
            by_queue.setdefault(id, QueueCounts()).add(counts)
    return page(
        time_range=span.shown(),
        bucket_minutes=span.width_minutes,
        point_count=len(points),
        time_series=points,
        workers=[worker(app)],
        queues=[_lag(names[id], counts) for id, counts in by_queue.items() if id in names],
        summary=page(**{f"total_{name}": sum(point[camel(name)] for point in points) for name in _SUMMED}),
    )


async def _requested(
    broker: Broker, query: SpanQuery, caller: Principal = ANYBODY
) -> tuple[Span, list[Bucket], dict[int, str]]:
    """Return the requested span, its buckets, and the names of the matching queues that the caller may see."""
    span = await broker.queues.statistics.span(query)
    queues = [queue for queue, _ in await broker.queues.statistics.queues(query)]
    names = {queue.id: queue.name for queue in queues if caller.allows("status", queue.name)}
    return span, await broker.queues.statistics.series(span), names


def _worker_point(bucket: Bucket) -> Page:
    push, pop, ack = (bucket.verbs[kind] for kind in ("push", "pop", "ack"))
    total = bucket.total()
    return page(
        timestamp=Moment(bucket.at),
        push_requests=push.calls,
        push_messages=push.items,
        pop_requests=pop.calls,
        pop_messages=pop.items,
        ack_requests=ack.calls,
        ack_messages=ack.items,
        transactions=bucket.verbs["transaction"].calls,
        push_per_second=push.items / bucket.seconds,
        pop_per_second=pop.items / bucket.seconds,
        ack_per_second=ack.items / bucket.seconds,
        avg_lag_ms=total.mean_lag_ms(),
        max_lag_ms=total.lag_max_ms,
        db_errors=bucket.errors(),
    )


def _lag(name: str, counts: QueueCounts, at: int | None = None) -> Page:
    return page(
        queue_name=name,
        pop_count=counts.pops,
        avg_lag_ms=counts.mean_lag_ms(),
        max_lag_ms=counts.lag_max_ms,
        bucket_time=moment_or_none(at),
    )


@routes.get(f"{_ANALYTICS}/queue-lag", needs="status", each=True)
async def queue_lag(broker: Broker, caller: Principal, query: SpanQuery) -> list[Page]:
    """Show the age of messages when they were popped, by queue."""
    _, series, names = await _requested(broker, query, caller)
    return [_lag(names[id], found, one.at) for one in series for id, found in one.queues.items() if id in names]


@routes.get(f"{_ANALYTICS}/queue-ops", needs="status", each=True)
async def queue_ops(broker: Broker, caller: Principal, query: SpanQuery) -> Page:
    """Show pushes, pops and acks over time, by queue."""
    span, series, names = await _requested(broker, query, caller)
    points = [_ops(names[id], found, one) for one in series for id, found in one.queues.items() if id in names]
    return page(
        time_range=span.shown(),
        bucket_minutes=span.width_minutes,
        series=points,
        queues=sorted({point["queueName"] for point in points}),
    )


def _ops(name: str, counts: QueueCounts, bucket: Bucket) -> Page:
    return page(
        bucket=Moment(bucket.at),
        queue_name=name,
        push_requests=counts.pushes,
        push_messages=counts.pushed,
        pop_messages=counts.popped,
        pop_empty=counts.pops_empty,
        ack_success=counts.acks - counts.failed,
        ack_failed=counts.failed,
        dead_letters=counts.dead,
        avg_lag_ms=counts.mean_lag_ms(),
        max_lag_ms=counts.lag_max_ms,
        push_per_second=counts.pushed / bucket.seconds,
        pop_per_second=counts.popped / bucket.seconds,
        ack_per_second=counts.acks / bucket.seconds,
        empty_per_second=counts.pops_empty / bucket.seconds,
    )


@routes.get(f"{_ANALYTICS}/queue-parked-replicas", needs="status", each=True)
async def parked_replicas(app: HttpApp, broker: Broker, caller: Principal, query: SpanQuery) -> Page:
    """Show the waiting long polls, by queue."""
    span, _, names = await _requested(broker, query, caller)
    now = (await broker.queues.statistics.span(SpanQuery())).until
    return page(
        time_range=span.shown(),
        bucket_minutes=span.width_minutes,
        series=[
            page(
                bucket=Moment(now),
                queue_name=names[id],
                hostname=app.hostname,
                worker_id=app.worker_id,
                parked_count=count,
            )
            for id, count in broker.status.parked().items()
            if id in names
        ],
        replicas=[page(hostname=app.hostname, worker_id=app.worker_id)],
    )


@routes.get(f"{_ANALYTICS}/retention", needs="status", each=True)
async def retention(broker: Broker, caller: Principal, query: SpanQuery) -> Page:
    """Show messages deleted by retention rules."""
    found = await broker.retention.history(query, hours=1)
    went = [one for one in found.history if caller.allows("status", one.queue)]
    span = Span(found.time_range.since, found.time_range.until)
    width = span.width_minutes * 60_000_000
    points: dict[int, list[WentAt]] = {}
    for one in went:
        points.setdefault(one.at // width * width, []).append(one)
    return page(
        time_range=found.time_range,
        bucket_minutes=span.width_minutes,
        series=[page(bucket=Moment(at), **_sums(points[at])) for at in sorted(points)],
        totals=page(**_sums(went)),
    )


def _sums(went: list[WentAt]) -> dict[str, Any]:
    by_age = [one.messages for one in went if one.rule == "retention"]
    completed = [one.messages for one in went if one.rule == "completed"]
    return {
        "retention_msgs": sum(by_age),
        "completed_retention_msgs": sum(completed),
        "eviction_msgs": 0,
        "total_msgs": sum(by_age) + sum(completed),
        "event_count": len(by_age) + len(completed),
    }


@routes.get(f"{_ANALYTICS}/postgres-stats", needs="status", live=True, operator=True)
async def store_report(broker: Broker) -> dict[str, Any]:
    """Show what the database reports about itself."""
    return await broker.status.store_report()
