"""GET /api/v1/pop/...: leases messages, and can wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.pop_outcome import PopOutcome, PoppedLane
from fairlane.errors import InvalidRequest
from fairlane.http.auth import scopes
from fairlane.http.request_body import read_query
from fairlane.http.router import Routes
from fairlane.http.server import Request, Response
from fairlane.model.group import Mode, Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.lease import PopRequest
from fairlane.model.moment import Moment, second_text
from fairlane.model.principal import ANYBODY
from fairlane.model.segment import NULL_FIELDS, TRACE, Segment, Verified, encode, null_fields
from fairlane.wire.described import PoppedMessages
from fairlane.wire.pop import PopAnyQuery, PopQuery

if TYPE_CHECKING:
    from fairlane.broker.broker import Broker
    from fairlane.http.app import HttpApp

routes = Routes("messages")
_AUTOPILOT_BATCH = 200
_STATUSES = (200, 204)


class CheckedPop(msgspec.Struct, frozen=True):
    """A checked pop."""

    request: PopRequest
    more: str
    """Additional fields of the answer, as JSON."""
    by_lane: bool


_checked: dict[tuple[str, bytes, bytes], CheckedPop] = {}
"""Cache of pops by tenant, path and query, because clients repeat the same few."""
_CHECKED_MAX = 1000
_CHECKED_BYTES_MAX = 400
_CACHED_BYTES_MAX = 32 * 1024
"""Largest segment whose part of an answer is cached."""


@routes.get(
    "/api/v1/pop/queue/{queue}",
    "/api/v1/pop/queue/{queue}/partition/{partition}",
    needs="pop",
    long=True,
    query=PopQuery,
    safe=False,
    answer=PoppedMessages,
    statuses=_STATUSES,
)
async def pop(app: HttpApp, request: Request) -> Response:
    """Pop messages of any partition, or of one."""
    broker = app.broker_of(request)
    checked = await checked_pop(broker, request)
    return pop_answer(app, checked, await broker.requests.pop(checked.request))


async def checked_pop(broker: Broker, request: Request) -> CheckedPop:
    """Return the checked pop of a request. Raises Forbidden if the caller may not create its group."""
    asked = (broker.tenant, request.path, request.query_string)
    checked = _checked.get(asked)
    if checked is None:
        checked = _check(broker.tenant, request, request.params["queue"])
        if len(asked[1]) + len(asked[2]) <= _CHECKED_BYTES_MAX:
            if len(_checked) >= _CHECKED_MAX:
                _checked.clear()
            _checked[asked] = checked
    if request.caller is not ANYBODY:
        await scopes.check_group(broker, request.caller, checked.request.queue, checked.request.group)
    return checked


@routes.get(
    "/api/v1/pop",
    needs="pop",
    each=True,
    long=True,
    query=PopAnyQuery,
    safe=False,
    answer=PoppedMessages,
    statuses=_STATUSES,
)
async def pop_any(app: HttpApp, request: Request) -> Response:
    """Pop messages of any queue with a namespace, a task or both. Each message names its queue."""
    namespace, task = request.query.get("namespace") or None, request.query.get("task") or None
    if namespace is None and task is None:
        raise InvalidRequest("a pop without a queue needs a namespace or a task")
    broker = app.broker_of(request)
    checked = _check(broker.tenant, request, "any")
    popped = await broker.requests.pop_any(checked.request, namespace=namespace, task=task, caller=request.caller)
    return pop_answer(app, checked, popped, named=True)


def _check(tenant: str, request: Request, queue: str) -> CheckedPop:
    query: PopQuery = read_query(request.query, PopQuery)
    batch, partitions = (_AUTOPILOT_BATCH, 10) if query.autopilot else (1, 1)
    asked = PopRequest(
        tenant=tenant,
        queue=queue,
        group=query.consumer_group,
        batch=query.batch or batch,
        partitions=query.partitions or partitions,
        partition=request.params.get("partition"),
        auto_ack=query.auto_ack,
        lease_seconds=query.lease_seconds or None,
        wait_seconds=query.timeout / 1000 if query.wait else 0.0,
        subscription=_subscription(query),
    ).check()
    more = f',"autopilot":{{"partitions":{asked.partitions},"batch":{asked.batch}}}' if query.autopilot else ""
    return CheckedPop(asked, more, query.by_lane)


def _subscription(query: PopQuery) -> Subscription:
    """Return the subscription: `new` or from `now` for new messages only, from a time, or everything."""
    start = query.subscription_from
    if not start or start == "now":
        mode: Mode = "new" if query.subscription_mode == "new" or start else "all"
        return Subscription(mode, None, query.conflation, query.look)
    try:
        return Subscription("time", int(Moment.parse(start)), query.conflation, query.look)
    except ValueError:
        raise InvalidRequest(
            f"subscriptionFrom is {start!r:.80}; it must be `now` or a time like 2026-01-31T12:00:00Z"
        ) from None


@lru_cache(maxsize=10_000)
def _lane_json(partition: PartitionId, name: str) -> tuple[str, str]:
    """Return the JSON of a lane for its messages, and for the answer."""
    quoted = encode(name).decode()
    return f'"partitionId":"{partition}","partition":{quoted}', f'"partition":{quoted},"partitionId":"{partition}"'


@lru_cache(maxsize=10_000)
def _names_json(queue: str, group: str) -> tuple[str, str]:
    return encode(queue).decode(), encode(group).decode()


def pop_answer(
    app: HttpApp, checked: CheckedPop, popped: PopOutcome, *, named: bool = False, more: str = "", status: int = 200
) -> Response:
    """Build the answer from stored bytes. With `named`, each message names its queue.

    `more` has fields to add. Without them, an answer without messages is a 204.
    """
    lanes, asked = popped.lanes, checked.request
    wanted = asked.subscription.conflation
    if not lanes and not wanted and not more:
        return Response(204)
    queue, group = _names_json(popped.queue, popped.group)
    if wanted or popped.conflation:  # confirms in every answer that conflation was understood
        more += ',"conflation":true' if popped.conflation else ""
        more += ',"conflationConflict":true' if wanted != popped.conflation else ""
    more += checked.more
    if popped.lease_id:
        more += f',"leaseSeconds":{popped.lease_seconds}'
    if popped.retry_delay_ms:
        more += f',"retryDelay":{popped.retry_delay_ms}'
    if popped.ordered:
        more += ',"ordered":true'
    unsent = partial(app.broker.messages.give_back, popped.lease) if popped.lease is not None else None
    if checked.by_lane:
        head = f'{{"success":true,"queue":{queue},"leaseId":"{popped.lease_id}","consumerGroup":{group}{more},"lanes":['
        return Response(status, head.encode(), parts=_lane_parts(lanes), unsent=unsent)
    end = f'"leaseId":"{popped.lease_id}","consumerGroup":{group},'
    end += f'"queue":{queue},"position":' if named else '"position":'
    parts = _message_parts(lanes, end.encode())
    where = '"partition":"","partitionId":null'
    if lanes:
        where = _lane_json(lanes[0].lane.partition, lanes[0].lane.name)[1]
    head = (
        f'{{"success":true,"queue":{queue},{where},"leaseId":"{popped.lease_id}","consumerGroup":{group},'
        f'"partitionsClaimed":{len(lanes)}{more},"messages":['
    )
    return Response(status, head.encode(), parts=parts, unsent=unsent)


def _lane_parts(lanes: Sequence[PoppedLane]) -> list[bytes]:
    """Return the lanes of an answer, each with its messages as they are stored."""
    parts: list[bytes] = []
    for taken in lanes:
        lane = taken.lane
        failed = f',"failedAttempts":{lane.attempts}' if lane.attempts else ""
        where = f'{{{_lane_json(lane.partition, lane.name)[1]},"first":{lane.first}{failed}'
        times = ",".join([f"[{count},{at}]" for count, at in taken.created_at])
        parts += f'{where},"createdAt":[{times}],"messages":'.encode(), taken.text(), b"},"
    parts[-1:] = [b"}]}"] if parts else [b"]}"]
    return parts


def _message_parts(lanes: Sequence[PoppedLane], end: bytes) -> list[bytes]:
    """Return the messages of an answer. `end` has the fields of this pop, up to the position of the message."""
    texts: list[bytes] = []
    for taken in lanes:
        lane = taken.lane
        where, position, attempts = _lane_json(lane.partition, lane.name)[0].encode(), lane.first, lane.attempts
        for segment in lane.segments:
            whole = position == segment.first and lane.upto >= position + len(segment.ends)
            cached = whole and type(segment) is Verified and len(segment.body) <= _CACHED_BYTES_MAX
            parts = _cached_parts(segment, where) if cached else _parts(segment, where, position, lane.upto)
            text = b'"retryCount":0,%b' % end
            if attempts:  # only the first message of a lane can have failed before
                parts = [b'%b"retryCount":%d,%b%b' % (parts[0], attempts, end, parts[1]), *parts[2:]]
            texts.append(text.join(parts))
            position, attempts = segment.first + len(segment.ends), 0
    return [b",".join(texts), b"]}"]


def _parts(segment: Segment, where: bytes, first: int, upto: int) -> list[bytes]:
    """Return the parts of an answer between which each message has the fields of its pop."""
    second, micros = divmod(segment.created_at, 1_000_000)
    created = b',"createdAt":"%b.%06dZ",%b,' % (second_text(second).encode(), micros, where)
    fragments = segment.cut(first, upto)
    if TRACE in segment.body:  # some messages may have fields that others lack
        heads = [b"%b%b%b" % (fragment, created, null_fields(fragment)) for fragment in fragments]
        parts = [b"%d},%b" % (before, head) for before, head in enumerate(heads, first - 1)]
    else:
        created += NULL_FIELDS
        parts = [b"%d},%b%b" % (before, fragment, created) for before, fragment in enumerate(fragments, first - 1)]
    parts[0] = parts[0].partition(b",")[2]
    parts.append(b"%d}" % (first + len(fragments) - 1))
    return parts


@lru_cache(maxsize=128)
def _cached_parts(segment: Segment, where: bytes) -> list[bytes]:
    """Return `_parts` of a whole segment, cached for the pops of other groups."""
    return _parts(segment, where, segment.first, segment.first + len(segment.ends))
