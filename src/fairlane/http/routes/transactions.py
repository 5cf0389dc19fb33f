"""POST /api/v1/transaction."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.transact import AckStep, Step
from fairlane.errors import AlreadyApplied, InvalidRequest, TransactionRefused
from fairlane.http.auth import scopes
from fairlane.http.request_body import Nested, check_depths
from fairlane.http.router import Routes, respond
from fairlane.http.routes.acks import ack_items
from fairlane.http.routes.pushes import check_wire_items
from fairlane.http.server import Request, Response
from fairlane.model.fan_in import FanInStep
from fairlane.model.ids import uuid7
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.model.message import PushItem
from fairlane.model.moment import Moment
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.outcome import AckOutcome, PushOutcome, check_isolation
from fairlane.model.principal import Principal
from fairlane.otel import tracing
from fairlane.wire.ack import Ack
from fairlane.wire.base import NULL
from fairlane.wire.push import Item
from fairlane.wire.transactions import TransactionAnswer, TransactionBody, TransactionResult, TransactionStep

routes = Routes("messages")


@routes.post(
    "/api/v1/transaction",
    needs="push pop",
    each=True,
    audited=False,
    answer=TransactionAnswer,
    body_bytes_max=REQUEST_BYTES_MAX,
)
async def transaction(broker: Broker, caller: Principal, body: TransactionBody, request: Request) -> Response:
    """Apply acks and pushes over any queues in one transaction."""
    foreign = [name for name, some in (("kv", body.kv), ("timers", body.timers)) if some]
    if not body.operations and not foreign:
        raise InvalidRequest("operations array cannot be empty")
    check_isolation(body.isolation)
    nested: list[Nested] = []
    fan_ins: list[FanInStep] = []
    steps = _steps(body, nested, request.caller.subject, fan_ins)
    await check_depths(nested)
    callbacks = [one.callback.queue for one in fan_ins]
    await scopes.check_pushes(
        broker, caller, [*[step.queue for step in steps if isinstance(step, PushItem)], *callbacks]
    )
    acked = [step.item.partition for step in steps if isinstance(step, AckStep)]
    await scopes.check_partitions(broker, caller, "pop", acked)
    tracing.add_context(
        [*[step for step in steps if isinstance(step, PushItem)], *[one.callback for one in fan_ins]],
        tracing.context_of_request(request.headers),
    )
    answer = TransactionAnswer(transaction_id=uuid7(), success=True, isolation="serializable", results=[])
    try:
        if foreign:
            raise TransactionRefused(
                f"rolled back: this broker has no {' and no '.join(foreign)}; a transaction is pushes and acks",
                index=len(steps),
            )
        outcomes = await broker.requests.transact(steps, fan_ins=fan_ins)
    except TransactionRefused as error:
        answer.success, answer.error, answer.code, answer.failed_index = False, str(error), error.code, error.index
        return respond(answer, 409 if isinstance(error, AlreadyApplied) else 200)
    answer.results = [
        _push_result(index, step, outcome) if isinstance(outcome, PushOutcome) else _ack_result(index, outcome)
        for index, (step, outcome) in enumerate(zip(steps, outcomes, strict=True))
    ]
    return respond(answer)


def _steps(body: TransactionBody, nested: list[Nested], subject: str | None, fan_ins: list[FanInStep]) -> list[Step]:
    """Flatten the operations, so that each pushed item and each ack is a step. Adds fan-ins to `fan_ins`."""
    steps: list[Step] = []
    # If the transaction requires exactly one lease, acks without one use it.
    leases = set(body.required_leases or ())
    lent = leases.pop() if len(leases) == 1 else None
    for index, step in enumerate(body.operations):
        try:
            if step.type == "push":
                steps += _items(step, nested, subject, f"operations[{index}]: items")
            elif step.type == "ack":
                steps.append(_ack(step, lent))
            elif step.type == "fan_in":
                fan_ins.append(_fan_in(step, nested, subject, len(steps), f"operations[{index}]: "))
                steps += step.items or ()
            else:
                raise InvalidRequest(f"unknown operation type {step.type!r:.40}; use push, ack or fan_in")
        except InvalidRequest as error:
            raise InvalidRequest(f"operations[{index}]: {error}") from None
    return steps


def _items(step: TransactionStep, nested: list[Nested], subject: str | None, where: str) -> list[Item]:
    items = step.items
    if items is None:
        step.type, step.queue, step.payload = None, step.queue or "", step.payload or step.data or NULL  # type: ignore[assignment]
        items = [step]
    check_wire_items(items, nested, subject, where)
    return items


def _fan_in(step: TransactionStep, nested: list[Nested], subject: str | None, first: int, where: str) -> FanInStep:
    if step.then is None or step.items is None:
        raise InvalidRequest("a fan_in needs the messages `items` and the callback `then`")
    check_wire_items(step.items, nested, subject, f"{where}items")
    check_wire_items([step.then], nested, subject, f"{where}then")
    fan_in = FanInStep(
        id=uuid7() if step.id is None else step.id,
        callback=step.then,
        first=first,
        total=len(step.items),
        group=QUEUE_MODE if step.consumer_group is None else step.consumer_group,
    )
    fan_in.check()
    return fan_in


def _ack(step: TransactionStep, lent: str | None) -> AckStep:
    if step.transaction_id is None or step.partition_id is None:
        raise InvalidRequest("an ack needs transactionId and partitionId")
    body = Ack(
        transaction_id=step.transaction_id,
        partition_id=step.partition_id,
        status=step.status,
        lease_id=step.lease_id or lent,
        error=step.error,
        traceback=step.traceback,
        delay_ms=step.delay_ms,
        result=step.result,
        position=step.position,
    )
    [item] = ack_items([body])
    return AckStep(item, check_name("consumerGroup", step.consumer_group or QUEUE_MODE))


def _push_result(index: int, step: Step, outcome: PushOutcome) -> TransactionResult:
    return TransactionResult(
        index=index,
        type="push",
        status=outcome.status,
        transaction_id=outcome.transaction_id,
        message_id=outcome.message_id,
        partition_id=str(outcome.partition),
        queue_name=step.queue if isinstance(step, Item) else None,
        deliver_at=msgspec.UNSET if outcome.deliver_at is None else Moment(outcome.deliver_at),
    )


def _ack_result(index: int, outcome: AckOutcome) -> TransactionResult:
    return TransactionResult(
        index=index,
        type="ack",
        success=outcome.success,
        transaction_id=outcome.transaction_id,
        error=outcome.error,
        dlq=outcome.dead_lettered,
    )
