"""Consumer groups: their lag, seeks and deletion."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from fairlane.http.router import Routes
from fairlane.model.group import Seek
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.principal import Principal
from fairlane.wire import groups as wire

routes = Routes("groups")
_GROUP = "/api/v1/consumer-groups/{group}"
_NOWHERE = wire.SeekBody()


@routes.get("/api/v1/consumer-groups", needs="status", each=True, live=True)
async def list_groups(broker: Broker, caller: Principal) -> list[wire.GroupSummary]:
    """List the groups of all queues with their lag."""
    return [one for one in await broker.groups.summaries() if caller.allows("status", one.queue)]


@routes.get("/api/v1/resources/groups", needs="status", each=True, live=True)
async def page(broker: Broker, caller: Principal, query: wire.GroupListQuery) -> wire.GroupPage:
    """List a page of groups, of all queues or one, with their lag."""
    return await broker.groups.page(query, caller)


@routes.get("/api/v1/consumer-groups/lagging", needs="status", each=True, live=True)
async def lagging(broker: Broker, caller: Principal, query: wire.LaggingQuery) -> list[wire.LaggingEntry]:
    """List lanes whose oldest unfinished message is too old, oldest first."""
    lanes = await broker.groups.lagging(query.min_lag_seconds)
    return [lane for lane in lanes if caller.allows("status", lane.queue_name)]


@routes.get(_GROUP, needs="status", each=True, live=True)
async def show(broker: Broker, caller: Principal, group: str) -> dict[str, wire.QueueLanes]:
    """Show the lanes of a group, by queue."""
    shown = await broker.groups.show(group)
    return {queue: lanes for queue, lanes in shown.items() if caller.allows("status", queue)}


@routes.delete(_GROUP, needs="seek")
async def delete(broker: Broker, group: str, query: wire.DeleteGroupQuery) -> wire.DeletedGroup:
    """Delete a group in every queue."""
    deleted = await broker.groups.forget(group, keep_subscription=not query.delete_metadata)
    return wire.DeletedGroup(consumer_group=group, deleted_partitions=deleted, metadata_deleted=query.delete_metadata)


@routes.get(f"{_GROUP}/queues/{{queue}}", needs="status", live=True)
async def show_of_queue(broker: Broker, group: str, queue: str) -> wire.GroupSummary:
    """Show a group of one queue with its lag."""
    return await broker.groups.summary(queue, group)


@routes.delete(f"{_GROUP}/queues/{{queue}}", needs="seek")
async def delete_of_queue(broker: Broker, group: str, queue: str, query: wire.DeleteGroupQuery) -> wire.DeletedGroup:
    """Delete a group of one queue."""
    deleted = await broker.groups.forget(group, queue=queue, keep_subscription=not query.delete_metadata)
    return wire.DeletedGroup(
        consumer_group=group, deleted_partitions=deleted, metadata_deleted=query.delete_metadata, queue_name=queue
    )


@routes.post(f"{_GROUP}/subscription", needs="seek")
async def resubscribe(broker: Broker, group: str, body: wire.SubscriptionBody) -> wire.UpdatedSubscription:
    """Change where a group starts in partitions that it has not read yet."""
    updated = await broker.groups.resubscribe(group, body.subscription_timestamp)
    return wire.UpdatedSubscription(
        consumer_group=group, new_timestamp=body.subscription_timestamp, rows_updated=updated
    )


@routes.get(f"{_GROUP}/queues/{{queue}}/seek", needs="status")
async def preview_seek(broker: Broker, group: str, queue: str, query: wire.SeekQuery) -> wire.SeekPreview:
    """Preview a seek: how many messages are delivered again, and how many are skipped."""
    return await broker.groups.preview_seek(queue, group, _target(query))


@routes.post(f"{_GROUP}/queues/{{queue}}/seek", needs="seek")
async def seek(broker: Broker, group: str, queue: str, body: wire.SeekBody = _NOWHERE) -> wire.SoughtGroup:
    """Seek a group to the beginning, the end, a time or a position of a queue."""
    target = _target(body)
    return wire.SoughtGroup(
        consumer_group=group,
        queue_name=queue,
        seek_to_end=target.to == "end",
        target_timestamp=Moment(target.target) if target.to == "time" else None,
        partitions_updated=await broker.groups.seek(queue, group, target),
    )


@routes.post(f"{_GROUP}/queues/{{queue}}/partitions/{{partition}}/seek", needs="seek")
async def seek_partition(
    broker: Broker, group: str, queue: str, partition: str, body: wire.SeekBody = _NOWHERE
) -> wire.SoughtPartition:
    """Seek a group in one partition, by default to its end."""
    target = Seek("end") if body == _NOWHERE else _target(body)
    moved = await broker.groups.seek(queue, group, target, partition=partition)
    lane = await broker.groups.lane(queue, group, partition)
    return wire.SoughtPartition(
        consumer_group=group,
        queue_name=queue,
        partition_name=partition,
        updated=moved > 0,
        cursor_moved_to=moment_or_none(lane.oldest_at) if lane else None,
        position=lane.committed if lane else None,
    )


def _target(body: wire.SeekBody) -> Seek:
    if sum([body.to_end, body.to_beginning, body.timestamp is not None, body.position is not None]) != 1:
        raise InvalidRequest("Must specify one of 'toEnd': true, 'toBeginning': true, 'timestamp' or 'position'")
    if body.timestamp is not None:
        return Seek("time", body.timestamp)
    if body.position is not None:
        return Seek("position", body.position)
    return Seek("end" if body.to_end else "beginning")
