"""Operations: what became of them, how many there are, and those that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from fairlane.broker.deferral.failed import Verb
from fairlane.errors import InvalidRequest
from fairlane.http.decode import decode, read
from fairlane.http.query import name_or_none
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_operations import (
    OperationOut,
    OperationPage,
    OperationsQuery,
    OperationStats,
    SettleBody,
    SettledOut,
    SystemHealth,
    backlog_out,
    count_out,
    operation_out,
    settled_out,
)
from fairlane.model.ids import parse_uuid
from fairlane.store.contract.operations import FIRST

if TYPE_CHECKING:
    from fairlane.http.app import App

BACKLOGS_SHOWN = 100


async def stats(app: App, request: Request) -> Response:
    store = app.broker.store
    counts = await store.operations.counts(app.tenant)
    total, busy = store.connections()
    health = SystemHealth(
        pool_utilization=round(busy / max(1, total), 4),
        pool_waiting=app.broker.pending,
        queue_depth=await store.operations.depth(),
    )
    backlogs = await store.operations.backlogs(app.tenant, limit=BACKLOGS_SHOWN)
    return json_response(
        OperationStats(
            stats=[count_out(one) for one in sorted(counts, key=lambda one: (one.priority, one.type, one.status))],
            system_health=health,
            lanes=[backlog_out(one) for one in backlogs],
        )
    )


async def list_operations(app: App, request: Request) -> Response:
    query = read(request.query, OperationsQuery)
    page = await app.broker.operations.page(
        app.tenant,
        status=query.status,
        queue=name_or_none("queue", query.queue),
        after=_cursor(query.cursor),
        limit=query.limit,
    )
    return json_response(
        OperationPage(
            operations=[operation_out(one) for one in page.operations],
            cursor=None if page.end is None else str(page.end),
            complete=page.complete,
        )
    )


async def retry_failed(app: App, request: Request) -> Response:
    return await _settle(app, request, "retry")


async def discard_failed(app: App, request: Request) -> Response:
    return await _settle(app, request, "discard")


async def _settle(app: App, request: Request, verb: Verb) -> Response:
    body = decode(request.body, SettleBody)
    if (body.ids is not None) + (body.queue is not None) + body.all != 1:
        raise InvalidRequest("say which failed operations: `ids`, the `queue` they are of, or `all`: true")
    settled = await app.broker.operations.settle_failed(
        app.tenant,
        verb,
        ids=None if body.ids is None else [operation_id(id) for id in body.ids],
        queue=name_or_none("queue", body.queue),
        after=_cursor(body.cursor),
        limit=body.limit,
    )
    return json_response(settled_out(settled))


def _cursor(text: str | None) -> UUID:
    if not text:
        return FIRST
    id = parse_uuid(text)
    if id is None:
        raise InvalidRequest(f"cursor is {text!r:.80}; use the one that the page before gave")
    return id


async def show(app: App, request: Request) -> Response:
    return json_response(operation_out(await app.broker.operations.get(app.tenant, _id(request))))


async def retry(app: App, request: Request) -> Response:
    return json_response(operation_out(await app.broker.operations.retry(app.tenant, _id(request))))


async def discard(app: App, request: Request) -> Response:
    return json_response(operation_out(await app.broker.operations.discard(app.tenant, _id(request))))


def _id(request: Request) -> UUID:
    return operation_id(request.params["operationId"])


def operation_id(text: str) -> UUID:
    id = parse_uuid(text)
    if id is None:
        raise InvalidRequest(f"{text!r:.80} is not the id of an operation; use the operationId of a 202 answer")
    return id


_OPERATIONS = "/api/v1/operations"
ROUTES = [
    Route(
        method="GET",
        path=_OPERATIONS,
        endpoint=list_operations,
        summary="Operations by the order of their acceptance, page by page: those of a status, of a queue, or all.",
        tag="operations",
        query=OperationsQuery,
        answer=OperationPage,
    ),
    Route(
        method="POST",
        path=f"{_OPERATIONS}/retry",
        endpoint=retry_failed,
        summary="Let failed operations wait again: those named, of a queue, or all.",
        tag="operations",
        body=SettleBody,
        answer=SettledOut,
    ),
    Route(
        method="POST",
        path=f"{_OPERATIONS}/discard",
        endpoint=discard_failed,
        summary="Give up failed operations for good: those named, of a queue, or all.",
        tag="operations",
        body=SettleBody,
        answer=SettledOut,
    ),
    Route(
        method="GET",
        path=f"{_OPERATIONS}/stats",
        endpoint=stats,
        summary="Operations by kind and status, and the deepest lanes.",
        tag="operations",
        answer=OperationStats,
    ),
    Route(
        method="GET",
        path=f"{_OPERATIONS}/{{operationId}}",
        endpoint=show,
        summary="What became of an operation.",
        tag="operations",
        answer=OperationOut,
    ),
    Route(
        method="POST",
        path=f"{_OPERATIONS}/{{operationId}}/retry",
        endpoint=retry,
        summary="Let a failed operation wait again, at the end of its lane.",
        tag="operations",
        answer=OperationOut,
    ),
    Route(
        method="POST",
        path=f"{_OPERATIONS}/{{operationId}}/discard",
        endpoint=discard,
        summary="Give up a pending or failed operation for good.",
        tag="operations",
        answer=OperationOut,
    ),
]
