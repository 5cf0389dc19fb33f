"""Sources: leased by a poller, committed page by page, looked at, forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.http.decode import decode
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_sources import (
    SourceAnswer,
    SourceCommitBody,
    SourceCommitted,
    SourceDeleted,
    SourceLeaseBody,
    SourceList,
    SourceReleaseBody,
    SourceReleased,
    commit_in,
    source_out,
)
from fairlane.model.limits import REQUEST_BYTES_MAX

if TYPE_CHECKING:
    from fairlane.http.app import App


async def list_sources(app: App, request: Request) -> Response:
    found = await app.broker.sources.list(app.tenant)
    return json_response(SourceList(sources=[source_out(source) for source in found]))


async def get(app: App, request: Request) -> Response:
    return json_response(source_out(await app.broker.sources.get(app.tenant, request.params["name"])))


async def delete(app: App, request: Request) -> Response:
    name = request.params["name"]
    return json_response(SourceDeleted(name=name, deleted=await app.broker.sources.delete(app.tenant, name)))


async def lease(app: App, request: Request) -> Response:
    body = decode(request.body, SourceLeaseBody, default=SourceLeaseBody())
    name = request.params["name"]
    source = await app.broker.sources.lease(app.tenant, name, seconds=body.seconds, token=body.token)
    return json_response(source_out(source))


async def release(app: App, request: Request) -> Response:
    body, name = decode(request.body, SourceReleaseBody), request.params["name"]
    released = await app.broker.sources.release(app.tenant, name, body.token)
    return json_response(SourceReleased(name=name, released=released))


async def commit(app: App, request: Request) -> Response:
    page = commit_in(decode(request.body, SourceCommitBody))
    done = await app.broker.sources.commit(app.tenant, request.params["name"], page)
    return json_response(SourceCommitted(**msgspec.structs.asdict(done)))


_ONE = "/api/v1/sources/{name}"
ROUTES = [
    Route(
        method="GET",
        path="/api/v1/sources",
        endpoint=list_sources,
        summary="All sources, by name: how far each was read, and what is known of it.",
        tag="sources",
        answer=SourceList,
    ),
    Route(
        method="GET",
        path=_ONE,
        endpoint=get,
        summary="One source.",
        tag="sources",
        answer=SourceAnswer,
        statuses=(200, 404),
    ),
    Route(
        method="DELETE",
        path=_ONE,
        endpoint=delete,
        summary="Forget a source and its records: the next poll reads it from the beginning.",
        tag="sources",
        answer=SourceDeleted,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/lease",
        endpoint=lease,
        summary="Take the lease of a source, made if it is not there, or keep it; one poller has it at a time.",
        tag="sources",
        body=SourceLeaseBody,
        body_required=False,
        answer=SourceAnswer,
        statuses=(200, 409),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/release",
        endpoint=release,
        summary="Give the lease of a source back.",
        tag="sources",
        body=SourceReleaseBody,
        answer=SourceReleased,
    ),
    Route(
        method="POST",
        path=f"{_ONE}/commit",
        endpoint=commit,
        summary="Commit a page: cursor, records and the messages of what is new, changed or gone, together and once.",
        tag="sources",
        body=SourceCommitBody,
        body_bytes_max=REQUEST_BYTES_MAX,
        answer=SourceCommitted,
        statuses=(200, 404, 409),
    ),
]
