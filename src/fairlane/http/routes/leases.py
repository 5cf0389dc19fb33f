"""Leases: keep one, give one back, see who holds what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.errors import NotFound
from fairlane.http.decode import decode, read
from fairlane.http.query import name_or_none
from fairlane.http.router import Route
from fairlane.http.routes.queues import existing
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire import ExtendBody
from fairlane.http.wire_leases import GroupUse, LeaseList, LeaseQuery, QueueUse, lease_out
from fairlane.model.limits import LEASE_SECONDS_MAX, NEVER_AT
from fairlane.model.moment import timestamp_or_none
from fairlane.model.names import check_count

if TYPE_CHECKING:
    from fairlane.http.app import App


async def extend(app: App, request: Request) -> Response:
    body = decode(request.body, ExtendBody, default=ExtendBody())
    check_count("seconds", body.seconds, least=1, most=LEASE_SECONDS_MAX)
    lease = request.params["leaseId"]
    outcome = await app.broker.renew(lease, seconds=body.seconds)
    ends_at = timestamp_or_none(outcome.expires_at)
    answer = {
        "leaseId": lease,
        "success": outcome.renewed > 0,
        "renewed": outcome.renewed,
        "newExpiresAt": ends_at,
        "expiresAt": ends_at,
        "lease_expires_at": ends_at,
    }
    if not outcome.renewed:
        answer["error"] = "Lease not found or already expired"
    return json_response(answer)


async def release(app: App, request: Request) -> Response:
    lease = request.params["leaseId"]
    return json_response({"leaseId": lease, "released": await app.broker.release(lease)})


async def active(app: App, request: Request) -> Response:
    query = read(request.query, LeaseQuery)
    store = app.broker.store
    queues = {
        queue.id: queue.name for queue in await store.queues.list(app.tenant) if query.queue in (None, queue.name)
    }
    now = await store.now()
    until = NEVER_AT if query.ending_within is None else now + query.ending_within * 1_000_000
    group = name_or_none("consumerGroup", query.consumer_group)
    found = await store.statistics.leases(list(queues), group=group, ends_before=until, limit=query.limit)
    return json_response(LeaseList(leases=[lease_out(lease, queues[lease.queue_id], now) for lease in found]))


async def utilisation(app: App, request: Request) -> Response:
    queue = await existing(app, request.params["queue"])
    store = app.broker.store
    counted = await store.statistics.queues([queue.id])
    if not counted:
        raise NotFound("Queue not found")
    depth, capacity = counted[0].unfinished, queue.options.max_size or None
    groups = [
        GroupUse(
            consumer_group=one.group.name,
            partitions=one.lanes,
            partitions_with_messages=one.lagging,
            partitions_leased=one.leases,
            messages_leased=one.leased,
            pending=one.lag,
            utilisation=one.leases / one.lagging if one.lagging else 0.0,
        )
        for one in await store.statistics.groups([queue.id])
    ]
    answer = QueueUse(
        queue=queue.name,
        partitions=counted[0].partitions,
        depth=depth,
        capacity=capacity,
        remaining=None if capacity is None else max(0, capacity - depth),
        groups=sorted(groups, key=lambda one: one.consumer_group),
    )
    return json_response(answer)


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/leases",
        endpoint=active,
        summary="Live leases, the next to end first: who holds what, since when, for how long.",
        tag="queues",
        query=LeaseQuery,
        answer=LeaseList,
    ),
    Route(
        method="GET",
        path="/api/v1/queues/{queue}/utilisation",
        endpoint=utilisation,
        summary="How much of a queue its consumers hold, its depth, and what room is left.",
        tag="queues",
        answer=QueueUse,
    ),
    Route(
        method="POST",
        path="/api/v1/lease/{leaseId}/extend",
        endpoint=extend,
        summary="Keep a lease longer.",
        tag="messages",
        body=ExtendBody,
        body_required=False,
    ),
    Route(
        method="POST",
        path="/api/v1/lease/{leaseId}/release",
        endpoint=release,
        summary="Give a lease back at once, without a charge.",
        tag="messages",
    ),
]
