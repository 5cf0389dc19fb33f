"""The request policy of a listener for metrics and health checks: it serves nothing else, and needs no key."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.errors import FairlaneError
from fairlane.http.app import HttpApp
from fairlane.http.problems import problem
from fairlane.http.route_table import ROUTES
from fairlane.http.router import Router
from fairlane.http.server import Request, Response, bad_request, error_response, too_large
from fairlane.model.principal import ANYBODY, PUBLIC

PATHS = ("/metrics", "/livez", "/readyz")


class MetricsListener:
    """A policy that accepts scrapes and health checks from anyone who can reach the listener."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app
        served = [one for one in ROUTES if one.path in PATHS and one.method == "GET"]
        self._router = Router([msgspec.structs.replace(one, needs=PUBLIC) for one in served])

    def on_bound(self, address: str) -> None:
        pass

    def on_headers(self, request: Request, *, has_body: bool) -> Response | int:
        try:
            found = self._router.match(request)
        except FairlaneError as error:
            return problem(error)
        if isinstance(found, Response):
            none = error_response(404, "no_such_route", f"this listener serves only {', '.join(PATHS)}")
            return none if found.status == 404 else found
        request.found, request.caller = found, ANYBODY
        return bad_request(f"{found.method} {found.path} takes no body") if has_body else 0

    def on_disconnect(self, caller: Any) -> None:
        pass

    def on_body_too_large(self, request: Request, bytes_max: int) -> Response:
        return too_large(bytes_max)

    def on_error(self, error: Exception, request: Request | None = None) -> Response:
        return self._app.on_error(error, request)
