"""What the journal set aside, because the store refused it for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.engine.set_aside import SetAside
from fairlane.errors import Conflict
from fairlane.http.message import Request, Response, json_response
from fairlane.http.query import read
from fairlane.http.router import Route
from fairlane.http.wire_journal import EntryDone, FailedEntries, FailedQuery, failed_out

if TYPE_CHECKING:
    from fairlane.http.app import App


def _set_aside(app: App) -> SetAside:
    if app.engine.shelter is None:
        raise Conflict("this broker has no journal, so that nothing was set aside")
    return app.engine.shelter.set_aside


async def failed(app: App, request: Request) -> Response:
    query, set_aside = read(request.query, FailedQuery), _set_aside(app)
    found = await set_aside.list(limit=query.limit)
    return json_response(FailedEntries(entries=[failed_out(set_aside, entry) for entry in found]))


async def retry(app: App, request: Request) -> Response:
    set_aside = _set_aside(app)
    entry = await set_aside.retry(request.params["entryId"])
    return json_response(EntryDone(entry=failed_out(set_aside, entry), status="waiting"))


async def discard(app: App, request: Request) -> Response:
    set_aside = _set_aside(app)
    entry = await set_aside.discard(request.params["entryId"])
    return json_response(EntryDone(entry=failed_out(set_aside, entry), status="discarded"))


_FAILED = "/api/v1/journal/failed"
ROUTES = [
    Route(
        method="GET",
        path=_FAILED,
        endpoint=failed,
        summary="Entries of this process's journal that the store refused for good. 409 without a journal.",
        tag="journal",
        query=FailedQuery,
        answer=FailedEntries,
        statuses=(200, 409),
    ),
    Route(
        method="POST",
        path=f"{_FAILED}/{{entryId}}/retry",
        endpoint=retry,
        summary="Let an entry wait again, behind what waits of its partition.",
        tag="journal",
        answer=EntryDone,
        statuses=(200, 409),
    ),
    Route(
        method="POST",
        path=f"{_FAILED}/{{entryId}}/discard",
        endpoint=discard,
        summary="Give an entry up for good.",
        tag="journal",
        answer=EntryDone,
        statuses=(200, 409),
    ),
]
