"""POST /api/v1/ack and /api/v1/ack/batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairlane.engine.ack import AckRequest
from fairlane.errors import InvalidRequest
from fairlane.http.message import Request, Response
from fairlane.http.router import Route
from fairlane.http.wire import AckBatchBody, AckBody, decode
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.outcome import AckItem, AckOutcome
from fairlane.model.segment import encode

if TYPE_CHECKING:
    from fairlane.http.app import App


async def ack(app: App, request: Request) -> Response:
    body = decode(request.body, AckBody)
    return await _ack(app, [body], body.consumer_group)


async def ack_batch(app: App, request: Request) -> Response:
    body = decode(request.body, AckBatchBody)
    return await _ack(app, body.acknowledgments, body.consumer_group)


async def _ack(app: App, bodies: list[AckBody], group: str | None) -> Response:
    if len(bodies) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"an ack may have {BATCH_ITEMS_MAX} items, not {len(bodies)}")
    items = ack_items(bodies)
    outcomes = await app.engine.ack(AckRequest(app.tenant, check_name("consumerGroup", group or QUEUE_MODE), items))
    names = await lane_names(app, items)
    buffered = any(outcome.durability is not None for outcome in outcomes)
    return Response(
        202 if buffered else 200,
        b"[%b]" % b",".join(ack_element(*entry, names) for entry in enumerate(zip(items, outcomes, strict=True))),
    )


def ack_items(bodies: Sequence[AckBody]) -> list[AckItem]:
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
                status=body.status,  # type: ignore[arg-type]
                lease=body.lease_id or None,
                error=body.error,
                delay_ms=body.delay_ms,
                result=bytes(body.result) or None,
            )
            item.check()
        except InvalidRequest as error:
            raise InvalidRequest(f"acknowledgments[{index}]: {error}") from None
        items.append(item)
    return items


async def lane_names(app: App, items: Sequence[AckItem]) -> dict[PartitionId, bytes]:
    """`"queueName":..,"partitionName":..` of each partition."""
    names: dict[PartitionId, bytes] = {}
    for item in items:
        if item.partition not in names:
            queue, partition = await app.engine.catalogue.names(item.partition)
            names[item.partition] = b'"queueName":%b,"partitionName":%b' % (encode(queue), encode(partition))
    return names


def ack_element(index: int, entry: tuple[AckItem, AckOutcome], names: dict[PartitionId, bytes]) -> bytes:
    item, outcome = entry
    known = names[item.partition]
    transaction = encode(item.transaction_id)
    if outcome.success and not outcome.noop and not outcome.dead_lettered and outcome.durability is None:
        released = b"true" if outcome.lease_released else b"false"
        return b'{"index":%d,"transactionId":%b,"success":true,"error":null,%b,"leaseReleased":%b,"dlq":false}' % (
            index,
            transaction,
            known,
            released,
        )
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
        more |= {"status": "buffered", "operationId": outcome.operation_id, "durability": outcome.durability}
    result = b"" if outcome.result is None else b',"result":' + outcome.result
    return b'{"index":%d,"transactionId":%b,%b,%b%b}' % (index, transaction, known, encode(more)[1:-1], result)


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/ack",
        endpoint=ack,
        summary="Say what became of one message.",
        tag="messages",
        body=AckBody,
    ),
    Route(
        method="POST",
        path="/api/v1/ack/batch",
        endpoint=ack_batch,
        summary="Say what became of many messages of one group.",
        tag="messages",
        body=AckBatchBody,
    ),
]
