"""POST /api/v1/transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.broker.transact import AckStep, Step
from fairlane.errors import AlreadyApplied, InvalidRequest, TransactionRefused
from fairlane.http.decode import decode
from fairlane.http.nesting import Nested, check_depths
from fairlane.http.router import Route
from fairlane.http.routes.acks import ack_items
from fairlane.http.routes.pushes import check_wire_items
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire import NULL, AckBody, Operation, TransactionBody, WireItem
from fairlane.model.ids import uuid7
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.outcome import AckOutcome, PushOutcome

if TYPE_CHECKING:
    from fairlane.http.app import App


async def transaction(app: App, request: Request) -> Response:
    body = decode(request.body, TransactionBody)
    foreign = [name for name, some in (("kv", body.kv), ("timers", body.timers)) if some]
    if not body.operations and not foreign:
        raise InvalidRequest("operations array cannot be empty")
    answer: dict[str, Any] = {"transactionId": uuid7(), "success": True}
    nested: list[Nested] = []
    steps = _steps(body, nested)
    await check_depths(nested)
    try:
        if foreign:
            raise TransactionRefused(
                f"rolled back: this broker has no {' and no '.join(foreign)}; a transaction is pushes and acks",
                index=len(steps),
            )
        outcomes = await app.broker.transact_checked(steps)
    except TransactionRefused as error:
        answer |= {"success": False, "error": str(error), "code": error.code, "failedIndex": error.index, "results": []}
        return json_response(answer, 409 if isinstance(error, AlreadyApplied) else 200)
    answer["results"] = [
        _push_result(index, step, outcome) if isinstance(outcome, PushOutcome) else _ack_result(index, outcome)
        for index, (step, outcome) in enumerate(zip(steps, outcomes, strict=True))
    ]
    return json_response(answer)


def _steps(body: TransactionBody, nested: list[Nested]) -> list[Step]:
    """The operations flattened: each pushed item and each ack is a step."""
    steps: list[Step] = []
    # A lease that the whole transaction requires is lent to acks without one, if it is unmistakable which.
    leases = set(body.required_leases or ())
    lent = leases.pop() if len(leases) == 1 else None
    for index, operation in enumerate(body.operations):
        try:
            if operation.type == "push":
                steps += _items(operation, nested, f"operations[{index}]: items")
            elif operation.type == "ack":
                steps.append(_ack(operation, lent))
            else:
                raise InvalidRequest(f"unknown operation type {operation.type!r:.40}; use push or ack")
        except InvalidRequest as error:
            raise InvalidRequest(f"operations[{index}]: {error}") from None
    return steps


def _items(operation: Operation, nested: list[Nested], where: str) -> list[WireItem]:
    items = operation.items
    if items is None:
        payload = bytes(operation.payload) or bytes(operation.data)
        items = [
            WireItem(
                queue=operation.queue or "",
                partition=operation.partition,
                payload=msgspec.Raw(payload) if payload else NULL,
                transaction_id=operation.transaction_id,
                trace_id=operation.trace_id,
                deliver_at=operation.deliver_at,
                delay_ms=operation.delay_ms,
                priority=operation.priority,
            )
        ]
    check_wire_items(items, nested, where)
    return items


def _ack(operation: Operation, lent: str | None) -> AckStep:
    if operation.transaction_id is None or operation.partition_id is None:
        raise InvalidRequest("an ack needs transactionId and partitionId")
    body = AckBody(
        transaction_id=operation.transaction_id,
        partition_id=operation.partition_id,
        status=operation.status,
        lease_id=operation.lease_id or lent,
        error=operation.error,
        delay_ms=operation.delay_ms,
        result=operation.result,
    )
    [item] = ack_items([body])
    return AckStep(item, check_name("consumerGroup", operation.consumer_group or QUEUE_MODE))


def _push_result(index: int, step: Step, outcome: PushOutcome) -> dict[str, Any]:
    return {
        "index": index,
        "type": "push",
        "success": True,
        "status": outcome.status,
        "transactionId": outcome.transaction_id,
        "messageId": outcome.message_id,
        "partitionId": str(outcome.partition),
        "queueName": step.queue if isinstance(step, WireItem) else None,
    }


def _ack_result(index: int, outcome: AckOutcome) -> dict[str, Any]:
    return {
        "index": index,
        "type": "ack",
        "success": outcome.success,
        "transactionId": outcome.transaction_id,
        "error": outcome.error,
        "dlq": outcome.dead_lettered,
    }


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/transaction",
        endpoint=transaction,
        summary="Acks and pushes over any queues, all or nothing.",
        tag="messages",
        body=TransactionBody,
        statuses=(200, 409),
        body_bytes_max=REQUEST_BYTES_MAX,
    )
]
