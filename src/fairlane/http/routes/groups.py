"""Consumer groups: how far they are, where they are sent, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.errors import InvalidRequest, NotFound
from fairlane.http.decode import decode, read
from fairlane.http.query import moment
from fairlane.http.router import Route
from fairlane.http.routes.queues import existing
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_groups import (
    DeletedGroup,
    DeleteGroupQuery,
    GroupEntry,
    LaggingEntry,
    LaggingQuery,
    QueueLanes,
    SeekBody,
    SoughtGroup,
    SoughtPartition,
    SubscriptionBody,
    UpdatedSubscription,
    group_out,
    lagging_out,
    lane_out,
)
from fairlane.model.group import Group, Seek, Subscription
from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.names import check_name
from fairlane.model.queue import Queue

if TYPE_CHECKING:
    from fairlane.http.app import App

_LANES_MAX = 1000


async def list_groups(app: App, request: Request) -> Response:
    now = await app.broker.store.now()
    return json_response([group_out(*entry, now) for entry in await app.census.groups(app.tenant)])


async def lagging(app: App, request: Request) -> Response:
    query = read(request.query, LaggingQuery)
    store = app.broker.store
    now = await store.now()
    queues = {queue.id: queue.name for queue in await store.queues.list(app.tenant)}
    before = now - int(max(0.0, min(query.min_lag_seconds, 1e9)) * 1e6)
    lanes = await store.statistics.lagging(list(queues), oldest_before=before)
    return json_response([lagging_out(lane, queues[lane.queue_id], now) for lane in lanes])


async def _everywhere(app: App, name: str) -> list[tuple[Queue, Group]]:
    """The group in every queue that has it."""
    check_name("group", name)
    return [
        (queue, counted.group) for queue, counted in await app.census.groups(app.tenant) if counted.group.name == name
    ]


async def show(app: App, request: Request) -> Response:
    store = app.broker.store
    now = await store.now()
    found = {}
    for queue, group in await _everywhere(app, request.params["group"]):
        lanes = await store.groups.lanes(group.id, limit=_LANES_MAX)
        found[queue.name] = QueueLanes(partitions=[lane_out(lane, now) for lane in lanes])
    if not found:
        raise NotFound("Consumer group not found")
    return json_response(found)


async def delete(app: App, request: Request) -> Response:
    """Of all queues. A group that nobody knows is as good as deleted."""
    query = read(request.query, DeleteGroupQuery)
    name = request.params["group"]
    deleted = 0
    for queue, group in await _everywhere(app, name):
        deleted += await _delete(app, queue, group, keep_subscription=not query.delete_metadata)
    return json_response(
        DeletedGroup(
            success=True, consumer_group=name, deleted_partitions=deleted, metadata_deleted=query.delete_metadata
        )
    )


async def delete_of_queue(app: App, request: Request) -> Response:
    query = read(request.query, DeleteGroupQuery)
    name = check_name("group", request.params["group"])
    queue = await existing(app, request.params["queue"])
    group = await app.broker.store.groups.get(queue.id, name)
    deleted = 0
    if group is not None:
        deleted = await _delete(app, queue, group, keep_subscription=not query.delete_metadata)
    return json_response(
        DeletedGroup(
            success=True,
            consumer_group=name,
            deleted_partitions=deleted,
            metadata_deleted=query.delete_metadata,
            queue_name=queue.name,
        )
    )


async def _delete(app: App, queue: Queue, group: Group, *, keep_subscription: bool) -> int:
    deleted = await app.broker.store.groups.delete(group.id, keep_subscription=keep_subscription)
    app.broker.catalogue.forget_group(queue.id, group.name)
    return deleted


async def resubscribe(app: App, request: Request) -> Response:
    body = decode(request.body, SubscriptionBody)
    at = moment("subscriptionTimestamp", body.subscription_timestamp)
    name = request.params["group"]
    subscription = Subscription("time", at)
    updated = 0
    for _, group in await _everywhere(app, name):
        updated += await app.broker.store.groups.resubscribe(group.id, subscription)
    return json_response(
        UpdatedSubscription(success=True, consumer_group=name, new_timestamp=timestamp(at), rows_updated=updated)
    )


async def _group(app: App, request: Request) -> tuple[Queue, Group]:
    queue = await existing(app, request.params["queue"])
    group = await app.broker.store.groups.get(queue.id, check_name("group", request.params["group"]))
    if group is None:
        raise NotFound("Consumer group not found")
    return queue, group


def target(body: SeekBody) -> Seek:
    given = [body.to_end, body.to_beginning, body.timestamp is not None, body.position is not None]
    if sum(given) != 1:
        raise InvalidRequest("Must specify one of 'toEnd': true, 'toBeginning': true, 'timestamp' or 'position'")
    if body.timestamp is not None:
        return Seek("time", moment("timestamp", body.timestamp))
    if body.position is not None:
        return Seek("position", body.position).check()
    return Seek("end" if body.to_end else "beginning")


async def seek(app: App, request: Request) -> Response:
    sought = target(decode(request.body, SeekBody, default=SeekBody()))
    queue, group = await _group(app, request)
    moved = await app.broker.groups.seek(queue.name, group.name, sought)
    answer = SoughtGroup(
        success=True,
        consumer_group=group.name,
        queue_name=queue.name,
        seek_to_end=sought.to == "end",
        target_timestamp=timestamp(sought.at) if sought.to == "time" else None,
        partitions_updated=moved,
    )
    return json_response(answer)


async def seek_partition(app: App, request: Request) -> Response:
    """To the end, unless the body says otherwise."""
    body = decode(request.body, SeekBody, default=SeekBody())
    sought = Seek("end") if body == SeekBody() else target(body)
    queue, group = await _group(app, request)
    name = check_name("partition", request.params["partition"])
    moved = await app.broker.groups.seek(queue.name, group.name, sought, partition=name)
    partition = await app.broker.store.queues.named(queue.id, name)
    lanes = await app.broker.store.groups.lanes(group.id, partition=partition.id) if partition else []
    lane = lanes[0] if lanes else None
    answer = SoughtPartition(
        success=True,
        consumer_group=group.name,
        queue_name=queue.name,
        partition_name=name,
        updated=moved > 0,
        cursor_moved_to=timestamp_or_none(lane.oldest_at) if lane else None,
        position=lane.committed if lane else None,
    )
    return json_response(answer)


_GROUP = "/api/v1/consumer-groups/{group}"
ROUTES = [
    Route(
        method="GET",
        path="/api/v1/consumer-groups",
        endpoint=list_groups,
        summary="Every group of every queue, with how far it lags.",
        tag="groups",
        answer=list[GroupEntry],
    ),
    Route(
        method="GET",
        path="/api/v1/consumer-groups/lagging",
        endpoint=lagging,
        summary="Lanes whose oldest unfinished message waits too long, worst first.",
        tag="groups",
        query=LaggingQuery,
        answer=list[LaggingEntry],
    ),
    Route(
        method="GET",
        path=_GROUP,
        endpoint=show,
        summary="The lanes of a group, by queue.",
        tag="groups",
        answer=dict[str, QueueLanes],
        statuses=(200, 404),
    ),
    Route(
        method="DELETE",
        path=_GROUP,
        endpoint=delete,
        summary="Forget a group in every queue.",
        tag="groups",
        query=DeleteGroupQuery,
        answer=DeletedGroup,
    ),
    Route(
        method="DELETE",
        path=f"{_GROUP}/queues/{{queue}}",
        endpoint=delete_of_queue,
        summary="Forget a group of one queue.",
        tag="groups",
        query=DeleteGroupQuery,
        answer=DeletedGroup,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=f"{_GROUP}/subscription",
        endpoint=resubscribe,
        summary="Change where a group begins in partitions that it has not met yet.",
        tag="groups",
        body=SubscriptionBody,
        answer=UpdatedSubscription,
    ),
    Route(
        method="POST",
        path=f"{_GROUP}/queues/{{queue}}/seek",
        endpoint=seek,
        summary="Send a group to the beginning, the end, a time or a position of a queue.",
        tag="groups",
        body=SeekBody,
        answer=SoughtGroup,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=f"{_GROUP}/queues/{{queue}}/partitions/{{partition}}/seek",
        endpoint=seek_partition,
        summary="Send a group elsewhere in one partition; to its end if nothing else is said.",
        tag="groups",
        body=SeekBody,
        body_required=False,
        answer=SoughtPartition,
        statuses=(200, 404),
    ),
]
