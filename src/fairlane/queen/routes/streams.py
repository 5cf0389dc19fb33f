"""Streams: queries over queues, their state, and cycles that commit state, pushes and an ack together."""

from __future__ import annotations

from functools import partial

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.transact import AckStep, Outcome, Step
from fairlane.errors import InvalidRequest, StateMoved, TransactionRefused
from fairlane.http.auth import scopes
from fairlane.http.request_body import Nested, check_depths
from fairlane.http.router import Routes, respond
from fairlane.http.routes.pushes import check_wire_items, push_element
from fairlane.http.server import Response, error_response
from fairlane.model.ids import PartitionId
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.outcome import AckItem, AckOutcome, PushOutcome
from fairlane.model.principal import Principal
from fairlane.queen.model.stream import StateChange, StateOp, StreamQuery
from fairlane.queen.streams import Streams, parsed_id
from fairlane.queen.wire import streams as wire

routes = Routes("streams")


@routes.post("/streams/v1/queries", needs="pop", each=True, audited=False, answer=wire.RegisteredQuery)
async def register(broker: Broker, caller: Principal, body: wire.QueryBody) -> Response:
    """Register a query, or find it again with its state."""
    _check_queues(caller, body)
    found = await broker.resource(Streams).register(body, partial(_check_queues, caller))
    query = found.query
    if query.config_hash != body.config_hash:
        return error_response(
            409,
            "config_hash_mismatch",
            f"config_hash mismatch: {query.name!r} was registered with another configuration; "
            "register with reset to drop its state, or choose another name",
            success=False,
            query_id=str(query.id),
            name=query.name,
        )
    return respond(
        wire.RegisteredQuery(
            success=True,
            query_id=str(query.id),
            name=query.name,
            config_hash=query.config_hash,
            fresh=found.fresh,
            reset=found.reset,
        )
    )


@routes.post("/streams/v1/state/get", needs="pop", each=True, audited=False, body_bytes_max=REQUEST_BYTES_MAX)
async def state(broker: Broker, caller: Principal, body: wire.StateGetBody) -> wire.StateRows:
    """Show the state of a query in one partition, by key."""
    await _check_query(broker, caller, body.query_id)
    await scopes.check_partitions(broker, caller, "pop", [body.partition_id])
    return wire.StateRows(success=True, rows=await broker.resource(Streams).state(body))


@routes.post("/streams/v1/cycle", needs="pop", each=True, audited=False, body_bytes_max=REQUEST_BYTES_MAX)
async def cycle(broker: Broker, caller: Principal, body: wire.CycleBody) -> wire.CycleResult:
    """Change state, push and ack in one transaction."""
    group = check_name("consumer_group", body.consumer_group or QUEUE_MODE)
    nested: list[Nested] = []
    change = StateChange(
        parsed_id(body.query_id),
        PartitionId.parse(body.partition_id),
        _state_ops(body.state_ops, nested),
        idle_group="" if body.ack is not None else group,
    ).check()
    check_wire_items(body.push_items, nested, caller.subject, "push_items")
    await check_depths(nested)
    await _check_query(broker, caller, body.query_id)
    await scopes.check_partitions(broker, caller, "pop", [change.partition])
    await scopes.check_pushes(broker, caller, [item.queue for item in body.push_items])
    steps = _steps(body, change.partition, group)
    answer = wire.CycleResult(success=True, query_id=body.query_id, partition_id=body.partition_id)
    # Without a lease the caller holds nothing to release.
    release = body.release_lease and body.ack is not None and bool(body.ack.lease_id)
    commit = await broker.resource(Streams).commit_of(change)
    try:
        outcomes = await broker.requests.transact(steps, commit=commit, more=len(change.ops), release=release)
    except TransactionRefused as error:
        if isinstance(error, StateMoved) and change.is_flush:
            # Nothing is lost: the rows still exist, or another cycle has closed their windows.
            answer.skipped = str(error)
            return answer
        answer.success, answer.error, answer.code = False, str(error), error.code
        return answer
    answer.queue_name, _ = (await broker.queues.partition_names([change.partition]))[change.partition]
    answer.state_ops_applied = len(change.ops)
    _report(answer, body, outcomes)
    return answer


def _check_queues(caller: Principal, query: wire.QueryBody | StreamQuery) -> None:
    """Raise Forbidden unless the caller may pop from the query's source and push to its sink."""
    caller.check("pop", query.source_queue)
    if query.sink_queue:
        caller.check("push", query.sink_queue)


async def _check_query(broker: Broker, caller: Principal, query_id: str) -> None:
    """Raise Forbidden unless the caller may pop from the source of a registered query."""
    if not caller.allows_all("pop"):
        caller.check("pop", (await broker.resource(Streams).existing(query_id)).source_queue)


def _steps(body: wire.CycleBody, partition: PartitionId, group: str) -> list[Step]:
    """Return the steps of a cycle: the ack, then the pushes in order."""
    steps: list[Step] = []
    if body.ack is not None:
        item = AckItem(
            transaction_id=body.ack.transaction_id,
            partition=partition,
            # A second delivery would change the state again, so a failed message is not retried.
            status="dlq" if body.ack.status == "failed" else body.ack.status,  # type: ignore[arg-type]
            lease=body.ack.lease_id or None,
            error=body.ack.error,
            cumulative=True,
        )
        item.check()
        steps.append(AckStep(item, group))
    return [*steps, *body.push_items]


def _report(answer: wire.CycleResult, body: wire.CycleBody, outcomes: list[Outcome]) -> None:
    pushed = [outcome for outcome in outcomes if isinstance(outcome, PushOutcome)]
    answer.push_results = [
        msgspec.Raw(push_element(index, item, outcome))
        for index, (item, outcome) in enumerate(zip(body.push_items, pushed, strict=True))
    ]
    acked = next((outcome for outcome in outcomes if isinstance(outcome, AckOutcome)), None)
    if acked is not None and body.ack is not None:
        answer.ack_result = wire.CycleAckResult(
            success=acked.success,
            count=body.ack.count,
            lease_released=acked.lease_released,
            dlq=acked.dead_lettered,
        )


class _Windowed(msgspec.Struct):
    end: float | None = msgspec.field(name="windowEnd", default=None)


_decode_windowed = msgspec.json.Decoder(_Windowed).decode


def _state_ops(bodies: list[wire.StateOpBody], nested: list[Nested]) -> list[StateOp]:
    """Return checked state operations. Raises InvalidRequest with the index.

    Values that may be nested too deeply are added to `nested`.
    """
    found = []
    for index, body in enumerate(bodies):
        value = bytes(body.value)
        if body.type == "upsert":
            if not value:
                raise InvalidRequest(f"state_ops[{index}]: an upsert needs a value")
            nested.append(("state_ops", index, body.value))
            found.append(StateOp(body.key, value, _window_end(value)))
        elif body.type == "delete":
            found.append(StateOp(body.key, None))
        else:
            raise InvalidRequest(f"state_ops[{index}]: Unknown state_op type: {body.type!r:.40}; use upsert or delete")
    return found


def _window_end(value: bytes) -> float | None:
    try:
        return _decode_windowed(value).end
    except msgspec.DecodeError:
        return None  # not an object, or its windowEnd is not a number
