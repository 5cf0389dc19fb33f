"""Streams: queries over queues, their state, and cycles that commit state, pushes and an ack together."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from fairlane.broker.transact import AckStep, Outcome, Step
from fairlane.errors import InvalidRequest, NotFound, TransactionRefused
from fairlane.http.decode import Nested, check_depths, decode
from fairlane.http.router import Route
from fairlane.http.routes.pushes import check_wire_items, push_element
from fairlane.http.server import Request, Response, error_response, json_response
from fairlane.http.wire_streams import (
    CycleAckResult,
    CycleBody,
    CycleResult,
    QueryBody,
    RegisteredQuery,
    StateEntry,
    StateGetBody,
    StateRows,
    state_ops,
)
from fairlane.model.ids import PartitionId, parse_uuid, uuid7
from fairlane.model.limits import BATCH_ITEMS_MAX, POP_BYTES_MAX, REQUEST_BYTES_MAX, STATE_KEY_CHARS_MAX
from fairlane.model.moment import timestamp
from fairlane.model.names import QUEUE_MODE, check_name
from fairlane.model.outcome import AckItem, AckOutcome, PushOutcome
from fairlane.model.stream import STREAM_GROUPS, StateChange, StateFilter, StateRow, StreamQuery

if TYPE_CHECKING:
    from fairlane.http.app import App

_ROWS_AT_ONCE = 200


async def register(app: App, request: Request) -> Response:
    body = decode(request.body, QueryBody)
    wanted = StreamQuery(
        id=UUID(uuid7()),
        name=body.name,
        source_queue=body.source_queue,
        sink_queue=body.sink_queue,
        config_hash=body.config_hash,
    ).check()
    found = await app.broker.store.streams.register(app.tenant, wanted, reset=body.reset)
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
    answer = RegisteredQuery(
        success=True,
        query_id=str(query.id),
        name=query.name,
        config_hash=query.config_hash,
        fresh=found.fresh,
        reset=found.reset,
    )
    return json_response(answer)


def _query_id(text: str) -> UUID:
    found = parse_uuid(text)
    if found is None:
        raise InvalidRequest(f"query_id must be the UUID that a registration returned, not {text!r:.80}")
    return found


async def state(app: App, request: Request) -> Response:
    body = decode(request.body, StateGetBody)
    query_id, partition = _query_id(body.query_id), PartitionId.parse(body.partition_id)
    if len(body.keys) > BATCH_ITEMS_MAX:
        raise InvalidRequest(f"at most {BATCH_ITEMS_MAX} keys may be asked for, not {len(body.keys)}")
    where = StateFilter(
        keys=[_key("keys", key) for key in body.keys] or None,
        prefix=_key("key_prefix", body.key_prefix) if body.key_prefix else "",
        ripe_until=body.ripe_at_or_before,
    )
    query = await app.broker.store.streams.get(app.tenant, query_id)
    if query is None:
        raise NotFound("there is no such query")
    if where.ripe_until is not None:  # an idle flush: what is held is not idle, and closed by who holds it
        where = msgspec.structs.replace(where, idle_group=f"{STREAM_GROUPS}{query.name}")
    found = [
        StateEntry(key=row.key, value=msgspec.Raw(row.value), updated_at=timestamp(row.updated_at))
        for row in await _rows(app, query_id, partition, where)
    ]
    return json_response(StateRows(success=True, rows=found))


def _key(what: str, key: str) -> str:
    return check_name(what, key, chars_max=STATE_KEY_CHARS_MAX)


async def _rows(app: App, query_id: UUID, partition: PartitionId, where: StateFilter) -> list[StateRow]:
    """All of them: half a state would be a wrong one. More than an answer can hold is refused."""
    found: list[StateRow] = []
    size = 0
    while page := await app.broker.store.streams.state(query_id, partition, where, limit=_ROWS_AT_ONCE):
        found += page
        size += sum(len(row.value) for row in page)
        if size > POP_BYTES_MAX:
            raise InvalidRequest(f"more than {POP_BYTES_MAX} bytes of state match; ask by keys or by a prefix")
        where = msgspec.structs.replace(where, after=page[-1].key)
        if len(page) < _ROWS_AT_ONCE:
            break
    return found


async def cycle(app: App, request: Request) -> Response:
    body = decode(request.body, CycleBody)
    group = check_name("consumer_group", body.consumer_group or QUEUE_MODE)
    nested: list[Nested] = []
    change = StateChange(
        _query_id(body.query_id),
        PartitionId.parse(body.partition_id),
        state_ops(body.state_ops, nested),
        idle_group="" if body.ack is not None else group,
    ).check()
    check_wire_items(body.push_items, nested, "push_items")
    await check_depths(nested)
    steps = _steps(body, change.partition, group)
    if await app.broker.store.streams.get(app.tenant, change.query_id) is None:
        raise NotFound("there is no such query")
    answer = CycleResult(success=True, query_id=body.query_id, partition_id=body.partition_id)
    # Without a lease there is nothing of the caller's to give back.
    release = body.release_lease and body.ack is not None and bool(body.ack.lease_id)
    try:
        outcomes = await app.broker.transact_checked(steps, change, release=release)
    except TransactionRefused as error:
        answer.success, answer.error, answer.code = False, str(error), error.code
        return json_response(answer)
    answer.queue_name, _ = await app.broker.catalogue.names(change.partition)
    answer.state_ops_applied = len(change.ops)
    _report(answer, body, outcomes)
    return json_response(answer)


def _steps(body: CycleBody, partition: PartitionId, group: str) -> list[Step]:
    """The ack first; then the pushes in their order."""
    steps: list[Step] = []
    if body.ack is not None:
        item = AckItem(
            transaction_id=body.ack.transaction_id,
            partition=partition,
            status=body.ack.status,  # type: ignore[arg-type]
            lease=body.ack.lease_id or None,
            error=body.ack.error,
            cumulative=True,
        )
        item.check()
        steps.append(AckStep(item, group))
    return [*steps, *body.push_items]


def _report(answer: CycleResult, body: CycleBody, outcomes: list[Outcome]) -> None:
    pushed = [outcome for outcome in outcomes if isinstance(outcome, PushOutcome)]
    answer.push_results = [
        msgspec.Raw(push_element(index, item, outcome))
        for index, (item, outcome) in enumerate(zip(body.push_items, pushed, strict=True))
    ]
    acked = next((outcome for outcome in outcomes if isinstance(outcome, AckOutcome)), None)
    if acked is not None and body.ack is not None:
        answer.ack_result = CycleAckResult(
            success=acked.success,
            count=body.ack.count,
            lease_released=acked.lease_released,
            dlq=acked.dead_lettered,
        )


ROUTES = [
    Route(
        method="POST",
        path="/streams/v1/queries",
        endpoint=register,
        summary="Register a query, or find it again with its state.",
        tag="streams",
        body=QueryBody,
        answer=RegisteredQuery,
        statuses=(200, 409),
    ),
    Route(
        method="POST",
        path="/streams/v1/state/get",
        endpoint=state,
        summary="State of a query in one partition, by key.",
        tag="streams",
        body=StateGetBody,
        body_bytes_max=REQUEST_BYTES_MAX,
        answer=StateRows,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path="/streams/v1/cycle",
        endpoint=cycle,
        summary="Change state, push and ack in one transaction: all of it or nothing.",
        tag="streams",
        body=CycleBody,
        body_bytes_max=REQUEST_BYTES_MAX,
        answer=CycleResult,
        statuses=(200, 404),
    ),
]
