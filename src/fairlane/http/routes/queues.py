"""Queues and their partitions: configure, list, look into, clear, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.errors import NotFound
from fairlane.http.decode import decode, read
from fairlane.http.query import after
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire import ConfigureBody, OptionsBody, options_given, options_in, options_out
from fairlane.http.wire_queues import (
    ClearedQueue,
    ClearQuery,
    Configured,
    DeletedQueue,
    DepthQuery,
    OptionsSet,
    PageQuery,
    PartitionDepth,
    PartitionList,
    PartitionQuery,
    QueueDepth,
    QueueDetail,
    QueueList,
    QueueListQuery,
    detail_out,
    next_page,
    partition_out,
    queue_out,
)
from fairlane.model.names import DEFAULT_PARTITION, check_name
from fairlane.model.queue import Queue, QueueOptions

if TYPE_CHECKING:
    from fairlane.http.app import App


async def configure(app: App, request: Request) -> Response:
    body = decode(request.body, ConfigureBody)
    options = options_in(body.options)
    if not body.queue:
        return _nameless(body, options)
    name = check_name("queue", body.queue)
    queue = await app.broker.queues.configure(
        name, namespace=body.namespace, task=body.task, **msgspec.structs.asdict(options)
    )
    [partition] = await app.broker.store.queues.born(queue.id, [DEFAULT_PARTITION])
    answer = Configured(
        configured=True,
        queue_id=str(queue.id),
        partition_id=str(partition.id),
        queue=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        options=options_out(queue.options),
    )
    return json_response(answer)


def _nameless(body: ConfigureBody, options: QueueOptions) -> Response:
    """Published clients configure a queue without a name by mistake, and count on a yes. Nothing is made, for nobody
    could push to it, pop from it or delete it."""
    answer = Configured(
        configured=True,
        queue_id="",
        partition_id="",
        queue="",
        namespace=body.namespace or "",
        task=body.task or "",
        options=options_out(options),
    )
    return json_response(answer)


async def set_options(app: App, request: Request) -> Response:
    body = decode(request.body, OptionsBody)
    queue = await app.broker.queues.set_options(request.params["queue"], **options_given(body.options))
    return json_response(OptionsSet(queue=queue.name, options=options_out(queue.options)))


async def existing(app: App, name: str) -> Queue:
    """The queue as the store has it now, or NotFound."""
    queue = await app.broker.store.queues.get(app.tenant, check_name("queue", name))
    if queue is None:
        raise NotFound("Queue not found")
    return queue


async def list_queues(app: App, request: Request) -> Response:
    query = read(request.query, QueueListQuery)
    counted = [entry for entry in await app.census.queues(app.tenant) if query.search in entry[0].name]
    page = counted[query.offset : query.offset + query.limit]
    return json_response(QueueList(queues=[queue_out(*entry) for entry in page]))


async def show(app: App, request: Request) -> Response:
    query = read(request.query, PageQuery)
    queue = await existing(app, request.params["queue"])
    store = app.broker.store
    counted = await store.statistics.queues([queue.id])
    if not counted:
        raise NotFound("Queue not found")
    page = await store.statistics.partitions(queue.id, after=after(query.after), limit=query.limit)
    return json_response(detail_out(queue, counted[0], page, query.limit))


async def partitions(app: App, request: Request) -> Response:
    query = read(request.query, PartitionQuery)
    queue = await existing(app, query.queue)
    page = await app.broker.store.statistics.partitions(queue.id, after=after(query.after), limit=query.limit)
    found = [partition_out(one) for one in page]
    return json_response(PartitionList(queue=queue.name, partitions=found, next=next_page(page, query.limit)))


async def depth(app: App, request: Request) -> Response:
    query = read(request.query, DepthQuery)
    queue = await existing(app, request.params["queue"])
    store = app.broker.store
    conflation = False
    if query.group is None:
        lanes = [(one.name, one.unfinished) for one in await store.statistics.partitions(queue.id, limit=10_000)]
        [counted] = await store.statistics.queues([queue.id])
        pending = counted.unfinished
    else:
        group = await store.groups.get(queue.id, check_name("group", query.group))
        if group is None:
            raise NotFound("Consumer group not found")
        conflation = group.subscription.conflation
        found = await store.groups.lanes(group.id, limit=10_000)
        lanes = [(lane.name, lane.head - lane.committed - lane.skipped) for lane in found]
        pending = next((one.lag for one in await store.statistics.groups([queue.id]) if one.group_id == group.id), 0)
    owing = [PartitionDepth(partition=name, pending=count) for name, count in lanes if count > 0]
    answer = QueueDepth(
        queue=queue.name,
        group=query.group,
        pending=pending,
        partitions_pending=len(owing),
        conflation=conflation,
        effective_pending=len(owing) if conflation else pending,
        partitions=owing,
        capacity=queue.options.max_size or None,
    )
    return json_response(answer)


async def clear(app: App, request: Request) -> Response:
    query = read(request.query, ClearQuery)
    queue = await existing(app, request.params["queue"])
    store = app.broker.store
    only = None
    if query.partition is not None:
        found = await store.queues.named(queue.id, check_name("partition", query.partition))
        if found is None:
            raise NotFound("Partition not found")
        only = found.id
    cleared = await store.browse.clear(queue.id, partition=only)
    return json_response(ClearedQueue(success=True, queue=queue.name, partition=query.partition, cleared=cleared))


async def delete(app: App, request: Request) -> Response:
    name = request.params["queue"]
    existed = await app.broker.queues.delete(name)
    return json_response(DeletedQueue(deleted=True, queue=name, existed=existed))


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/configure",
        endpoint=configure,
        summary="Make a queue or replace all its options.",
        tag="queues",
        body=ConfigureBody,
        answer=Configured,
    ),
    Route(
        method="PATCH",
        path="/api/v1/resources/queues/{queue}",
        endpoint=set_options,
        summary="Change some options of a queue; the others stay as they are.",
        tag="queues",
        body=OptionsBody,
        answer=OptionsSet,
        statuses=(200, 404),
    ),
    Route(
        method="GET",
        path="/api/v1/resources/queues",
        endpoint=list_queues,
        summary="Every queue, newest first, with what it holds.",
        tag="queues",
        query=QueueListQuery,
        answer=QueueList,
    ),
    Route(
        method="GET",
        path="/api/v1/resources/queues/{queue}",
        endpoint=show,
        summary="One queue with its partitions, by name.",
        tag="queues",
        query=PageQuery,
        answer=QueueDetail,
        statuses=(200, 404),
    ),
    Route(
        method="GET",
        path="/api/v1/resources/queues/{queue}/depth",
        endpoint=depth,
        summary="What a queue, or one group of it, has not finished, by partition.",
        tag="queues",
        query=DepthQuery,
        answer=QueueDepth,
        statuses=(200, 404),
    ),
    Route(
        method="DELETE",
        path="/api/v1/resources/queues/{queue}",
        endpoint=delete,
        summary="Delete a queue with all that is in it.",
        tag="queues",
        answer=DeletedQueue,
    ),
    Route(
        method="GET",
        path="/api/v1/resources/partitions",
        endpoint=partitions,
        summary="The partitions of a queue, by name.",
        tag="queues",
        query=PartitionQuery,
        answer=PartitionList,
        statuses=(200, 404),
    ),
    Route(
        method="DELETE",
        path="/api/v1/queues/{queue}/clear",
        endpoint=clear,
        summary="Take all messages out of a queue, or of one partition; dead letters stay.",
        tag="queues",
        query=ClearQuery,
        answer=ClearedQueue,
        statuses=(200, 404),
    ),
]
