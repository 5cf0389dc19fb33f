"""The broker's door: decides on a request by its header alone, before a byte of its body is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.http.browsers import Hosts, foreign, misfit
from fairlane.http.routes import hooks
from fairlane.http.server import Request, Response, bad_request, too_large

if TYPE_CHECKING:
    from fairlane.http.app import App

_IGNORED_BYTES_MAX = 64 * 1024
"""Of a body that its route has no use for: some clients send an empty object with every POST."""


class AppDoor:
    """A door that lets in what has a route, is asked under one of the broker's names, and was not asked by a page of
    another site."""

    def __init__(self, app: App, hosts: Hosts, origins: frozenset[bytes]) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins

    def bound(self, address: str) -> None:
        self._hosts.add(address)

    def admit(self, request: Request, *, has_body: bool) -> Response | int:
        headers = request.headers
        refused = None if headers[b"host"] in self._hosts.met else self._hosts.refusal(headers[b"host"])
        if refused is None and (b"origin" in headers or b"sec-fetch-site" in headers):
            refused = foreign(request, self._origins)
        if refused is not None:
            return refused
        found = self._app.find(request)
        if not has_body:
            return 0
        if isinstance(found, Response):
            return found
        if found.body is None:
            if found.method in ("GET", "DELETE"):
                return bad_request(f"{found.method} {found.path} takes no body")
            return _IGNORED_BYTES_MAX
        if found.endpoint is hooks.receive:
            return hooks.body_bytes_max(self._app, request)
        return misfit(request) or found.body_bytes_max

    def too_large(self, request: Request, bytes_max: int) -> Response:
        if request.path.startswith(b"/hook/"):
            return hooks.too_large(self._app, request, bytes_max)
        return too_large(bytes_max)
