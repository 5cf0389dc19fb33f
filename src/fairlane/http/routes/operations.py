"""Operations: their outcomes, their numbers, and failed ones."""

from __future__ import annotations

from uuid import UUID

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.deferral.operations import Verb
from fairlane.errors import InvalidRequest
from fairlane.http.auth import scopes
from fairlane.http.problems import public_text
from fairlane.http.router import Routes
from fairlane.model.ids import parse_uuid
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import name_or_none
from fairlane.model.operation import Operation
from fairlane.model.principal import Principal
from fairlane.store.contract.operations import FIRST, LAST
from fairlane.wire import operations as wire

routes = Routes("operations")
_ALL = "/api/v1/operations"
_ONE = f"{_ALL}/{{operationId}}"


@routes.get(_ALL, needs="status", each=True, live=True)
async def list_operations(broker: Broker, caller: Principal, query: wire.OperationsQuery) -> wire.OperationPage:
    """List operations in the order of their acceptance, page by page, optionally by status or queue."""
    scopes.check(caller, "status", query.queue)
    queue = name_or_none("queue", query.queue)
    if query.order == "desc":
        before = _cursor(query.cursor) if query.cursor else LAST
        page = await broker.operations.newest(status=query.status, queue=queue, before=before, limit=query.limit)
    else:
        page = await broker.operations.page(
            status=query.status, queue=queue, after=_cursor(query.cursor), limit=query.limit
        )
    operations = [_shown(one) for one in page.operations]
    return wire.OperationPage(
        operations=operations, cursor=None if page.end is None else str(page.end), complete=page.complete
    )


@routes.post(f"{_ALL}/retry", needs="replay", each=True)
async def retry_failed(broker: Broker, caller: Principal, body: wire.SettleBody) -> wire.SettledPage:
    """Retry failed operations: by id, by queue, or all."""
    scopes.check(caller, "replay", body.queue)
    return await _settle(broker, body, "retry")


@routes.post(f"{_ALL}/discard", needs="purge", each=True)
async def discard_failed(broker: Broker, caller: Principal, body: wire.SettleBody) -> wire.SettledPage:
    """Discard failed operations for good: by id, by queue, or all."""
    scopes.check(caller, "purge", body.queue)
    return await _settle(broker, body, "discard")


async def _settle(broker: Broker, body: wire.SettleBody, verb: Verb) -> wire.SettledPage:
    if (body.ids is not None) + (body.queue is not None) + body.all != 1:
        raise InvalidRequest("name the failed operations by `ids`, by their `queue`, or by `all`: true")
    settled = await broker.operations.settle_failed(
        verb,
        ids=body.ids,
        queue=name_or_none("queue", body.queue),
        after=_cursor(body.cursor),
        limit=body.limit,
    )
    return wire.SettledPage(
        done=[str(id) for id in settled.done],
        refused=[
            wire.RefusedOperation(id=str(id), error=public_text(why), code=why.code) for id, why in settled.refused
        ],
        cursor=None if settled.end is None else str(settled.end),
    )


@routes.get(f"{_ALL}/stats", needs="status", live=True)
async def stats(broker: Broker) -> wire.OperationStats:
    """Count operations by kind and status, and list the deepest lanes."""
    return await broker.status.operation_stats()


@routes.get(_ONE, needs="status push pop", each=True, live=True)
async def show(broker: Broker, caller: Principal, operationId: str) -> wire.OperationState:
    """Show the state of an operation."""
    return _shown(await _found(broker, caller, "status push pop", operationId))


@routes.post(f"{_ONE}/retry", needs="replay", each=True)
async def retry(broker: Broker, caller: Principal, operationId: str) -> wire.OperationState:
    """Retry a failed operation, at the end of its lane."""
    found = await _found(broker, caller, "replay", operationId)
    return _shown(await broker.operations.retry(found.id))


@routes.post(f"{_ONE}/discard", needs="purge", each=True)
async def discard(broker: Broker, caller: Principal, operationId: str) -> wire.OperationState:
    """Discard a pending or failed operation for good."""
    found = await _found(broker, caller, "purge", operationId)
    return _shown(await broker.operations.discard(found.id))


async def _found(broker: Broker, caller: Principal, needs: str, id: str) -> Operation:
    found = await broker.operations.get(id)
    scopes.check(caller, needs, found.queue)
    return found


def _cursor(text: str | None) -> UUID:
    id = parse_uuid(text) if text else FIRST
    if id is None:
        raise InvalidRequest(f"cursor is {text!r:.80}; use the one of the previous page")
    return id


def _shown(one: Operation) -> wire.OperationState:
    ended = one.processed_at
    return wire.OperationState(
        id=str(one.id),
        operation_type=one.type,
        status=one.status,
        priority=one.priority,
        queue=one.queue,
        partition=one.partition_name,
        consumer_group=one.group or None,
        created_at=Moment(one.created_at),
        processing_started_at=moment_or_none(one.started_at),
        processed_at=moment_or_none(one.processed_at),
        worker=one.worker,
        retry_count=one.retries,
        error_message=one.error,
        failed_at=moment_or_none(one.failed_at),
        latency_seconds=None if ended is None else (ended - one.created_at) / 1e6,
        messages=one.messages,
        durability=one.durability,
        raw_result=msgspec.Raw(one.result or b"null"),
    )
