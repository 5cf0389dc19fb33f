"""POST /api/v1/ack and /api/v1/ack/batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.broker.ack import AckRequest
from fairlane.errors import InvalidRequest
from fairlane.http.decode import decode
from fairlane.http.router import Route
from fairlane.http.routes.pushes import name_json
from fairlane.http.server import Request, Response
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, NAME_CHARS_MAX, REQUEST_BYTES_MAX
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.outcome import AckItem, AckOutcome, Alike, Outcomes
from fairlane.model.segment import encode
from fairlane.wire.ack import Ack, AckBatch

if TYPE_CHECKING:
    from fairlane.http.app import App


async def ack(app: App, request: Request) -> Response:
    body = decode(request.body, Ack)
    if body.cumulative is None:
        body.cumulative = True  # as the published clients' own tests have it
    return await _ack(app, [body], body.consumer_group)


async def ack_batch(app: App, request: Request) -> Response:
    body = decode(request.body, AckBatch)
    return await _ack(app, body.acknowledgments, body.consumer_group)


async def _ack(app: App, bodies: list[Ack], group: str | None) -> Response:
    if len(bodies) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"an ack may have {BATCH_ITEMS_MAX} items, not {len(bodies)}")
    items = _done(bodies) or ack_items(bodies)
    outcomes = await app.broker.ack_request(
        AckRequest(app.tenant, check_name("consumerGroup", group or QUEUE_MODE), items)
    )
    if isinstance(items, Alike) and isinstance(outcomes, Outcomes) and (common := outcomes.common) and _plain(common):
        return Response(200, await _done_answer(app, items, common))
    names = await partition_names(app, [item.partition for item in items])
    elements = map(ack_element, range(len(items)), items, outcomes, [names[item.partition] for item in items])
    deferred = any(outcome.durability is not None for outcome in outcomes)
    return Response(202 if deferred else 200, f"[{','.join(elements)}]".encode())


def _done(bodies: list[Ack]) -> Alike | None:
    """The acks as columns, if they say of messages of one lease in one lane that they are done and no more; None
    otherwise, and where their ids need a closer look."""
    partition, lease = (bodies[0].partition_id, bodies[0].lease_id) if bodies else ("", None)
    for body in bodies:
        if body.status != "completed" or body.partition_id != partition or body.lease_id != lease or body.cumulative:
            return None
        if body.error is not None or body.delay_ms is not None or body.result:
            return None
    ids = [body.transaction_id for body in bodies]
    text = "".join(ids)
    plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    if not lease or not plain or not all(ids) or max(map(len, ids)) > NAME_CHARS_MAX:
        return None
    try:
        return Alike({(PartitionId.parse(partition), lease): range(len(ids))}, None, lambda: ids)
    except InvalidRequest:
        return None


async def _done_answer(app: App, items: Alike, outcome: AckOutcome) -> bytes:
    """The answer to acks of one lane that all came to the same."""
    [names] = (await partition_names(app, [partition for partition, _ in items.lanes])).values()
    released = "true" if outcome.lease_released else "false"
    tail = f'","success":true,"error":null,{names},"leaseReleased":{released},"dlq":false}}'
    elements = [f'{{"index":{index},"transactionId":"{id}{tail}' for index, id in enumerate(items.transaction_ids)]
    return f"[{','.join(elements)}]".encode()


def _plain(outcome: AckOutcome) -> bool:
    return outcome.success and not outcome.noop and not outcome.dead_lettered and outcome.durability is None


def ack_items(bodies: Sequence[Ack]) -> list[AckItem]:
    """Checked items; InvalidRequest names the index."""
    partitions: dict[str, PartitionId] = {}
    items = []
    for index, body in enumerate(bodies):
        try:
            partition = partitions.get(body.partition_id)
            if partition is None:
                partition = partitions[body.partition_id] = PartitionId.parse(body.partition_id)
            item = AckItem(
                transaction_id=body.transaction_id,
                partition=partition,
                status=body.status or "completed",  # type: ignore[arg-type]
                lease=body.lease_id or None,
                error=body.error,
                delay_ms=body.delay_ms,
                cumulative=body.cumulative or False,
            )
            if body.result:
                item.result = bytes(body.result)
            item.check()
        except InvalidRequest as error:
            raise InvalidRequest(f"acknowledgments[{index}]: {error}") from None
        items.append(item)
    return items


async def partition_names(app: App, partitions: Iterable[PartitionId]) -> dict[PartitionId, str]:
    """`"queueName":..,"partitionName":..` of each partition."""
    names: dict[PartitionId, str] = {}
    catalogue, route = app.broker.catalogue, app.broker.journal_route
    away = route is not None and not route.watch.up
    for partition in dict.fromkeys(partitions):
        queue, name = catalogue.known_names(partition) if away else await catalogue.names(partition)
        names[partition] = f'"queueName":{name_json(queue)},"partitionName":{name_json(name)}'
    return names


def ack_element(index: int, item: AckItem, outcome: AckOutcome, partition: str) -> str:
    """What became of one item, whose lane has these names."""
    head = f'{{"index":{index},"transactionId":{encode(item.transaction_id).decode()},'
    if _plain(outcome):
        released = "true" if outcome.lease_released else "false"
        return f'{head}"success":true,"error":null,{partition},"leaseReleased":{released},"dlq":false}}'
    more: dict[str, Any] = {
        "success": outcome.success,
        "error": outcome.error,
        "leaseReleased": outcome.lease_released,
        "dlq": outcome.dead_lettered,
    }
    if outcome.code is not None:
        more["code"] = outcome.code
    if outcome.noop:
        more["noop"] = True
    if outcome.durability is not None:
        more |= {
            "status": "buffered",
            "operationId": outcome.operation_id,
            "queuePosition": outcome.queue_position,
            "reason": outcome.reason,
            "estimatedWait": outcome.estimated_wait,
            "durability": outcome.durability,
        }
    if outcome.result is not None:
        more["result"] = msgspec.Raw(outcome.result)
    return f"{head}{partition},{encode(more).decode()[1:]}"


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/ack",
        endpoint=ack,
        summary="Say what became of one message, and of its lease's earlier ones, unless `cumulative` is false.",
        tag="messages",
        body=Ack,
        statuses=(200, 202),
    ),
    Route(
        method="POST",
        path="/api/v1/ack/batch",
        endpoint=ack_batch,
        summary="Say what became of many messages of one group, of exactly those.",
        tag="messages",
        body=AckBatch,
        body_bytes_max=REQUEST_BYTES_MAX,
        statuses=(200, 202),
    ),
]
