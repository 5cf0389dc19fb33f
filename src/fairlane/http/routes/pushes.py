"""POST /api/v1/push."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import msgspec

from fairlane.broker.push_batch import PushRequest
from fairlane.errors import InvalidRequest, Overloaded, QueueFull
from fairlane.http.auth import scopes
from fairlane.http.problems import problem, public_text
from fairlane.http.request_body import (
    COUNTED_BYTES,
    SHALLOW_BYTES,
    Nested,
    check_counts,
    check_depths,
    decode,
    is_shallow,
    read_query,
)
from fairlane.http.router import Routes
from fairlane.http.server import Request, Response
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, REQUEST_BYTES_MAX
from fairlane.model.moment import timestamp
from fairlane.model.names import DEFAULT_PARTITION, are_plain, is_its_own_json, is_plain, known_names
from fairlane.model.outcome import PushOutcome
from fairlane.model.principal import ANYBODY
from fairlane.model.segment import encode
from fairlane.otel import tracing
from fairlane.wire.base import decoder
from fairlane.wire.described import Pushed
from fairlane.wire.push import Item, PushBody, PushQuery, UniformPushBody

if TYPE_CHECKING:
    from fairlane.broker.broker import Broker
    from fairlane.http.app import HttpApp


routes = Routes("messages")
_decode = decoder(PushBody).decode
_decode_uniform = decoder(UniformPushBody).decode


@routes.post(
    "/api/v1/push",
    needs="push",
    each=True,
    audited=False,
    query=PushQuery,
    body=PushBody,
    answer=Pushed,
    body_bytes_max=REQUEST_BYTES_MAX,
    statuses=(201, 202, 422, 429),
)
async def push(app: HttpApp, request: Request) -> Response:
    """Push messages. Queues and partitions are created on first use."""
    broker = app.broker_of(request)
    deferred, as_is = broker.requests.admit_push()  # decided before the body is decoded
    as_is = as_is and request.caller is ANYBODY and b"traceparent" not in request.headers
    if len(request.body) > COUNTED_BYTES:
        check_counts(request.body, PushBody)
    items = uniform_items(request.body) if as_is else None
    if items is not None:
        pushed = PushRequest(broker.tenant, items, plain=True)
    else:
        pushed = await _read_push(broker, request)
        items = cast(list[Item], pushed.items)
    outcomes = await broker.requests.push(pushed, deferred)
    if (
        len(items) == 1 and not request.query_string and outcomes[0].status == "queued"
    ):  # the common case of producers that push single messages
        return Response(201, f"[{push_element(0, items[0], outcomes[0])}]".encode())
    statuses = {outcome.status for outcome in outcomes}
    if statuses == {"queued"} and _fits_fast_encoder(items, outcomes):
        brief = request.query_string != b"" and read_query(request.query, PushQuery).brief
        return Response(201, _brief_answer(outcomes) if brief else _fast_elements(items, outcomes))
    elements = f"[{','.join(map(push_element, range(len(items)), items, outcomes))}]".encode()
    if "refused" in statuses:
        return _refusal(outcomes, elements, whole=len(statuses) == 1)
    return Response(202 if "buffered" in statuses else 201, elements)


def uniform_items(body: bytes) -> list[Item] | None:
    """Decode a push with `UniformItem`. Returns None if some items need the full checks."""
    if not body.isascii():
        return None
    try:
        items = _decode_uniform(body).items
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not 0 < len(items) <= BATCH_ITEMS_MAX:
        return None
    if len(items) == 1:
        [item] = items
        known = item.queue in known_names and item.partition in known_names
        known = known and (len(item.payload) <= SHALLOW_BYTES or is_shallow(item.payload))
        plain = item.transaction_id is None or is_plain(item.transaction_id)
        return cast(list[Item], items) if known and plain else None
    names = {item.partition for item in items}
    names.update([item.queue for item in items])
    ids = [item.transaction_id for item in items if item.transaction_id is not None]
    if not names <= known_names.keys():
        return None
    if [1 for item in items if len(item.payload) > SHALLOW_BYTES and not is_shallow(item.payload)]:
        return None
    return cast(list[Item], items) if not ids or are_plain(ids) else None


async def _read_push(broker: Broker, request: Request) -> PushRequest:
    """Decode and check the items of any push."""
    try:
        if not request.body.isascii():
            request.body.decode()
        items = _decode(request.body).items
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        items = decode(request.body, PushBody).items  # accepts some of these, and explains the errors of others
    nested: list[Nested] = []
    special = check_wire_items(items, nested, request.caller.subject)
    if nested:
        await check_depths(nested)
    if request.caller is not ANYBODY:
        await scopes.check_pushes(broker, request.caller, [item.queue for item in items])
    if b"traceparent" in request.headers:
        tracing.add_context(items, tracing.context_of_request(request.headers))
    return PushRequest(broker.tenant, items, special)


def _refusal(outcomes: list[PushOutcome], elements: bytes, *, whole: bool) -> Response:
    """Return the answer to a push with refused items. `whole` means that all were refused."""
    refused = next(outcome.error for outcome in outcomes if outcome.error is not None)
    if not whole:
        if not isinstance(refused, Overloaded):
            return Response(201, elements)
        return Response(429, elements, headers=((b"retry-after", str(math.ceil(refused.retry_after)).encode()),))
    answer = problem(refused)
    if len(outcomes) > 1:  # they may have been refused for different reasons
        answer.body = b'%b,"results":%b}' % (answer.body[:-1], elements)
    return answer


def check_wire_items(items: list[Item], nested: list[Nested], subject: str | None, where: str = "items") -> bool:
    """Check items and return True if some have a delivery time or priority. InvalidRequest names the index.

    Payloads that may be nested too deeply are added to `nested`, for `check_depths`, under the name `where`. The items
    get `subject` as their producer.
    """
    special = False
    if len(items) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"a push may have {BATCH_ITEMS_MAX} items, not {len(items)}")
    if subject is not None:
        for item in items:
            item.producer_sub = subject
    ids = [item.transaction_id for item in items if item.transaction_id is not None]
    plain = not ids or are_plain(ids)
    for index, item in enumerate(items):
        if (  # the common case; other items are checked in full
            (plain or item.transaction_id is None)
            and item.queue in known_names
            and item.partition in known_names
            and item.trace_id is None
            and item.type is None
            and item.headers is None
            and item.deliver_at is None
            and item.delay_ms is None
            and item.priority is None
            and item.max_attempts is None
            and item.unique is None
            and item.unique_key is None
            and item.producer_sub is subject
            and is_shallow(item.payload)
        ):
            continue
        item.producer_sub = subject
        try:
            _check(item)
            special = special or item.has_options
        except InvalidRequest as error:
            raise InvalidRequest(f"items[{index}]: {error}") from None
        if not is_shallow(item.payload):
            nested.append((where, index, item.payload))
    return special


def _check(item: Item) -> None:
    if item.partition is None:
        item.partition = DEFAULT_PARTITION
    item.check()


def _fits_fast_encoder(items: list[Item], outcomes: list[PushOutcome]) -> bool:
    """Return True if `_fast_elements` can encode the outcomes: no limits, no ids to quote."""
    given = "".join([item.transaction_id for item in items if item.transaction_id is not None])
    fields: list[object] = [item.trace_id for item in items]
    fields += [outcome.capacity for outcome in outcomes]
    return (
        len(items) <= len(_HEADS)
        and fields.count(None) == len(fields)
        and None not in [outcome.partition for outcome in outcomes]
        and is_its_own_json(given) is not None
    )


_HEADS = [f'{{"index":{index},"transaction_id":"' for index in range(1000)]
_tails: dict[tuple[PartitionId | None, str], str] = {}


def _brief_answer(outcomes: list[PushOutcome]) -> bytes:
    ids = '","'.join([outcome.message_id or "" for outcome in outcomes])
    rows = groupby([outcome.partition for outcome in outcomes])
    partitions = ",".join([f'["{partition}",{len(list(some))}]' for partition, some in rows])
    return f'{{"messageIds":["{ids}"],"partitions":[{partitions}]}}'.encode()


def _fast_elements(items: list[Item], outcomes: list[PushOutcome]) -> bytes:
    """Encode the outcomes like `push_element`, in less than half the time."""
    elements = [
        f'{head}{outcome.transaction_id}","status":"queued","message_id":"{outcome.message_id}'
        f"{_tails.get((outcome.partition, item.queue)) or _tail(outcome.partition, item.queue)}"
        for head, item, outcome in zip(_HEADS, items, outcomes, strict=False)
    ]
    return f"[{','.join(elements)}]".encode()


def _tail(partition: PartitionId | None, queue: str) -> str:
    if len(_tails) > 10_000:
        _tails.clear()
    tail = f'","partition_id":"{partition}","trace_id":null,"queueName":{name_json(queue)}}}'
    _tails[partition, queue] = tail
    return tail


_names: dict[str | None, str] = {}


def name_json(name: str | None) -> str:
    """Return a name as JSON, cached."""
    known = _names.get(name)
    if known is None:
        if len(_names) > 10_000:
            _names.clear()
        known = _names[name] = encode(name).decode()
    return known


def push_element(index: int, item: Item, outcome: PushOutcome) -> str:
    """Encode the outcome of one item."""
    where, given = outcome.partition, item.transaction_id
    if (outcome.status != "queued" or where is None) and outcome.status != "buffered":
        return _other_element(index, item, outcome)
    transaction = f'"{outcome.transaction_id}"' if given is None else encode(given).decode()
    trace = "null" if item.trace_id is None else f'"{item.trace_id}"'
    limits = "" if outcome.capacity is None else _limits(outcome)
    if outcome.status == "buffered":
        why = (outcome.operation_id, outcome.queue_position, outcome.reason, outcome.estimated_wait, outcome.durability)
        head = f'{{"index":{index},"transaction_id":{transaction},"trace_id":{trace}{limits},'
        return head + _operation_tail(item.queue, *why)
    assert where is not None
    queue = _names.get(item.queue) or name_json(item.queue)
    return (
        f'{{"index":{index},"transaction_id":{transaction},"status":"queued","message_id":"{outcome.message_id}",'
        f'"partition_id":"{where[0]}-{where[1]}","trace_id":{trace},"queueName":{queue}{limits}}}'
    )


@lru_cache(maxsize=16)
def _operation_tail(queue: str, *why: Any) -> str:
    """Encode the fields that all items of one operation share."""
    operation, position, reason, wait, durability = why
    fields = {"status": "buffered", "operationId": operation, "queuePosition": position, "reason": reason}
    fields |= {"estimatedWait": wait, "durability": durability, "queueName": queue}
    return encode(fields).decode()[1:]


def _other_element(index: int, item: Item, outcome: PushOutcome) -> str:
    answer: dict[str, Any] = {"index": index, "transaction_id": outcome.transaction_id, "trace_id": item.trace_id}
    if outcome.error is not None:
        answer |= {"status": "failed", "error": public_text(outcome.error), "code": outcome.error.code}
        if isinstance(outcome.error, QueueFull):
            full = outcome.error
            answer |= {"queueDepth": full.depth, "capacity": full.capacity, "retryAfter": full.retry_after}
    else:
        answer |= {
            "status": outcome.status,
            "message_id": outcome.message_id,
            "partition_id": str(outcome.partition),
        }
        if outcome.deliver_at is not None:
            answer["deliverAt"] = timestamp(outcome.deliver_at)
    return encode(answer | {"queueName": item.queue}).decode()


def _limits(outcome: PushOutcome) -> str:
    """Encode the capacity of a queue that is left, and its fill level: 0 if it is empty, 1 if it is full."""
    depth, capacity = outcome.depth or 0, outcome.capacity or 0
    room, pressure = max(0, capacity - depth), round(min(1.0, depth / (capacity or 1)), 4)
    return f',"queueDepth":{depth},"remainingCapacity":{room},"pressure":{pressure}'
