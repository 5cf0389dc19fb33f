"""Operations: what became of them, how many there are, and those that failed."""

from __future__ import annotations

from uuid import UUID

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.deferral.failed import Verb
from fairlane.errors import InvalidRequest
from fairlane.http import scopes
from fairlane.http.problems import public_text
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.model.ids import parse_uuid
from fairlane.model.moment import moment_or_none
from fairlane.model.names import name_or_none
from fairlane.model.operation import Operation
from fairlane.store.contract.operations import FIRST
from fairlane.wire import operations as wire
from fairlane.wire.base import made

routes = Routes("operations")
_ALL = "/api/v1/operations"
_ONE = f"{_ALL}/{{operationId}}"


@routes.get(_ALL, needs="status", each=True, live=True)
async def list_operations(broker: Broker, caller: Caller, query: wire.OperationsQuery) -> wire.OperationPage:
    """Operations by the order of their acceptance, page by page: those of a status, of a queue, or all."""
    scopes.check(caller, "status", query.queue)
    page = await broker.operations.page(
        status=query.status,
        queue=name_or_none("queue", query.queue),
        after=_cursor(query.cursor),
        limit=query.limit,
    )
    operations = [_shown(one) for one in page.operations]
    return wire.OperationPage(
        operations=operations, cursor=None if page.end is None else str(page.end), complete=page.complete
    )


@routes.post(f"{_ALL}/retry", needs="replay", each=True)
async def retry_failed(broker: Broker, caller: Caller, body: wire.SettleBody) -> wire.SettledPage:
    """Let failed operations wait again: those named, of a queue, or all."""
    scopes.check(caller, "replay", body.queue)
    return await _settle(broker, body, "retry")


@routes.post(f"{_ALL}/discard", needs="purge", each=True)
async def discard_failed(broker: Broker, caller: Caller, body: wire.SettleBody) -> wire.SettledPage:
    """Give up failed operations for good: those named, of a queue, or all."""
    scopes.check(caller, "purge", body.queue)
    return await _settle(broker, body, "discard")


async def _settle(broker: Broker, body: wire.SettleBody, verb: Verb) -> wire.SettledPage:
    if (body.ids is not None) + (body.queue is not None) + body.all != 1:
        raise InvalidRequest("say which failed operations: `ids`, the `queue` they are of, or `all`: true")
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
    """Operations by kind and status, and the deepest lanes."""
    return await broker.status.operation_stats()


@routes.get(_ONE, needs="status push pop", each=True, live=True)
async def show(broker: Broker, caller: Caller, operationId: str) -> wire.OperationState:
    """What became of an operation."""
    return _shown(await _found(broker, caller, "status push pop", operationId))


@routes.post(f"{_ONE}/retry", needs="replay", each=True)
async def retry(broker: Broker, caller: Caller, operationId: str) -> wire.OperationState:
    """Let a failed operation wait again, at the end of its lane."""
    found = await _found(broker, caller, "replay", operationId)
    return _shown(await broker.operations.retry(found.id))


@routes.post(f"{_ONE}/discard", needs="purge", each=True)
async def discard(broker: Broker, caller: Caller, operationId: str) -> wire.OperationState:
    """Give up a pending or failed operation for good."""
    found = await _found(broker, caller, "purge", operationId)
    return _shown(await broker.operations.discard(found.id))


async def _found(broker: Broker, caller: Caller, needs: str, id: str) -> Operation:
    found = await broker.operations.get(id)
    scopes.check(caller, needs, found.queue)
    return found


def _cursor(text: str | None) -> UUID:
    id = parse_uuid(text) if text else FIRST
    if id is None:
        raise InvalidRequest(f"cursor is {text!r:.80}; use the one that the page before gave")
    return id


def _shown(one: Operation) -> wire.OperationState:
    ended = one.processed_at
    return made(
        wire.OperationState,
        one,
        operation_type=one.type,
        partition=one.partition_name,
        consumer_group=one.group or None,
        processing_started_at=moment_or_none(one.started_at),
        retry_count=one.retries,
        error_message=one.error,
        latency_seconds=None if ended is None else (ended - one.created_at) / 1e6,
        raw_result=msgspec.Raw(one.result or b"null"),
    )
