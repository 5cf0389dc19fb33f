"""Operations that wait: what became of them, how many there are, and those that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from fairlane.errors import InvalidRequest
from fairlane.http.message import Request, Response, json_response
from fairlane.http.router import Route
from fairlane.http.wire_operations import (
    OperationOut,
    OperationStats,
    SystemHealth,
    count_out,
    lane_out,
    operation_out,
)
from fairlane.model.ids import parse_uuid

if TYPE_CHECKING:
    from fairlane.http.app import App

LANES_SHOWN = 100


async def stats(app: App, request: Request) -> Response:
    store, engine = app.engine.store, app.engine
    counts = await store.operations.counts(app.tenant)
    total, busy = store.connections()
    health = SystemHealth(
        pool_utilization=round(busy / max(1, total), 4),
        pool_waiting=engine.pending,
        queue_depth=await store.operations.depth(),
    )
    lanes = await store.operations.lanes(app.tenant, limit=LANES_SHOWN)
    return json_response(
        OperationStats(
            stats=[count_out(one) for one in sorted(counts, key=lambda one: (one.priority, one.type, one.status))],
            system_health=health,
            lanes=[lane_out(one) for one in lanes],
        )
    )


async def show(app: App, request: Request) -> Response:
    return json_response(operation_out(await app.engine.operations.get(app.tenant, _id(request))))


async def retry(app: App, request: Request) -> Response:
    return json_response(operation_out(await app.engine.operations.retry(app.tenant, _id(request))))


async def discard(app: App, request: Request) -> Response:
    return json_response(operation_out(await app.engine.operations.discard(app.tenant, _id(request))))


def _id(request: Request) -> UUID:
    text = request.params["operationId"]
    id = parse_uuid(text)
    if id is None:
        raise InvalidRequest(f"{text!r:.80} is not the id of an operation; use the operationId of a 202 answer")
    return id


_OPERATIONS = "/api/v1/operations"
ROUTES = [
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
