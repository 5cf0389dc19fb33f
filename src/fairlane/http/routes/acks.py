"""POST /api/v1/ack and /api/v1/ack/batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from fairlane.broker.ack import AckRequest
from fairlane.errors import InvalidRequest
from fairlane.http.auth import scopes
from fairlane.http.request_body import COUNTED_BYTES, check_counts, decode
from fairlane.http.router import Routes
from fairlane.http.server import Request, Response
from fairlane.model.ids import PartitionId, known_partition
from fairlane.model.limits import BATCH_ITEMS_MAX, COUNT_MAX, NAME_CHARS_MAX, REQUEST_BYTES_MAX
from fairlane.model.names import QUEUE_MODE, check_count, check_name, is_its_own_json
from fairlane.model.outcome import COMPLETED, CUMULATIVE, AckItem, AckOutcome, Outcomes, UniformAcks
from fairlane.model.principal import ANYBODY
from fairlane.model.segment import encode
from fairlane.wire.ack import Ack, AckBatch, UniformAckBatch, UniformAckBody
from fairlane.wire.base import decoder
from fairlane.wire.described import AckedMessage

if TYPE_CHECKING:
    from fairlane.broker.broker import Broker
    from fairlane.http.app import HttpApp

Names = tuple[str | None, str | None]
Acks = list[Ack] | list[UniformAckBody]
Settle = Callable[[AckRequest], Awaitable[Sequence[AckOutcome]]]
routes = Routes("messages")
_decode = decoder(Ack).decode
_decode_uniform = decoder(UniformAckBatch).decode


@routes.post(
    "/api/v1/ack", needs="pop", each=True, audited=False, body=Ack, answer=list[AckedMessage], statuses=(200, 202)
)
async def ack(app: HttpApp, request: Request) -> Response:
    """Ack one message, and earlier ones of its lease unless `cumulative` is false."""
    try:
        body = _decode(request.body) if request.body.isascii() else decode(request.body, Ack)
    except (msgspec.MsgspecError, RecursionError):
        body = decode(request.body, Ack)  # accepts some of these, and explains the errors of others
    if body.count is not None:
        raise InvalidRequest("`count` is for acks of a batch")
    if body.cumulative is None:
        body.cumulative = True  # expected by the test suite of the published clients
    broker = app.broker_of(request)
    return await settle_acks(broker, request, [body], body.consumer_group, _uniform_acks([body]), broker.requests.ack)


@routes.post(
    "/api/v1/ack/batch",
    needs="pop",
    each=True,
    audited=False,
    body=AckBatch,
    answer=list[AckedMessage],
    body_bytes_max=REQUEST_BYTES_MAX,
    statuses=(200, 202),
)
async def ack_batch(app: HttpApp, request: Request) -> Response:
    """Ack many messages of one group, and only those."""
    broker = app.broker_of(request)
    return await settle_acks(broker, request, *decode_batch(request), broker.requests.ack)


def decode_batch(request: Request) -> tuple[Acks, str | None, Sequence[AckItem] | None]:
    """Return the acks of a body and their group. The items are columns if they are uniform, and otherwise None."""
    uniform: UniformAckBatch | None = None
    if len(request.body) > COUNTED_BYTES:
        check_counts(request.body, AckBatch)
    if request.body.isascii():
        with suppress(msgspec.MsgspecError, RecursionError):
            uniform = _decode_uniform(request.body)
    if uniform is not None and (items := _rows(uniform.acknowledgments)) is not None:
        return uniform.acknowledgments, uniform.consumer_group, items
    body = decode(request.body, AckBatch)
    return body.acknowledgments, body.consumer_group, _uniform_acks(body.acknowledgments)


_checked_group = lru_cache(maxsize=1000)(partial(check_name, "consumerGroup"))


async def settle_acks(
    broker: Broker, request: Request, bodies: Acks, group: str | None, items: Sequence[AckItem] | None, settle: Settle
) -> Response:
    """Apply acks with `settle`. The status is 202 if some became operations. `items` has them if they are uniform."""
    if items is None:
        items = ack_items(cast(list[Ack], bodies))
    if request.caller is not ANYBODY:
        ids = {body.partition_id for body in bodies}
        await scopes.check_partitions(broker, request.caller, "pop", ids)
    outcomes = await settle(AckRequest(broker.tenant, _checked_group(group or QUEUE_MODE), items))
    if (
        type(items) is UniformAcks
        and type(outcomes) is Outcomes
        and (answer := _all_done(broker, bodies, items, outcomes))
    ):
        return Response(200, answer)
    names = await broker.queues.partition_names([item.partition for item in items])
    elements = map(ack_element, range(len(items)), items, outcomes, [names[item.partition] for item in items])
    deferred = any(outcome.durability is not None for outcome in outcomes)
    return Response(202 if deferred else 200, f"[{','.join(elements)}]".encode())


def _all_done(broker: Broker, bodies: Acks, items: UniformAcks, outcomes: Outcomes) -> bytes | None:
    """Return the answer to acks that are all done, one element for each ack. None if the fast path does not apply."""
    lanes = outcomes.by_lane()
    if lanes is None:
        return None
    elements: list[str] = []
    rows = len(bodies) < items.size
    following, index = cast(Iterator[Ack | UniformAckBody], iter(bodies)), 0
    for ((partition, _), indexes), outcome in zip(items.lanes.items(), lanes, strict=True):
        queue, name = broker.queues.known_names(partition)
        if name is None or not outcome.success or outcome.noop or outcome.durability is not None:
            return None
        end = _done_json(queue, name, outcome.lease_released)
        if rows:
            while index <= indexes[-1]:
                body = next(following)
                if body.count is None:
                    elements.append(f'{{"index":{index},"transactionId":"{body.transaction_id}",{end}')
                else:
                    elements.append(f'{{"index":{index},"count":{body.count},"transactionId":"",{end}')
                index += body.count or 1
            continue
        ids = items.transaction_ids[indexes[0] : indexes[-1] + 1]
        elements += [f'{{"index":{index},"transactionId":"{id}",{end}' for index, id in zip(indexes, ids, strict=True)]
    return f"[{','.join(elements)}]".encode()


def _uniform_acks(bodies: list[Ack]) -> UniformAcks | None:
    """Return the acks as columns if all only complete messages, lane after lane.

    Returns None otherwise, and if ids have to be looked up.
    """
    if not bodies:
        return None
    for body in bodies:
        if body.status != "completed" or body.error is not None or body.delay_ms is not None or body.result:
            return None
        if body.cumulative and len(bodies) > 1:
            return None
    return _rows(bodies, CUMULATIVE if bodies[0].cumulative else COMPLETED)


def _rows(bodies: Acks, verdict: AckItem = COMPLETED) -> UniformAcks | None:
    """Return acks that only complete messages as columns, or None if their ids have to be looked up."""
    _check_size(bodies)
    if not bodies:
        return None
    given = [body.position for body in bodies if body.position is not None]
    if len(given) < len(bodies) and [1 for body in bodies if body.count is not None]:
        return None
    ids = [body.transaction_id or ("row" if body.count is not None else "") for body in bodies]
    if not is_its_own_json("".join(ids)) or not all(ids) or max(map(len, ids)) > NAME_CHARS_MAX:
        return None
    if given and not 0 <= min(given) <= max(given) <= COUNT_MAX:
        return None
    lanes: dict[tuple[PartitionId, str | None], range] = {}
    positions: dict[tuple[PartitionId, str | None], Sequence[int]] = {}
    start = 0
    for (partition, lease), some in groupby(bodies, key=attrgetter("partition_id", "lease_id")):
        where, acks = known_partition(partition), list(some)
        if where is None or not lease or (where, lease) in lanes:
            return None
        if len(given) == len(bodies):
            positions[where, lease] = _positions(acks)
        stop = start + (len(positions[where, lease]) if positions else len(acks))
        lanes[where, lease] = range(start, stop)
        start = stop
    return UniformAcks(lanes, positions or None, lambda: _ids(bodies), verdict)


def _check_size(bodies: Acks) -> None:
    messages = len(bodies) + sum([body.count - 1 for body in bodies if body.count is not None])
    if messages > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"an ack may have {BATCH_ITEMS_MAX} items, not {messages}")


def _positions(bodies: Sequence[Any]) -> Sequence[int]:
    """Return the positions of the messages of one lane's acks."""
    if len(bodies) == 1:
        first = bodies[0].position or 0
        return range(first, first + (bodies[0].count or 1))
    return [(body.position or 0) + nth for body in bodies for nth in range(body.count or 1)]


def _ids(bodies: Acks) -> list[str]:
    """Return the transactionIds of the messages. They are empty for acks of consecutive messages."""
    return [id for body in bodies for id in ([body.transaction_id] if body.count is None else [""] * body.count)]


def ack_items(bodies: list[Ack]) -> list[AckItem]:
    """Return checked items. Raises InvalidRequest with the index of a bad one."""
    _check_size(bodies)
    partitions: dict[str, PartitionId] = {}
    items = []
    for index, body in enumerate(bodies):
        try:
            partition = partitions.get(body.partition_id)
            if partition is None:
                partition = partitions[body.partition_id] = PartitionId.parse(body.partition_id)
            if body.count is not None:
                items += _in_a_row(body, partition, body.count)
                continue
            item = AckItem(
                transaction_id=body.transaction_id,
                partition=partition,
                status=body.status or "completed",  # type: ignore[arg-type]
                lease=body.lease_id or None,
                error=body.error,
                traceback=body.traceback,
                delay_ms=body.delay_ms,
                position=body.position,
                cumulative=body.cumulative or False,
            )
            if body.result:
                item.result = bytes(body.result)
            item.check()
            items.append(item)
        except InvalidRequest as error:
            raise InvalidRequest(f"acknowledgments[{index}]: {error}") from None
    return items


def _in_a_row(body: Ack, partition: PartitionId, count: int) -> list[AckItem]:
    """Return the acks of consecutive messages, whose ids are not given."""
    if body.position is None or not body.lease_id:
        raise InvalidRequest("`count` needs the position of the first message, and the leaseId")
    if body.status != "completed" or body.error is not None or body.delay_ms is not None or body.result:
        raise InvalidRequest("`count` is for messages that are completed, without a result")
    check_count("position", body.position, least=0, most=COUNT_MAX - count)
    return [
        AckItem(transaction_id="", partition=partition, lease=body.lease_id, position=position)
        for position in range(body.position, body.position + count)
    ]


@lru_cache(maxsize=10_000)
def _done_json(queue: str | None, partition: str | None, released: bool) -> str:
    """Return the part of the JSON of a completed message after its id."""
    names = f'"queueName":{encode(queue).decode()},"partitionName":{encode(partition).decode()}'
    return f'"success":true,"error":null,{names},"leaseReleased":{encode(released).decode()},"dlq":false}}'


def ack_element(index: int, item: AckItem, outcome: AckOutcome, names: Names) -> str:
    """Encode the outcome of one item, with the names of its lane."""
    head = f'{{"index":{index},"transactionId":{encode(item.transaction_id).decode()},'
    if outcome.success and not outcome.noop and not outcome.dead_lettered and outcome.durability is None:
        return head + _done_json(*names, outcome.lease_released)
    more = {"queueName": names[0], "partitionName": names[1], **outcome.fields()}
    if outcome.durability is not None:
        more |= outcome.operation_fields()
    if outcome.result is not None:
        more["result"] = msgspec.Raw(outcome.result)
    return head + encode(more).decode()[1:]
