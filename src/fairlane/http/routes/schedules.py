"""Schedules: define, list, look at, pause, resume, run now, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.http.decode import decode
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_schedules import (
    ScheduleAnswer,
    ScheduleBody,
    ScheduleDeleted,
    ScheduleList,
    ScheduleRun,
    options_in,
    schedule_out,
)
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.schedule import Schedule

if TYPE_CHECKING:
    from fairlane.http.app import App

_RUNS_SHOWN = 5


def _shown(app: App, schedule: Schedule) -> ScheduleAnswer:
    return schedule_out(schedule, app.broker.schedules.next_ticks(schedule, _RUNS_SHOWN))


async def list_schedules(app: App, request: Request) -> Response:
    found = await app.broker.schedules.list(app.tenant)
    return json_response(ScheduleList(schedules=[_shown(app, schedule) for schedule in found]))


async def get(app: App, request: Request) -> Response:
    return json_response(_shown(app, await app.broker.schedules.get(app.tenant, request.params["name"])))


async def define(app: App, request: Request) -> Response:
    options = options_in(decode(request.body, ScheduleBody))
    return json_response(_shown(app, await app.broker.schedules.put(app.tenant, request.params["name"], options)))


async def delete(app: App, request: Request) -> Response:
    name = request.params["name"]
    return json_response(ScheduleDeleted(name=name, deleted=await app.broker.schedules.delete(app.tenant, name)))


async def pause(app: App, request: Request) -> Response:
    return json_response(_shown(app, await app.broker.schedules.pause(app.tenant, request.params["name"])))


async def resume(app: App, request: Request) -> Response:
    return json_response(_shown(app, await app.broker.schedules.resume(app.tenant, request.params["name"])))


async def run_now(app: App, request: Request) -> Response:
    name = request.params["name"]
    schedule = await app.broker.schedules.get(app.tenant, name)
    outcome = await app.broker.schedules.run_now(app.tenant, name)
    return json_response(
        ScheduleRun(
            name=name,
            queue=schedule.options.queue,
            message_id=outcome.message_id,
            transaction_id=outcome.transaction_id,
        )
    )


_ONE = "/api/v1/schedules/{name}"
ROUTES = [
    Route(
        method="GET",
        path="/api/v1/schedules",
        endpoint=list_schedules,
        summary="All schedules, by name, with their next ticks.",
        tag="schedules",
        answer=ScheduleList,
    ),
    Route(
        method="GET",
        path=_ONE,
        endpoint=get,
        summary="One schedule.",
        tag="schedules",
        answer=ScheduleAnswer,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=_ONE,
        endpoint=define,
        summary="Define a schedule, or replace it; the same one again changes nothing.",
        tag="schedules",
        body=ScheduleBody,
        body_bytes_max=2 * MESSAGE_BYTES_MAX,
        answer=ScheduleAnswer,
    ),
    Route(
        method="DELETE",
        path=_ONE,
        endpoint=delete,
        summary="Forget a schedule; what it pushed stays.",
        tag="schedules",
        answer=ScheduleDeleted,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/pause",
        endpoint=pause,
        summary="Let a schedule tick no more until it is resumed.",
        tag="schedules",
        answer=ScheduleAnswer,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/resume",
        endpoint=resume,
        summary="Let a paused schedule go on with its next tick.",
        tag="schedules",
        answer=ScheduleAnswer,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/run",
        endpoint=run_now,
        summary="Push the message of a schedule once, now.",
        tag="schedules",
        answer=ScheduleRun,
        statuses=(200, 404),
    ),
]
