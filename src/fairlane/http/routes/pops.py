"""GET /api/v1/pop/...: lease messages, waiting for them if asked to."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.delivery import Popped
from fairlane.errors import InvalidRequest
from fairlane.http.query import flag, number, text
from fairlane.http.router import Route
from fairlane.http.routes.pushes import name_json
from fairlane.http.server import Request, Response
from fairlane.model.group import Subscription
from fairlane.model.lease import PopRequest
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, WAIT_SECONDS_MAX
from fairlane.model.moment import timestamp
from fairlane.model.names import QUEUE_MODE
from fairlane.wire.pop import PopAnyQuery, PopQuery

if TYPE_CHECKING:
    from fairlane.http.app import App

_AUTOPILOT_BATCH = 200


async def pop(app: App, request: Request) -> Response:
    asked = pop_request(app.tenant, request)
    return _answer(app, request, asked, await app.broker.pop_request(asked.check()))


async def pop_any(app: App, request: Request) -> Response:
    """Of whichever queue has these labels; each message names its queue."""
    namespace, task = request.query.get("namespace") or None, request.query.get("task") or None
    if namespace is None and task is None:
        raise InvalidRequest("a pop without a queue needs a namespace or a task")
    asked = msgspec.structs.replace(pop_request(app.tenant, request), queue="any")
    popped = await app.broker.pop_any(asked.check(), namespace=namespace, task=task)
    return _answer(app, request, asked, popped, named=True)


def _answer(app: App, request: Request, asked: PopRequest, popped: Popped, *, named: bool = False) -> Response:
    wanted = asked.subscription.conflation
    if not popped.lanes and not wanted:
        return Response(204)
    more = ""
    if wanted or popped.conflation:  # who asks for it must see in every answer that it was understood
        more = ',"conflation":true' if popped.conflation else ""
        more += ',"conflationConflict":true' if wanted != popped.conflation else ""
    if flag(request.query, "autopilot"):
        more += f',"autopilot":{{"partitions":{asked.partitions},"batch":{asked.batch}}}'
    unsent = partial(app.broker.give_back, popped.lease) if popped.lease is not None else None
    return Response(200, parts=pop_answer(popped, named=named, more=more), unsent=unsent)


def pop_request(tenant: str, request: Request) -> PopRequest:
    query = request.query
    autopilot = flag(query, "autopilot")
    wait = flag(query, "wait")
    timeout_ms = number(query, "timeout", 30_000, least=0, most=WAIT_SECONDS_MAX * 1000)
    lease = number(query, "leaseSeconds", 0, least=0, most=LEASE_SECONDS_MAX)
    partition = request.params.get("partition")
    return PopRequest(
        tenant=tenant,
        queue=request.params.get("queue", ""),
        group=text(query, "consumerGroup", QUEUE_MODE),
        batch=max(
            1, number(query, "batch", _AUTOPILOT_BATCH if autopilot else 1, least=-(2**31), most=BATCH_ITEMS_MAX)
        ),
        partitions=max(1, number(query, "partitions", 10 if autopilot else 1, least=-(2**31), most=BATCH_ITEMS_MAX)),
        partition=partition,
        auto_ack=flag(query, "autoAck"),
        lease_seconds=lease or None,
        wait_seconds=timeout_ms / 1000 if wait else 0.0,
        subscription=msgspec.structs.replace(
            subscription(
                text(query, "subscriptionMode", ""), text(query, "subscriptionFrom", ""), flag(query, "conflation")
            ),
            look=flag(query, "look"),
        ),
    )


def subscription(mode: str, start: str, conflation: bool) -> Subscription:
    """`new` or from `now`: only what comes; a time: from then; anything else: everything."""
    if start and start != "now":
        try:
            at = datetime.fromisoformat(start)
        except ValueError:
            raise InvalidRequest(
                f"subscriptionFrom is {start!r:.80}; it must be `now` or a time like 2026-01-31T12:00:00Z"
            ) from None
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return Subscription("time", max(0, int(at.timestamp() * 1_000_000)), conflation)
    return Subscription("new" if mode == "new" or start == "now" else "all", conflation=conflation)


def pop_answer(popped: Popped, *, named: bool = False, more: str = "") -> list[bytes]:
    """The answer in pieces of stored bytes: each message is its fragment and what only this pop knows. `named`: also
    its queue. `more`: further keys of the answer."""
    lease = str(popped.lease) if popped.lease else ""
    queue, group = name_json(popped.queue), name_json(popped.group)
    end = f'"leaseId":"{lease}","consumerGroup":{group},"producerSub":null' + (f',"queue":{queue}}}' if named else "}")
    parts: list[bytes] = []
    for taken in popped.lanes:
        lane = taken.lane
        where = f'","partitionId":"{lane.partition}","partition":{name_json(lane.name)},{end}'
        start = 0
        for count, created_at in taken.created_at:
            if count:
                suffix = f',"createdAt":"{timestamp(created_at)}{where},'.encode()
                parts += suffix.join(taken.fragments[start : start + count]), suffix
                start += count
    if lease:
        more += f',"leaseSeconds":{popped.lease_seconds}'
    if popped.ordered:
        more += ',"ordered":true'
    if any(taken.lane.attempts for taken in popped.lanes):
        more += f',"failedAttempts":{_failed_attempts(popped)}'
    partition = '"partition":"","partitionId":null'
    if popped.lanes:
        first = popped.lanes[0].lane
        partition = f'"partition":{name_json(first.name)},"partitionId":"{first.partition}"'
    head = (
        f'{{"success":true,"queue":{queue},{partition},"leaseId":"{lease}","consumerGroup":{group},'
        f'"partitionsClaimed":{len(popped.lanes)}{more},"messages":['
    )
    if parts:
        parts[-1] = parts[-1][:-1]
    return [head.encode(), *parts, b"]}"]


def _failed_attempts(popped: Popped) -> str:
    """By the number of the message in the answer: only the first one of a lane can have failed before."""
    counts: dict[str, int] = {}
    index = 0
    for taken in popped.lanes:
        if taken.lane.attempts:
            counts[str(index)] = taken.lane.attempts
        index += len(taken.fragments)
    return msgspec.json.encode(counts).decode()


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/pop",
        endpoint=pop_any,
        summary="Lease messages of any queue with a namespace, a task or both.",
        tag="messages",
        query=PopAnyQuery,
        safe=False,
        statuses=(200, 204),
    ),
    Route(
        method="GET",
        path="/api/v1/pop/queue/{queue}",
        endpoint=pop,
        summary="Lease messages of any partition.",
        tag="messages",
        query=PopQuery,
        safe=False,
        statuses=(200, 204),
    ),
    Route(
        method="GET",
        path="/api/v1/pop/queue/{queue}/partition/{partition}",
        endpoint=pop,
        summary="Lease messages of one partition.",
        tag="messages",
        query=PopQuery,
        safe=False,
        statuses=(200, 204),
    ),
]
