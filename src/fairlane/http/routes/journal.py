"""Failed entries of the journal, which the store refused for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.broker.failed_operations import FailedOperations
from fairlane.errors import Conflict
from fairlane.http.decode import read
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_journal import EntryDone, FailedEntries, FailedQuery, failed_out

if TYPE_CHECKING:
    from fairlane.http.app import App


def _failed_operations(app: App) -> FailedOperations:
    if app.broker.journal_route is None:
        raise Conflict("this broker has no journal, so that nothing failed in it")
    return app.broker.journal_route.failed


async def failed(app: App, request: Request) -> Response:
    query, operations = read(request.query, FailedQuery), _failed_operations(app)
    found = await operations.list(limit=query.limit)
    return json_response(FailedEntries(entries=[failed_out(operations, entry) for entry in found]))


async def retry(app: App, request: Request) -> Response:
    operations = _failed_operations(app)
    entry = await operations.retry(request.params["entryId"])
    return json_response(EntryDone(entry=failed_out(operations, entry), status="waiting"))


async def discard(app: App, request: Request) -> Response:
    operations = _failed_operations(app)
    entry = await operations.discard(request.params["entryId"])
    return json_response(EntryDone(entry=failed_out(operations, entry), status="discarded"))


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
        summary="Let an entry wait again, at the end of its partition.",
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
