"""Series for dashboards: what this broker counted, minute by minute, since it started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlane.http.decode import read
from fairlane.http.router import Route
from fairlane.http.routes.status import chosen, range_out, span_of, worker
from fairlane.http.series import Bucket, add_counts, buckets, mean_lag_ms
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_analytics import (
    ParkedPoint,
    ParkedReplicas,
    QueueLag,
    QueueOps,
    QueueOpsPoint,
    Replica,
    ReplicaName,
    ReplicaQuery,
    Retention,
    RetentionPoint,
    RetentionTotals,
    SystemMetrics,
    WorkerMetrics,
    WorkerPoint,
    WorkerSummary,
)
from fairlane.http.wire_status import SpanQuery
from fairlane.model.moment import timestamp
from fairlane.model.retention import Retained
from fairlane.telemetry import QueueCounts

if TYPE_CHECKING:
    from fairlane.http.app import App


async def system_metrics(app: App, request: Request) -> Response:
    span = await span_of(app, read(request.query, ReplicaQuery))
    series = buckets(app.broker.telemetry.minutes(*span), span)
    total, busy = app.broker.store.connections()
    points = [
        {
            "timestamp": timestamp(each.at),
            "sampleCount": each.seconds // 60,
            "metrics": {
                "cpu": {"user_us": _only(each.cpu_seconds[0] * 1e6), "system_us": _only(each.cpu_seconds[1] * 1e6)},
                "memory": {"rss_bytes": _only(each.resident_bytes)},
                "database": {"pool_size": _only(total), "pool_active": _only(busy), "pool_idle": _only(total - busy)},
            },
        }
        for each in series
    ]
    answer = SystemMetrics(
        time_range=range_out(span),
        replicas=[Replica(hostname=app.hostname, worker_id=app.worker_id, time_series=points)],
        replica_count=1,
        bucket_minutes=span.width_minutes,
        point_count=len(points),
    )
    return json_response(answer)


def _only(value: float) -> dict[str, float]:
    """A value measured once in its bucket."""
    return {"avg": value, "min": value, "max": value, "last": value}


async def worker_metrics(app: App, request: Request) -> Response:
    query = read(request.query, ReplicaQuery)
    span = await span_of(app, query)
    series = buckets(app.broker.telemetry.minutes(*span), span)
    names = {queue.id: queue.name for queue, _ in await chosen(app, query)}
    points = [_worker_point(each) for each in series]
    answer = WorkerMetrics(
        time_range=range_out(span),
        bucket_minutes=span.width_minutes,
        point_count=len(points),
        time_series=points,
        workers=[worker(app)],
        queues=[_lag(names[id], counts) for id, counts in _by_queue(series).items() if id in names],
        summary=WorkerSummary(
            total_push_messages=sum(point.push_messages for point in points),
            total_pop_messages=sum(point.pop_messages for point in points),
            total_ack_messages=sum(point.ack_messages for point in points),
            total_push_requests=sum(point.push_requests for point in points),
            total_pop_requests=sum(point.pop_requests for point in points),
            total_ack_requests=sum(point.ack_requests for point in points),
            total_transactions=sum(point.transactions for point in points),
            total_db_errors=sum(point.db_errors for point in points),
        ),
    )
    return json_response(answer)


def _worker_point(bucket: Bucket) -> WorkerPoint:
    verbs, total = bucket.verbs, bucket.total()
    return WorkerPoint(
        timestamp=timestamp(bucket.at),
        push_requests=verbs["push"].calls,
        push_messages=verbs["push"].items,
        pop_requests=verbs["pop"].calls,
        pop_messages=verbs["pop"].items,
        ack_requests=verbs["ack"].calls,
        ack_messages=verbs["ack"].items,
        transactions=verbs["transaction"].calls,
        push_per_second=verbs["push"].items / bucket.seconds,
        pop_per_second=verbs["pop"].items / bucket.seconds,
        ack_per_second=verbs["ack"].items / bucket.seconds,
        avg_lag_ms=mean_lag_ms(total),
        max_lag_ms=total.lag_max_ms,
        db_errors=sum(tally.errors for tally in verbs.values()),
    )


def _by_queue(series: list[Bucket]) -> dict[int, QueueCounts]:
    found: dict[int, QueueCounts] = {}
    for bucket in series:
        for id, counts in bucket.queues.items():
            add_counts(found.setdefault(id, QueueCounts()), counts)
    return found


def _lag(name: str, counts: QueueCounts, at: int | None = None) -> QueueLag:
    return QueueLag(
        queue_name=name,
        pop_count=counts.pops,
        avg_lag_ms=mean_lag_ms(counts),
        max_lag_ms=counts.lag_max_ms,
        bucket_time=timestamp(at) if at is not None else None,
    )


async def queue_lag(app: App, request: Request) -> Response:
    query = read(request.query, SpanQuery)
    span = await span_of(app, query)
    names = {queue.id: queue.name for queue, _ in await chosen(app, query)}
    return json_response(
        [
            _lag(names[id], counts, bucket.at)
            for bucket in buckets(app.broker.telemetry.minutes(*span), span)
            for id, counts in bucket.queues.items()
            if id in names
        ]
    )


async def queue_ops(app: App, request: Request) -> Response:
    query = read(request.query, SpanQuery)
    span = await span_of(app, query)
    names = {queue.id: queue.name for queue, _ in await chosen(app, query)}
    points = [
        _ops(names[id], counts, bucket)
        for bucket in buckets(app.broker.telemetry.minutes(*span), span)
        for id, counts in bucket.queues.items()
        if id in names
    ]
    answer = QueueOps(
        time_range=range_out(span),
        bucket_minutes=span.width_minutes,
        series=points,
        queues=sorted({point.queue_name for point in points}),
    )
    return json_response(answer)


def _ops(name: str, counts: QueueCounts, bucket: Bucket) -> QueueOpsPoint:
    return QueueOpsPoint(
        bucket=timestamp(bucket.at),
        queue_name=name,
        push_requests=counts.pushes,
        push_messages=counts.pushed,
        pop_messages=counts.popped,
        pop_empty=counts.pops_empty,
        ack_success=counts.acks - counts.failed,
        ack_failed=counts.failed,
        dead_letters=counts.dead,
        avg_lag_ms=mean_lag_ms(counts),
        max_lag_ms=counts.lag_max_ms,
        push_per_second=counts.pushed / bucket.seconds,
        pop_per_second=counts.popped / bucket.seconds,
        ack_per_second=counts.acks / bucket.seconds,
        empty_per_second=counts.pops_empty / bucket.seconds,
    )


async def parked_replicas(app: App, request: Request) -> Response:
    query = read(request.query, SpanQuery)
    span = await span_of(app, query)
    names = {queue.id: queue.name for queue, _ in await chosen(app, query)}
    now = timestamp(await app.broker.store.now())
    answer = ParkedReplicas(
        time_range=range_out(span),
        bucket_minutes=span.width_minutes,
        series=[
            ParkedPoint(
                bucket=now, queue_name=names[id], hostname=app.hostname, worker_id=app.worker_id, parked_count=count
            )
            for id, count in app.broker.waiters.counts().items()
            if id in names
        ],
        replicas=[ReplicaName(hostname=app.hostname, worker_id=app.worker_id)],
    )
    return json_response(answer)


async def retention(app: App, request: Request) -> Response:
    query = read(request.query, SpanQuery)
    span = await span_of(app, query)
    queues = [queue.id for queue, _ in await chosen(app, query)]
    points: dict[int, RetentionPoint] = {}
    totals = RetentionTotals()
    width = span.width_minutes * 60_000_000
    for went in await app.broker.store.retention.history(queues, since=span.since, until=span.until):
        at = went.at // width * width
        for sums in (points.setdefault(at, RetentionPoint(bucket=timestamp(at))), totals):
            _add_retained(sums, went)
    answer = Retention(
        time_range=range_out(span),
        bucket_minutes=span.width_minutes,
        series=[points[at] for at in sorted(points)],
        totals=totals,
    )
    return json_response(answer)


def _add_retained(sums: RetentionTotals, went: Retained) -> None:
    if went.rule == "retention":
        sums.retention_msgs += went.messages
    elif went.rule == "completed":
        sums.completed_retention_msgs += went.messages
    else:
        return
    sums.total_msgs += went.messages
    sums.event_count += 1


async def store_report(app: App, request: Request) -> Response:
    report = await app.broker.store.report()
    return json_response({"timestamp": timestamp(await app.broker.store.now()), **report})


def _route(name: str, endpoint: Any, summary: str, query: Any, answer: Any) -> Route:
    return Route(
        method="GET",
        path=f"/api/v1/analytics/{name}",
        endpoint=endpoint,
        summary=summary,
        tag="analytics",
        query=query,
        answer=answer,
    )


ROUTES = [
    _route("system-metrics", system_metrics, "CPU, memory and connections over time.", ReplicaQuery, SystemMetrics),
    _route("worker-metrics", worker_metrics, "Throughput over time.", ReplicaQuery, WorkerMetrics),
    _route("queue-lag", queue_lag, "How old messages were when popped, by queue.", SpanQuery, list[QueueLag]),
    _route("queue-ops", queue_ops, "Pushes, pops and acks over time, by queue.", SpanQuery, QueueOps),
    _route("queue-parked-replicas", parked_replicas, "Long polls parked now, by queue.", SpanQuery, ParkedReplicas),
    _route("retention", retention, "Messages deleted by a retention rule.", SpanQuery, Retention),
    _route("postgres-stats", store_report, "What the database says of itself.", None, dict[str, Any]),
]
