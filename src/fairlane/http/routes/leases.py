"""POST /api/v1/lease/{leaseId}/extend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.http.message import Request, Response, json_response
from fairlane.http.router import Route
from fairlane.http.wire import ExtendBody, decode, timestamp_or_none
from fairlane.model.limits import LEASE_SECONDS_MAX
from fairlane.model.names import check_count

if TYPE_CHECKING:
    from fairlane.http.app import App


async def extend(app: App, request: Request) -> Response:
    body = decode(request.body, ExtendBody, default=ExtendBody())
    check_count("seconds", body.seconds, least=1, most=LEASE_SECONDS_MAX)
    lease = request.params["leaseId"]
    outcome = await app.engine.renew(lease, seconds=body.seconds)
    ends_at = timestamp_or_none(outcome.expires_at)
    answer = {
        "leaseId": lease,
        "success": outcome.renewed > 0,
        "renewed": outcome.renewed,
        "newExpiresAt": ends_at,
        "expiresAt": ends_at,
        "lease_expires_at": ends_at,
    }
    if not outcome.renewed:
        answer["error"] = "Lease not found or already expired"
    return json_response(answer)


async def release(app: App, request: Request) -> Response:
    lease = request.params["leaseId"]
    return json_response({"leaseId": lease, "released": await app.engine.release(lease)})


ROUTES = [
    Route(
        method="POST",
        path="/api/v1/lease/{leaseId}/extend",
        endpoint=extend,
        summary="Keep a lease longer.",
        tag="messages",
        body=ExtendBody,
        body_required=False,
    ),
    Route(
        method="POST",
        path="/api/v1/lease/{leaseId}/release",
        endpoint=release,
        summary="Give a lease back at once, without a charge.",
        tag="messages",
    ),
]
