"""GET /api/v1/live: answers of the API as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from fairlane.http.router import EVENTS, Routes
from fairlane.http.server import Request, Response
from fairlane.wire.live import LiveQuery

if TYPE_CHECKING:
    from fairlane.http.app import App

routes = Routes("live")


@routes.get("/api/v1/live", needs="known", query=LiveQuery, content_type=EVENTS)
async def watch(app: App, request: Request) -> Response:
    """Answers of GETs of this API as they change, as server-sent events. Each `watch` is a path with its query. An
    event `snapshot` has the whole answer to a path, `change` a JSON merge patch against what came before for it,
    `problem` the error that it answers now. Nothing comes while nothing changes."""
    given = parse_qsl(request.query_string.decode("utf-8", "replace"))
    return Response(
        200, content_type=EVENTS.encode(), stream=app.live.watch([path for _, path in given], request.caller)
    )
