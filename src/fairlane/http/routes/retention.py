"""Retention: what its rules deleted, and deleting now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.http.decode import read
from fairlane.http.router import Route
from fairlane.http.routes.status import range_out, span_of
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_retention import RetentionHistory, RetentionRun, RetentionRunEntry, Went
from fairlane.http.wire_status import SpanQuery
from fairlane.model.moment import timestamp
from fairlane.model.queue import Queue

if TYPE_CHECKING:
    from fairlane.http.app import App


async def _queues(app: App, query: SpanQuery) -> dict[int, Queue]:
    return {
        queue.id: queue
        for queue in await app.broker.store.queues.list(app.tenant)
        if query.queue in (None, queue.name)
        and query.namespace in (None, queue.namespace)
        and query.task in (None, queue.task)
    }


async def run(app: App, request: Request) -> Response:
    queues = {queue.id: queue for queue in await app.broker.store.queues.list(app.tenant)}
    sums: dict[tuple[str, str], RetentionRunEntry] = {}
    for one in await app.broker.retention.run():
        if one.queue_id not in queues:
            continue
        name = queues[one.queue_id].name
        entry = sums.setdefault((name, one.rule), RetentionRunEntry(queue=name, rule=one.rule))
        entry.messages += one.messages
        entry.unread += one.unread
    return json_response(RetentionRun(success=True, deleted=[sums[key] for key in sorted(sums)]))


async def history(app: App, request: Request) -> Response:
    query = read(request.query, SpanQuery)
    span = await span_of(app, query, hours=24)
    queues = await _queues(app, query)
    went = [
        Went(
            at=timestamp(one.at),
            queue=queues[one.queue_id].name,
            rule=one.rule,
            messages=one.messages,
            unread=one.unread,
        )
        for one in await app.broker.store.retention.history(list(queues), since=span.since, until=span.until)
    ]
    return json_response(RetentionHistory(time_range=range_out(span), history=went))


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/retention/run",
        endpoint=run,
        summary="Delete what the rules of all queues cover, now. 409 while another broker is at it for too long.",
        tag="retention",
        answer=RetentionRun,
        statuses=(200, 409),
    ),
    Route(
        method="GET",
        path="/api/v1/retention/history",
        endpoint=history,
        summary="What rules deleted, by minute, oldest first; the last day unless asked otherwise.",
        tag="retention",
        query=SpanQuery,
        answer=RetentionHistory,
    ),
]
