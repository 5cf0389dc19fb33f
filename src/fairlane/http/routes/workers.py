"""Workers: they tell of themselves, and are listed while they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire import decode
from fairlane.http.wire_workers import WorkerBody, WorkerGone, WorkerList, worker_out
from fairlane.model.names import check_name

if TYPE_CHECKING:
    from fairlane.http.app import App

ALIVE_SECONDS = 35
"""Three times what a worker waits between two beats, and a little more."""
KEEP_SECONDS = 24 * 3600


async def beat(app: App, request: Request) -> Response:
    id = check_name("id", request.params["id"])
    facts = msgspec.json.encode(decode(request.body, WorkerBody)).decode()
    await app.engine.store.workers.beat(app.tenant, id, facts, keep_seconds=KEEP_SECONDS)
    return Response(204)


async def list_workers(app: App, request: Request) -> Response:
    seen = await app.engine.store.workers.list(app.tenant, seconds=ALIVE_SECONDS)
    return json_response(WorkerList(workers=[worker_out(one) for one in seen]))


async def leave(app: App, request: Request) -> Response:
    id = check_name("id", request.params["id"])
    return json_response(WorkerGone(id=id, left=await app.engine.store.workers.leave(app.tenant, id)))


ROUTES = [
    Route(
        method="GET",
        path="/api/v1/workers",
        endpoint=list_workers,
        summary="Workers that are alive, their queues and their work.",
        tag="workers",
        answer=WorkerList,
    ),
    Route(
        method="POST",
        path="/api/v1/workers/{id}",
        endpoint=beat,
        summary="A worker tells what it does; it is alive for some 30 seconds more.",
        tag="workers",
        body=WorkerBody,
        statuses=(204,),
    ),
    Route(
        method="DELETE",
        path="/api/v1/workers/{id}",
        endpoint=leave,
        summary="A worker ends.",
        tag="workers",
        answer=WorkerGone,
    ),
]
