"""Specs: plan, apply, those in force, all versions, export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.http.decode import decode, read
from fairlane.http.router import Route
from fairlane.http.server import Request, Response, json_response
from fairlane.http.wire_specs import (
    SpecApplied,
    SpecApplyBody,
    SpecDetail,
    SpecExported,
    SpecExportQuery,
    SpecList,
    SpecPlanBody,
    SpecPlanned,
    SpecVersionList,
    SpecVersionsQuery,
    applied_out,
    detail_out,
    head_out,
    plan_out,
)
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.names import check_name, name_or_none

if TYPE_CHECKING:
    from fairlane.http.app import App


async def plan(app: App, request: Request) -> Response:
    body = decode(request.body, SpecPlanBody)
    return json_response(plan_out(await app.broker.specs.plan(bytes(body.spec))))


async def apply(app: App, request: Request) -> Response:
    body = decode(request.body, SpecApplyBody)
    applied = await app.broker.specs.apply(
        bytes(body.spec), source=body.source, by=body.applied_by, consent=body.consent, version=body.version
    )
    return json_response(applied_out(applied))


async def in_force(app: App, request: Request) -> Response:
    return json_response(SpecList(specs=[detail_out(spec) for spec in await app.broker.specs.in_force()]))


async def versions(app: App, request: Request) -> Response:
    query = read(request.query, SpecVersionsQuery)
    only = name_or_none("app", query.app)
    found = await app.broker.specs.versions(app=only, before=query.before, limit=query.limit)
    return json_response(SpecVersionList(versions=[head_out(spec) for spec in found]))


async def version(app: App, request: Request) -> Response:
    given = request.params["version"]
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        raise InvalidRequest(f"version is {given!r:.40}; it must be a whole number")
    return json_response(detail_out(await app.broker.specs.get(int(given))))


async def export(app: App, request: Request) -> Response:
    name = check_name("app", read(request.query, SpecExportQuery).app)
    spec = await app.broker.specs.export(name)
    return json_response(SpecExported(app=name, spec=msgspec.Raw(msgspec.json.encode(spec))))


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/spec/plan",
        endpoint=plan,
        summary="What applying a spec would change, and what was changed otherwise; nothing is done.",
        tag="specs",
        body=SpecPlanBody,
        body_bytes_max=2 * MESSAGE_BYTES_MAX,
        answer=SpecPlanned,
    ),
    Route(
        method="POST",
        path="/api/v1/spec/apply",
        endpoint=apply,
        summary="Put a spec in force, all of it in one transaction; the same again changes nothing.",
        tag="specs",
        body=SpecApplyBody,
        body_bytes_max=2 * MESSAGE_BYTES_MAX,
        answer=SpecApplied,
    ),
    Route(
        method="GET",
        path="/api/v1/spec",
        endpoint=in_force,
        summary="The specs in force, one of each app.",
        tag="specs",
        answer=SpecList,
    ),
    Route(
        method="GET",
        path="/api/v1/spec/versions",
        endpoint=versions,
        summary="Everything that was applied, newest first: who, when, and the hash of what.",
        tag="specs",
        query=SpecVersionsQuery,
        answer=SpecVersionList,
    ),
    Route(
        method="GET",
        path="/api/v1/spec/versions/{version}",
        endpoint=version,
        summary="One version, with its text.",
        tag="specs",
        answer=SpecDetail,
        statuses=(200, 404),
    ),
    Route(
        method="GET",
        path="/api/v1/spec/export",
        endpoint=export,
        summary="The spec of an app as its queues are now.",
        tag="specs",
        query=SpecExportQuery,
        answer=SpecExported,
        statuses=(200, 404),
    ),
]
