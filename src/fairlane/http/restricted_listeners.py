"""Request policies of listeners that serve some routes only: webhooks, or metrics and health checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlane.errors import FairlaneError
from fairlane.http.app import HttpApp
from fairlane.http.problems import problem
from fairlane.http.route_table import ROUTES
from fairlane.http.router import Route, Router
from fairlane.http.routes import webhooks
from fairlane.http.server import Request, Response, bad_request, error_response, too_large
from fairlane.model.principal import ANYBODY, PUBLIC, SIGNATURE

_METRICS = ("/metrics", "/livez", "/readyz")


class RestrictedListener:
    """A policy that serves `routes` and answers 404 to other requests. Subclasses decide about the body."""

    def __init__(self, app: HttpApp, routes: Sequence[Route], served: str) -> None:
        self._app = app
        self._router = Router(list(routes))
        self._served = served

    def on_bound(self, address: str) -> None:
        pass

    def on_headers(self, request: Request, *, has_body: bool) -> Response | int:
        try:
            found = self._router.match(request)
        except FairlaneError as error:
            return problem(error)
        if isinstance(found, Response):
            none = error_response(404, "no_such_route", f"this listener serves only {self._served}")
            return none if found.status == 404 else found
        request.found = found
        return self._admit(request, found, has_body=has_body)

    def _admit(self, request: Request, route: Route, *, has_body: bool) -> Response | int:
        """Return the size limit of the body, or a refusal of a body on a route without one."""
        return bad_request(f"{route.method} {route.path} takes no body") if has_body else 0

    def on_disconnect(self, caller: Any) -> None:
        pass

    def on_body_too_large(self, request: Request, bytes_max: int) -> Response:
        return too_large(bytes_max)

    def on_error(self, error: Exception, request: Request | None = None) -> Response:
        return self._app.on_error(error, request)


class MetricsListener(RestrictedListener):
    """A policy that accepts scrapes and health checks from anyone who can reach the listener."""

    def __init__(self, app: HttpApp) -> None:
        served = [one for one in ROUTES if one.path in _METRICS and one.method == "GET"]
        super().__init__(app, [msgspec.structs.replace(one, needs=PUBLIC) for one in served], ", ".join(_METRICS))

    def _admit(self, request: Request, route: Route, *, has_body: bool) -> Response | int:
        request.caller = ANYBODY
        return super()._admit(request, route, has_body=has_body)


class WebhookListener(RestrictedListener):
    """A policy that accepts webhooks, which are signed, and liveness checks.

    Senders may use any name for the broker, and a page that redirects a browser here cannot sign, so the Host header is
    not checked.
    """

    def __init__(self, app: HttpApp) -> None:
        super().__init__(app, [one for one in ROUTES if one.needs == SIGNATURE or one.path == "/livez"], "webhooks")

    def _admit(self, request: Request, route: Route, *, has_body: bool) -> Response | int:
        request.outside = True
        if route.needs == PUBLIC:
            return super()._admit(request, route, has_body=has_body)
        return webhooks.body_bytes_max(self._app, request) if has_body else 0

    def on_body_too_large(self, request: Request, bytes_max: int) -> Response:
        return self._app.on_body_too_large(request, bytes_max)
