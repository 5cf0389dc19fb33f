"""Namespaces: what the queues hold, by namespace, by task, and in all."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, median
from typing import TYPE_CHECKING

from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_queues import (
    Lag,
    NamespaceCounts,
    NamespaceList,
    NamespaceSummary,
    Overview,
    Spread,
    TaskList,
    TaskSummary,
    Throughput,
    counts_out,
    summed,
)
from fairlane.model.moment import timestamp
from fairlane.model.queue import Queue
from fairlane.model.stats import QueueStats

if TYPE_CHECKING:
    from fairlane.http.app import App


async def namespaces(app: App, request: Request) -> Response:
    found = _grouped(await app.census.queues(app.tenant), lambda queue: queue.namespace)
    return json_response(
        NamespaceList(
            namespaces=[
                NamespaceSummary(
                    namespace=label, queues=len(some), partitions=_partitions(some), messages=_counts(some)
                )
                for label, some in found
            ]
        )
    )


async def tasks(app: App, request: Request) -> Response:
    found = _grouped(await app.census.queues(app.tenant), lambda queue: queue.task)
    return json_response(
        TaskList(
            tasks=[
                TaskSummary(task=label, queues=len(some), partitions=_partitions(some), messages=_counts(some))
                for label, some in found
            ]
        )
    )


async def overview(app: App, request: Request) -> Response:
    counted = await app.census.queues(app.tenant)
    now = await app.broker.store.now()
    groups = [entry for _, entry in await app.census.groups(app.tenant)]
    ages = [(now - group.oldest_at) / 1e6 if group.oldest_at is not None else 0.0 for group in groups]
    pushed, acked = _rates(app, now)
    answer = Overview(
        queues=len(counted),
        partitions=_partitions([stats for _, stats in counted]),
        namespaces=len({queue.namespace for queue, _ in counted}),
        tasks=len({queue.task for queue, _ in counted}),
        messages=summed([counts_out(stats) for _, stats in counted]),
        lag=Lag(time=spread(ages), offset=spread([float(group.lag) for group in groups])),
        throughput=Throughput(ingested_per_second=pushed, processed_per_second=acked),
        timestamp=timestamp(now),
        stats_age=app.census.age_seconds(app.tenant),
    )
    return json_response(answer)


def spread(values: list[float]) -> Spread:
    if not values:
        return Spread(avg=0, median=0, min=0, max=0)
    return Spread(avg=fmean(values), median=median(values), min=min(values), max=max(values))


def _rates(app: App, now: int) -> tuple[float, float]:
    """Messages a second pushed and acked in the last full minute."""
    minutes = app.broker.telemetry.minutes(0, 2**62)[-2:]
    verbs = minutes[0].verbs
    return verbs["push"].items / 60, verbs["ack"].items / 60


def _grouped(
    counted: list[tuple[Queue, QueueStats]], label: Callable[[Queue], str]
) -> list[tuple[str, list[QueueStats]]]:
    found: dict[str, list[QueueStats]] = {}
    for queue, stats in counted:
        found.setdefault(label(queue), []).append(stats)
    return sorted(found.items())


def _partitions(some: list[QueueStats]) -> int:
    return sum(stats.partitions for stats in some)


def _counts(some: list[QueueStats]) -> NamespaceCounts:
    return NamespaceCounts(total=sum(stats.total for stats in some), pending=sum(stats.pending for stats in some))


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/resources/namespaces",
        endpoint=namespaces,
        summary="What the queues hold, by namespace.",
        tag="queues",
        answer=NamespaceList,
    ),
    Route(
        method="GET",
        path="/api/v1/resources/tasks",
        endpoint=tasks,
        summary="What the queues hold, by task.",
        tag="queues",
        answer=TaskList,
    ),
    Route(
        method="GET",
        path="/api/v1/resources/overview",
        endpoint=overview,
        summary="What all queues hold together.",
        tag="queues",
        answer=Overview,
    ),
]
