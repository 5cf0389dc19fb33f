"""POST /api/v1/push."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.engine.draft import PushRequest
from fairlane.errors import InvalidRequest, Overloaded, QueueFull
from fairlane.http.message import Request, Response
from fairlane.http.problems import problem
from fairlane.http.router import Route
from fairlane.http.wire import PushBody, WireItem, decode
from fairlane.model.limits import BATCH_ITEMS_MAX, JSON_DEPTH_MAX
from fairlane.model.message import check_depth
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.outcome import PushOutcome
from fairlane.model.segment import encode

if TYPE_CHECKING:
    from fairlane.http.app import App


async def push(app: App, request: Request) -> Response:
    items = decode(request.body, PushBody).items
    check_wire_items(items)
    outcomes = await app.engine.push(PushRequest(app.tenant, items))
    refused = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
    elements = b"[%b]" % b",".join(map(push_element, range(len(items)), items, outcomes))
    if refused is not None and all(outcome.error is not None for outcome in outcomes):
        answer = problem(refused)
        if len(items) > 1:  # they may have been refused for different reasons
            answer.body = b'%b,"results":%b}' % (answer.body[:-1], elements)
        return answer
    if isinstance(refused, Overloaded):
        return Response(429, elements)
    return Response(202 if any(outcome.status == "buffered" for outcome in outcomes) else 201, elements)


def check_wire_items(items: list[WireItem]) -> None:
    """InvalidRequest names the item's index; nothing was stored."""
    if len(items) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"a push may have {BATCH_ITEMS_MAX} items, not {len(items)}")
    for index, item in enumerate(items):
        if item.partition is None:
            item.partition = DEFAULT_PARTITION
        try:
            item.check()
            # A payload that is short enough cannot be nested too deeply.
            if len(item.payload) > 2 * JSON_DEPTH_MAX:
                check_depth(bytes(item.payload))
        except InvalidRequest as error:
            raise InvalidRequest(f"items[{index}]: {error}") from None


_names: dict[str, bytes] = {}


def name_json(name: str) -> bytes:
    """A name as JSON; the same few names come again and again."""
    known = _names.get(name)
    if known is None:
        if len(_names) > 10_000:
            _names.clear()
        known = _names[name] = encode(name)
    return known


def push_element(index: int, item: WireItem, outcome: PushOutcome) -> bytes:
    """What became of one item."""
    message_id = outcome.message_id
    given = item.transaction_id
    transaction = b'"%b"' % outcome.transaction_id.encode() if given is None else encode(given)
    if outcome.status == "queued" and message_id is not None:
        trace = b"null" if item.trace_id is None else b'"%b"' % item.trace_id.encode()
        limits = b"" if outcome.capacity is None else _limits(outcome)
        return (
            b'{"index":%d,"transaction_id":%b,"status":"queued","message_id":"%b","partition_id":"%b","trace_id":%b,'
            b'"queueName":%b%b}'
            % (
                index,
                transaction,
                message_id.encode(),
                str(outcome.partition).encode(),
                trace,
                name_json(item.queue),
                limits,
            )
        )
    answer = {"index": index, "transaction_id": outcome.transaction_id, "status": outcome.status}
    if outcome.error is not None:
        answer |= {"status": "failed", "error": str(outcome.error), "code": outcome.error.code}
        if isinstance(outcome.error, QueueFull):
            full = outcome.error
            answer |= {"queueDepth": full.depth, "capacity": full.capacity, "retryAfter": full.retry_after}
    elif outcome.status == "buffered":
        answer |= {
            "operationId": outcome.operation_id,
            "queuePosition": outcome.queue_position,
            "reason": outcome.reason,
            "estimatedWait": outcome.estimated_wait,
            "durability": outcome.durability,
        }
    else:
        answer |= {"message_id": message_id, "partition_id": str(outcome.partition)}
    return encode(answer | {"queueName": item.queue})


def _limits(outcome: PushOutcome) -> bytes:
    depth, capacity = outcome.depth or 0, outcome.capacity or 0
    return b',"queueDepth":%d,"remainingCapacity":%d' % (depth, max(0, capacity - depth))


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/push",
        endpoint=push,
        summary="Store messages; queues and partitions are made when first named.",
        tag="messages",
        body=PushBody,
        statuses=(201, 202, 429),
    )
]
