"""The door of a listener for webhooks alone, which strangers may reach: there is nothing else behind it."""

from __future__ import annotations

from typing import Any

from fairlane.errors import FairlaneError
from fairlane.http.app import App
from fairlane.http.problems import problem
from fairlane.http.router import Router
from fairlane.http.routes import ROUTES, hooks
from fairlane.http.server import Request, Response, bad_request, error_response
from fairlane.model.access import PUBLIC, SIGNATURE


class HooksDoor:
    """Lets in webhooks, whose signatures vouch for them, and who asks whether the broker lives. Senders know the broker
    by any name, and a page that leads a browser here cannot sign: so the Host is not looked at."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._router = Router([one for one in ROUTES if one.needs == SIGNATURE or one.path == "/livez"])

    def bound(self, address: str) -> None:
        pass

    def admit(self, request: Request, *, has_body: bool) -> Response | int:
        try:
            found = self._router.match(request)
        except FairlaneError as error:
            return problem(error)
        if isinstance(found, Response):
            none = error_response(404, "no_such_route", "here webhooks are taken, and nothing else is there")
            return none if found.status == 404 else found
        request.found, request.outside = found, True
        if found.needs == PUBLIC:
            return bad_request(f"{found.method} {found.path} takes no body") if has_body else 0
        return hooks.body_bytes_max(self._app, request) if has_body else 0

    def left(self, caller: Any) -> None:
        pass

    def too_large(self, request: Request, bytes_max: int) -> Response:
        return self._app.too_large(request, bytes_max)

    def failed(self, error: Exception, request: Request | None = None) -> Response:
        return self._app.failed(error, request)
