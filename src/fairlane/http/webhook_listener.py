"""The request policy of a public listener for webhooks: it serves nothing else."""

from __future__ import annotations

from typing import Any

from fairlane.errors import FairlaneError
from fairlane.http.app import HttpApp
from fairlane.http.problems import problem
from fairlane.http.route_table import ROUTES
from fairlane.http.router import Router
from fairlane.http.routes import webhooks
from fairlane.http.server import Request, Response, bad_request, error_response
from fairlane.model.principal import PUBLIC, SIGNATURE


class WebhookListener:
    """A policy that accepts webhooks, which are signed, and liveness checks.

    Senders may use any name for the broker, and a page that redirects a browser here cannot sign, so the Host header is
    not checked.
    """

    def __init__(self, app: HttpApp) -> None:
        self._app = app
        self._router = Router([one for one in ROUTES if one.needs == SIGNATURE or one.path == "/livez"])

    def on_bound(self, address: str) -> None:
        pass

    def on_headers(self, request: Request, *, has_body: bool) -> Response | int:
        try:
            found = self._router.match(request)
        except FairlaneError as error:
            return problem(error)
        if isinstance(found, Response):
            none = error_response(404, "no_such_route", "this listener serves nothing but webhooks")
            return none if found.status == 404 else found
        request.found, request.outside = found, True
        if found.needs == PUBLIC:
            return bad_request(f"{found.method} {found.path} takes no body") if has_body else 0
        return webhooks.body_bytes_max(self._app, request) if has_body else 0

    def on_disconnect(self, caller: Any) -> None:
        pass

    def on_body_too_large(self, request: Request, bytes_max: int) -> Response:
        return self._app.on_body_too_large(request, bytes_max)

    def on_error(self, error: Exception, request: Request | None = None) -> Response:
        return self._app.on_error(error, request)
