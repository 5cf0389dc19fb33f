"""Scheduled messages: list, reschedule, cancel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fairlane.errors import InvalidRequest
from fairlane.http.decode import decode, read
from fairlane.http.query import moment
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_scheduled import (
    Cancelled,
    RescheduleBody,
    Rescheduled,
    ScheduledList,
    ScheduledQuery,
    scheduled_out,
)
from fairlane.model.moment import timestamp_or_none

if TYPE_CHECKING:
    from fairlane.http.app import App

_PAGE = re.compile(r"(\d{1,16})\.([0-9a-f-]{36})", re.ASCII)


async def list_scheduled(app: App, request: Request) -> Response:
    query = read(request.query, ScheduledQuery)
    name = request.params["queue"]
    found = await app.broker.scheduled.list(name, after=_after(query.after), limit=query.limit)
    return json_response(scheduled_out(name, found, query.limit))


def _after(page: str) -> tuple[int, str] | None:
    if not page:
        return None
    match = _PAGE.fullmatch(page)
    if match is None:
        raise InvalidRequest(f"after is {page!r:.80}; it must be `next` of the page before")
    return int(match[1]), match[2]


async def cancel(app: App, request: Request) -> Response:
    message = request.params["queue"], request.params["partition"], request.params["transactionId"]
    cancelled = await app.broker.scheduled.cancel(message[0], message[2], partition=message[1])
    return json_response(
        Cancelled(queue=message[0], partition=message[1], transaction_id=message[2], cancelled=cancelled)
    )


async def reschedule(app: App, request: Request) -> Response:
    body = decode(request.body, RescheduleBody)
    message = request.params["queue"], request.params["partition"], request.params["transactionId"]
    at = None if body.deliver_at is None else moment("deliverAt", body.deliver_at)
    due_at = await app.broker.scheduled.reschedule(
        message[0], message[2], partition=message[1], deliver_at=at, delay_ms=body.delay_ms
    )
    answer = Rescheduled(
        queue=message[0],
        partition=message[1],
        transaction_id=message[2],
        rescheduled=due_at is not None,
        deliver_at=timestamp_or_none(due_at),
    )
    return json_response(answer)


_ONE = "/api/v1/scheduled/{queue}/{partition}/{transactionId}"
ROUTES = [
    Route(
        method="GET",
        path="/api/v1/scheduled/{queue}",
        endpoint=list_scheduled,
        summary="Messages of a queue that wait for their time, next due first.",
        tag="messages",
        query=ScheduledQuery,
        answer=ScheduledList,
        statuses=(200, 404),
    ),
    Route(
        method="POST",
        path=_ONE,
        endpoint=reschedule,
        summary="Let a scheduled message be due at another time.",
        tag="messages",
        body=RescheduleBody,
        answer=Rescheduled,
        statuses=(200, 404),
    ),
    Route(
        method="DELETE",
        path=_ONE,
        endpoint=cancel,
        summary="Forget a scheduled message.",
        tag="messages",
        answer=Cancelled,
        statuses=(200, 404),
    ),
]
