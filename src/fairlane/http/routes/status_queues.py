"""Queues as dashboards show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.broker.browse import MessageFilter
from fairlane.errors import NotFound
from fairlane.http.decode import read
from fairlane.http.query import after
from fairlane.http.router import Route
from fairlane.http.routes.browse import page_of
from fairlane.http.routes.queues import existing
from fairlane.http.routes.status import chosen
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_queues import Counts, counts_out, next_page, partition_out, queue_out
from fairlane.http.wire_status import (
    Consumed,
    StatusMessage,
    StatusMessagesQuery,
    StatusPartition,
    StatusQueueDetail,
    StatusQueueHead,
    StatusQueueQuery,
    StatusQueues,
    StatusQueuesQuery,
    StatusTotals,
)
from fairlane.model.moment import timestamp
from fairlane.model.stats import PartitionStats
from fairlane.wire.base import Pagination
from fairlane.wire.queues import options_out

if TYPE_CHECKING:
    from fairlane.http.app import App


async def list_queues(app: App, request: Request) -> Response:
    query = read(request.query, StatusQueuesQuery)
    found = [queue_out(*entry) for entry in await chosen(app, query)]
    page = found[query.offset : query.offset + query.limit]
    return json_response(StatusQueues(queues=page, pagination=Pagination(limit=query.limit, offset=query.offset)))


async def show_queue(app: App, request: Request) -> Response:
    query = read(request.query, StatusQueueQuery)
    queue = await existing(app, request.params["queue"])
    statistics = app.broker.store.statistics
    counted = await statistics.queues([queue.id])
    if not counted:
        raise NotFound("Queue not found")
    page = []
    if query.include_partitions:
        page = await statistics.partitions(queue.id, after=after(query.after), limit=query.limit)
    totals = counts_out(counted[0])
    answer = StatusQueueDetail(
        queue=StatusQueueHead(
            id=str(queue.id),
            name=queue.name,
            namespace=queue.namespace,
            task=queue.task,
            priority=queue.options.priority,
            created_at=timestamp(queue.created_at),
            config=options_out(queue.options) | {"maxQueueSize": queue.options.max_size},
        ),
        partitions=[_partition(one) for one in page],
        totals=StatusTotals(messages=totals, **{name: getattr(totals, name) for name in Counts.__struct_fields__}),
        next=next_page(page, query.limit),
    )
    return json_response(answer)


def _partition(one: PartitionStats) -> StatusPartition:
    shown = partition_out(one)
    return StatusPartition(
        id=shown.id,
        name=shown.name,
        created_at=shown.created_at,
        messages=shown.stats,
        stats=shown.stats,
        cursor=Consumed(total_consumed=one.head - one.unfinished),
        last_activity=timestamp(one.last_at) if one.head else None,
        oldest_message=shown.oldest_message,
        newest_message=shown.newest_message,
    )


async def queue_messages(app: App, request: Request) -> Response:
    query = read(request.query, StatusMessagesQuery)
    queue = await existing(app, request.params["queue"])
    page = await page_of(app, MessageFilter(queues=[queue]), limit=query.limit, offset=query.offset)
    return json_response(
        [
            StatusMessage(
                id=seen.head.id,
                transaction_id=seen.head.transaction_id,
                partition_id=str(seen.head.partition),
                queue_path=f"{queue.name}/{seen.partition}",
                queue=queue.name,
                partition=seen.partition,
                status=seen.status,
                created_at=timestamp(seen.head.created_at),
            )
            for seen in page.messages
        ]
    )


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/status/queues",
        endpoint=list_queues,
        summary="Queues with what they hold, page by page.",
        tag="status",
        query=StatusQueuesQuery,
        answer=StatusQueues,
    ),
    Route(
        method="GET",
        path="/api/v1/status/queues/{queue}",
        endpoint=show_queue,
        summary="One queue with its options and partitions.",
        tag="status",
        query=StatusQueueQuery,
        answer=StatusQueueDetail,
        statuses=(200, 404),
    ),
    Route(
        method="GET",
        path="/api/v1/status/queues/{queue}/messages",
        endpoint=queue_messages,
        summary="The newest messages of a queue.",
        tag="status",
        query=StatusMessagesQuery,
        answer=list[StatusMessage],
        statuses=(200, 404),
    ),
]
