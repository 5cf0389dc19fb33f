"""Pause and resume; and why a lane does not move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.errors import InvalidRequest
from fairlane.http.decode import decode, read
from fairlane.http.router import Route
from fairlane.http.routes.queues import existing
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_pauses import (
    Explained,
    ExplainQuery,
    PauseBody,
    PausedThing,
    PauseList,
    ResumeBody,
    Resumed,
    explained_out,
    paused_out,
)
from fairlane.model.names import QUEUE_MODE

if TYPE_CHECKING:
    from fairlane.http.app import App


async def pause(app: App, request: Request) -> Response:
    body = decode(request.body, PauseBody, default=PauseBody())
    name = request.params["queue"]
    await app.broker.pauses.pause(name, group=body.group, partition=body.partition)
    return json_response(PausedThing(queue=name, group=body.group, partition=body.partition, paused=True))


async def resume(app: App, request: Request) -> Response:
    body = decode(request.body, ResumeBody, default=ResumeBody())
    name = request.params["queue"]
    if body.lanes:
        if body.partition is not None:
            raise InvalidRequest("`lanes` resumes all lanes of a group; leave it out to resume one partition")
        resumed = await app.broker.pauses.resume_lanes(name, body.group or QUEUE_MODE)
    else:
        resumed = int(await app.broker.pauses.resume(name, group=body.group, partition=body.partition))
    answer = Resumed(queue=name, group=body.group, partition=body.partition, paused=False, resumed=resumed)
    return json_response(answer)


async def pauses(app: App, request: Request) -> Response:
    name = request.params["queue"]
    return json_response(paused_out(name, await app.broker.pauses.paused(name)))


async def explain(app: App, request: Request) -> Response:
    query = read(request.query, ExplainQuery)
    queue = await existing(app, request.params["queue"])
    group = query.group or QUEUE_MODE
    found = await app.broker.pauses.explain(queue.name, request.params["partition"], group)
    return json_response(explained_out(queue.name, group, found, queue.options.retry_limit + 1))


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/pause",
        endpoint=pause,
        summary="Hand out nothing of a queue, a group, a partition or a lane until it is resumed.",
        tag="queues",
        body=PauseBody,
        body_required=False,
        answer=PausedThing,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path="/api/v1/queues/{queue}/resume",
        endpoint=resume,
        summary="Resume what was paused, blocked or parked.",
        tag="queues",
        body=ResumeBody,
        body_required=False,
        answer=Resumed,
        statuses=(200, 404),
    ),
    Route(
        method="GET",
        path="/api/v1/queues/{queue}/pauses",
        endpoint=pauses,
        summary="What is paused of a queue, and since when.",
        tag="queues",
        answer=PauseList,
        statuses=(200, 404),
    ),
    Route(
        method="GET",
        path="/api/v1/explain/{queue}/{partition}",
        endpoint=explain,
        summary="Why a lane does not move, as a sentence and as data.",
        tag="queues",
        query=ExplainQuery,
        answer=Explained,
        statuses=(200, 404),
    ),
]
