"""Login of the dashboard: a credential goes into a cookie that no script reads and no other site sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlane.errors import InvalidRequest, Unauthenticated
from fairlane.http.access import COOKIE, bearer
from fairlane.http.router import Routes
from fairlane.http.routes.keys import of_caller
from fairlane.http.server import Request, Response
from fairlane.model.access import NOBODY, PUBLIC
from fairlane.wire.base import encode
from fairlane.wire.keys import LoginBody, Whoami

if TYPE_CHECKING:
    from fairlane.http.app import App

routes = Routes("keys")
_COOKIE_BYTES_MAX: Final = 4000
"""Of a credential: browsers drop a longer cookie without a word."""


@routes.post("/api/v1/login", needs=PUBLIC, answer=Whoami, audited=False)
async def login(app: App, request: Request, body: LoginBody) -> Response:
    """Let a browser send this key or token with each request from now on, until it is closed or logs out."""
    secret = bearer(body.key.strip().encode("ascii", "replace"))
    if len(secret) > _COOKIE_BYTES_MAX:
        raise InvalidRequest(f"the token is longer than the {_COOKIE_BYTES_MAX} bytes that a browser keeps for a page")
    try:
        caller = app.access.verify(secret)
    except Unauthenticated:
        app.broker.audit.refused(NOBODY, "login", "/api/v1/login", request.peer)
        raise
    await app.broker.audit.add(caller, "login", "/api/v1/login", "done", request.peer)
    return Response(200, encode(of_caller(caller)), headers=(_cookie(request, COOKIE + secret),))


@routes.post("/api/v1/logout", needs=PUBLIC, audited=False, statuses=(204,))
async def logout(request: Request) -> Response:
    """Let the browser forget the credential of its login."""
    return Response(204, headers=(_cookie(request, COOKIE + b"; Max-Age=0"),))


def _cookie(request: Request, value: bytes) -> tuple[bytes, bytes]:
    secure = b"; Secure" if request.headers.get(b"origin", b"").startswith(b"https:") else b""
    return b"set-cookie", value + b"; Path=/; HttpOnly; SameSite=Strict" + secure
