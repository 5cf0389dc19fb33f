"""Status endpoints in the shapes of Queen's dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from fairlane.broker.broker import Broker
from fairlane.broker.queues import partition_detail, queue_summary
from fairlane.broker.statistics import Bucket, summed
from fairlane.http.router import Routes
from fairlane.model.moment import Moment
from fairlane.model.principal import Principal
from fairlane.model.stats import PartitionStats
from fairlane.queen.routes.analytics import worker
from fairlane.queen.wire import answers as wire
from fairlane.queen.wire.answers import Page, page
from fairlane.telemetry import Telemetry, VerbStats
from fairlane.wire.base import Pagination
from fairlane.wire.browse import MessageHead, MessageQuery
from fairlane.wire.queues import Counts, QueueHead
from fairlane.wire.status import SpanQuery

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("status")
_QUEUES = "/api/v1/status/queues"
_WIDTHS = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}


@routes.get("/api/v1/status", needs="status", operator=True)
async def show_status(app: HttpApp, broker: Broker, query: SpanQuery) -> Page:
    """Show the throughput of this broker since it started, and the contents of the queues."""
    span = await broker.queues.statistics.span(query)
    counted = await broker.queues.statistics.queues(query)
    groups = [found for queue, found in await broker.queues.statistics.groups() if query.queue in (None, queue.name)]
    series = await broker.queues.statistics.series(span)
    totals = summed(counted)
    return page(
        time_range=span.shown(),
        bucket_minutes=span.width_minutes,
        point_count=len(series),
        since_start_of_broker=Moment(broker.process.telemetry.started_at),
        throughput=[_point(*pair) for pair in zip(series, [None, *series], strict=False)][::-1],
        queues=[queue_summary(queue, found) for queue, found in counted],
        messages=_with_requests(broker.process.telemetry, totals),
        leases=page(
            active=sum(found.leases for found in groups),
            partitions_with_leases=sum(found.leases for found in groups),
            total_batch_size=sum(found.leased for found in groups),
        ),
        dead_letter_queue=page(total_messages=totals.dead_letter),
        workers=[worker(app)],
        errors=page(
            db_errors=sum(each.errors() for each in series),
            ack_failed=sum(each.total().failed for each in series),
            dlq_messages=totals.dead_letter,
        ),
        stats_age=broker.queues.statistics.age_seconds(),
    )


def _point(bucket: Bucket, before: Bucket | None) -> Page:
    total, verbs = bucket.total(), bucket.verbs
    then = before.cpu_seconds if before else (0.0, 0.0)
    user, system = (max(0.0, now - was) / bucket.seconds for now, was in zip(bucket.cpu_seconds, then, strict=True))
    return page(
        timestamp=Moment(bucket.at),
        ingested=verbs["push"].items,
        processed=verbs["ack"].items,
        pop_messages=verbs["pop"].items,
        ingested_per_second=verbs["push"].items / bucket.seconds,
        processed_per_second=verbs["ack"].items / bucket.seconds,
        pop_per_second=verbs["pop"].items / bucket.seconds,
        avg_lag_ms=total.mean_lag_ms(),
        max_lag_ms=total.lag_max_ms,
        ack_failed=total.failed,
        dlq_count=total.dead,
        db_errors=bucket.errors(),
        queen_cpu_user_pct=100 * user,
        queen_cpu_sys_pct=100 * system,
        queen_rss_mb=bucket.resident_bytes / 2**20,
    )


def _with_requests(telemetry: Telemetry, totals: Counts) -> Page:
    push, pop, ack = telemetry.push, telemetry.pop, telemetry.ack
    return page(
        **asdict(totals),
        requests=page(push=push.count, pop=pop.count, ack=ack.count),
        batch_efficiency=page(push=_share(push), pop=_share(pop), ack=_share(ack)),
    )


def _share(verb: VerbStats) -> float:
    return verb.items / verb.count if verb.count else 0.0


@routes.get("/api/v1/status/analytics", needs="status", operator=True)
async def analytics(broker: Broker, query: wire.AnalyticsQuery) -> Page:
    """Show messages pushed through this broker over time, since it started."""
    span = await broker.queues.statistics.span(query, hours=24)
    width = _WIDTHS[query.interval]
    ids = {queue.id for queue, _ in await broker.queues.statistics.queues(query)}
    everything = query.queue is None and query.namespace is None and query.task is None
    points: dict[int, int] = {}
    for minute in await broker.process.peer_stats.minutes(*span):
        of_queues = sum(found.pushed for id, found in minute.queues.items() if id in ids)
        at = minute.at - minute.at % width
        points[at] = points.get(at, 0) + (minute.verbs["push"].items if everything else of_queues)
    return page(
        data_points=[page(timestamp=Moment(at), messages=points[at]) for at in sorted(points)],
        interval=query.interval,
        since_start_of_broker=Moment(broker.process.telemetry.started_at),
        **{"from": Moment(span.since), "to": Moment(span.until)},
    )


@routes.get(_QUEUES, needs="status", each=True)
async def list_queues(broker: Broker, caller: Principal, query: wire.StatusQueuesQuery) -> Page:
    """List queues with their contents, page by page."""
    found = [one for one in await broker.queues.summaries(where=query) if caller.allows("status", one.name)]
    some = found[query.offset : query.offset + query.limit]
    return page(queues=some, pagination=Pagination(limit=query.limit, offset=query.offset))


@routes.get(f"{_QUEUES}/{{queue}}", needs="status")
async def show_queue(broker: Broker, queue: str, query: wire.StatusQueueQuery) -> Page:
    """Show one queue with its options and partitions."""
    found, some = await broker.queues.show(queue, limit=0), []
    if query.include_partitions:
        some = await broker.queues.counted(queue, after=query.after, limit=query.limit)
    head = {name: getattr(found, name) for name in QueueHead.__struct_fields__}
    config = found.options | {"maxQueueSize": found.options["maxSize"]}
    return page(
        queue=page(**head, priority=found.options["priority"], config=config),
        partitions=[_partition(one) for one in some],
        totals=page(**asdict(found.totals), messages=found.totals),
        next=some[-1].name if len(some) == query.limit else None,
    )


def _partition(one: PartitionStats) -> Page:
    shown, active = partition_detail(one), Moment(one.last_at) if one.head else None
    cursor = page(total_consumed=one.head - one.unfinished)
    return page(**asdict(shown), messages=shown.stats, cursor=cursor, last_activity=active)


@routes.get(f"{_QUEUES}/{{queue}}/messages", needs="browse")
async def queue_messages(broker: Broker, queue: str, query: wire.StatusMessagesQuery) -> list[MessageHead]:
    """List the newest messages of a queue."""
    where = MessageQuery(limit=query.limit, offset=query.offset)
    return (await broker.messages.browse.search([await broker.queues.existing(queue)], where)).messages
