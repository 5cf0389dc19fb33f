"""Status of the broker and its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.errors import InvalidRequest
from fairlane.http.decode import read
from fairlane.http.query import moment
from fairlane.http.router import Route
from fairlane.http.series import Bucket, Span, buckets, mean_lag_ms
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_operations import admission_out
from fairlane.http.wire_queues import Counts, counts_out, summed
from fairlane.http.wire_status import (
    Analytics,
    AnalyticsQuery,
    Connections,
    DataPoint,
    DeadCounts,
    EngineStatus,
    ErrorCounts,
    FailedEntry,
    JournalReport,
    JournalStatus,
    LeaseCounts,
    Point,
    RequestCounts,
    Requests,
    SpanQuery,
    Status,
    StatusCounts,
    StatusQueue,
    TimeRange,
    VerbStatus,
    WorkerEntry,
)
from fairlane.model.moment import timestamp
from fairlane.model.queue import Queue
from fairlane.model.stats import QueueStats
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.journal import Entry
from fairlane.store.contract.operations import FIRST
from fairlane.telemetry import VerbStats

if TYPE_CHECKING:
    from fairlane.http.app import App

_HOUR = 3_600_000_000


def journal_status(app: App) -> JournalStatus | None:
    """None if this broker has no journal."""
    route, drain = app.broker.route, app.broker.journal_drain
    if route.journal is None or drain is None:
        return None
    state, watch = route.journal.state(), route.watch
    return JournalStatus(
        store_up=watch.up,
        why_not=None if watch.up else watch.why,
        away_seconds=0.0 if watch.up else round(watch.away_seconds(), 3),
        entries=state.entries,
        messages=state.messages,
        lanes=state.backlogs,
        bytes=state.bytes,
        bytes_max=state.bytes_max,
        failed=state.failed,
        oldest_seconds=None if state.oldest_at is None else max(0.0, (wall_clock() - state.oldest_at) / 1e6),
        drain_rate=round(route.rate.a_second, 1),
        acks_lost=drain.acks_lost,
    )


async def span_of(app: App, query: SpanQuery, *, hours: int = 1) -> Span:
    until = moment("to", query.until) if query.until else await app.broker.store.now()
    since = moment("from", query.since) if query.since else until - hours * _HOUR
    if since > until:
        raise InvalidRequest("`from` must not be later than `to`")
    return Span(since, until)


def range_out(span: Span) -> TimeRange:
    return TimeRange(since=timestamp(span.since), until=timestamp(span.until))


async def chosen(app: App, query: SpanQuery) -> list[tuple[Queue, QueueStats]]:
    return [
        (queue, stats)
        for queue, stats in await app.census.queues(app.tenant)
        if query.queue in (None, queue.name)
        and query.namespace in (None, queue.namespace)
        and query.task in (None, queue.task)
    ]


async def status(app: App, request: Request) -> Response:
    query = read(request.query, SpanQuery)
    span = await span_of(app, query)
    counted = await chosen(app, query)
    groups = [stats for queue, stats in await app.census.groups(app.tenant) if query.queue in (None, queue.name)]
    series = buckets(app.broker.telemetry.minutes(*span), span)
    totals = summed([counts_out(stats) for _, stats in counted])
    answer = Status(
        time_range=range_out(span),
        bucket_minutes=span.width_minutes,
        point_count=len(series),
        since_start_of_broker=timestamp(app.broker.telemetry.started_at),
        throughput=[_point(each, before) for before, each in reversed(list(zip([None, *series], series)))],  # noqa: B905
        queues=[_queue(queue, stats) for queue, stats in counted],
        messages=_with_requests(app, totals),
        leases=LeaseCounts(
            active=sum(stats.leases for stats in groups),
            partitions_with_leases=sum(stats.leases for stats in groups),
            total_batch_size=sum(stats.leased for stats in groups),
        ),
        dead_letter_queue=DeadCounts(total_messages=totals.dead_letter),
        workers=[worker(app)],
        errors=_errors(app, series, totals),
        stats_age=app.census.age_seconds(app.tenant),
    )
    return json_response(answer)


def _point(bucket: Bucket, before: Bucket | None) -> Point:
    total = bucket.total()
    verbs = bucket.verbs
    user, system = (
        max(0.0, now - then)
        for now, then in zip(bucket.cpu_seconds, before.cpu_seconds if before else (0, 0))  # noqa: B905
    )
    return Point(
        timestamp=timestamp(bucket.at),
        ingested=verbs["push"].items,
        processed=verbs["ack"].items,
        pop_messages=verbs["pop"].items,
        ingested_per_second=verbs["push"].items / bucket.seconds,
        processed_per_second=verbs["ack"].items / bucket.seconds,
        pop_per_second=verbs["pop"].items / bucket.seconds,
        avg_lag_ms=mean_lag_ms(total),
        max_lag_ms=total.lag_max_ms,
        ack_failed=total.failed,
        dlq_count=total.dead,
        db_errors=sum(tally.errors for tally in verbs.values()),
        queen_cpu_user_pct=100 * user / bucket.seconds,
        queen_cpu_sys_pct=100 * system / bucket.seconds,
        queen_rss_mb=bucket.resident_bytes / 2**20,
    )


def _queue(queue: Queue, stats: QueueStats) -> StatusQueue:
    return StatusQueue(
        id=str(queue.id),
        name=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        partitions=stats.partitions,
        messages=counts_out(stats),
    )


def _with_requests(app: App, counts: Counts) -> StatusCounts:
    kinds = app.broker.telemetry.verbs
    return StatusCounts(
        requests=Requests(push=kinds["push"].count, pop=kinds["pop"].count, ack=kinds["ack"].count),
        batch_efficiency=Requests(push=_share(kinds["push"]), pop=_share(kinds["pop"]), ack=_share(kinds["ack"])),
        **{name: getattr(counts, name) for name in Counts.__struct_fields__},
    )


def _share(verb: VerbStats) -> float:
    return verb.items / verb.count if verb.count else 0.0


def worker(app: App) -> WorkerEntry:
    telemetry = app.broker.telemetry
    return WorkerEntry(
        hostname=app.hostname,
        worker_id=app.worker_id,
        db_connections=app.broker.store.connections()[0],
        job_queue_size=app.broker.pending,
        messages_processed=telemetry.push.items + telemetry.pop.items + telemetry.ack.items,
    )


def _errors(app: App, series: list[Bucket], totals: Counts) -> ErrorCounts:
    return ErrorCounts(
        db_errors=sum(tally.errors for each in series for tally in each.verbs.values()),
        ack_failed=sum(each.total().failed for each in series),
        dlq_messages=totals.dead_letter,
    )


async def analytics(app: App, request: Request) -> Response:
    query = read(request.query, AnalyticsQuery)
    span = await span_of(app, query, hours=24)
    width = {"minute": 60, "hour": 3600, "day": 86_400}[query.interval] * 1_000_000
    ids = {queue.id for queue, _ in await chosen(app, query)}
    everything = query.queue is None and query.namespace is None and query.task is None
    points: dict[int, int] = {}
    for minute in app.broker.telemetry.minutes(*span):
        of_queues = sum(counts.pushed for id, counts in minute.queues.items() if id in ids)
        at = minute.at - minute.at % width
        points[at] = points.get(at, 0) + (minute.verbs["push"].items if everything else of_queues)
    answer = Analytics(
        data_points=[DataPoint(timestamp=timestamp(at), messages=points[at]) for at in sorted(points)],
        interval=query.interval,
        since=timestamp(span.since),
        until=timestamp(span.until),
        since_start_of_broker=timestamp(app.broker.telemetry.started_at),
    )
    return json_response(answer)


def _failed_out(entry: Entry) -> FailedEntry:
    kind, _, name, partition = entry.backlog
    return FailedEntry(
        id=str(entry.id),
        kind=kind,
        queue=name if kind == "push" else None,
        consumer_group=name if kind == "ack" else None,
        partition=partition,
        messages=entry.messages,
        error=entry.error or "",
        accepted_at=timestamp(entry.created_at),
    )


async def journal_report(app: App, request: Request) -> Response:
    """The journal of this process."""
    answer = JournalReport(pending=0, failed=0, db_healthy=await app.healthy(), worker=app.worker_id)
    status = answer.journal = journal_status(app)
    journal = app.broker.journal
    if status is not None and journal is not None:
        answer.pending, answer.failed = status.messages, status.failed
        answer.failed_entries = [_failed_out(one) for one in await journal.page(FIRST, failed=True, limit=100)]
    return json_response(answer)


async def engine(app: App, request: Request) -> Response:
    return json_response(engine_status(app))


def engine_status(app: App) -> EngineStatus:
    telemetry = app.broker.telemetry
    total, busy = app.broker.store.connections()
    return EngineStatus(
        connections=Connections(total=total, busy=busy),
        queue=RequestCounts(
            pending=app.broker.pending,
            completed=sum(verb.count for verb in telemetry.verbs.values()),
            parked=len(app.broker.waiters),
        ),
        operations={
            kind: VerbStatus(
                count=verb.count,
                avg_ms=round(verb.mean_ms(), 3),
                p50_ms=verb.percentile_ms(0.5),
                p99_ms=verb.percentile_ms(0.99),
                items=verb.items,
                errors=verb.errors,
            )
            for kind, verb in telemetry.verbs.items()
        },
        admission=admission_out(app.broker.admission),
        uptime_seconds=app.uptime_seconds(),
    )


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/status",
        endpoint=status,
        summary="Throughput of this broker since it started, and what the queues hold.",
        tag="status",
        query=SpanQuery,
        answer=Status,
    ),
    Route(
        method="GET",
        path="/api/v1/status/analytics",
        endpoint=analytics,
        summary="Messages pushed through this broker over time, since it started.",
        tag="status",
        query=AnalyticsQuery,
        answer=Analytics,
    ),
    Route(
        method="GET",
        path="/api/v1/status/buffers",
        endpoint=journal_report,
        summary="Operations outside the store, in the journal of this process, and those that failed there.",
        tag="status",
        answer=JournalReport,
    ),
    Route(
        method="GET",
        path="/api/v1/status/engine",
        endpoint=engine,
        summary="Counts and latencies of each verb, connections, what waits.",
        tag="status",
        answer=EngineStatus,
    ),
]
