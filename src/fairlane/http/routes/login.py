"""Login of the dashboard.

A browser sends a credential once, and then the id of a session in a cookie that scripts cannot read and other sites
cannot send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.errors import Unauthenticated
from fairlane.http.auth.authentication import COOKIE, COOKIE_HTTPS, bearer, session_ids
from fairlane.http.router import Routes
from fairlane.http.routes.keys import of_caller
from fairlane.http.server import Request, Response
from fairlane.model.principal import NOBODY, PUBLIC
from fairlane.wire.base import encode
from fairlane.wire.keys import LoginBody, Whoami

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("keys")


@routes.post("/api/v1/login", needs=PUBLIC, answer=Whoami, audited=False)
async def login(app: HttpApp, request: Request, body: LoginBody) -> Response:
    """Open a session for this key or token, and set its cookie.

    The session ends by logout, with the key or token, when the browser is closed, or after 12 hours.
    """
    secret = bearer(body.key.strip().encode("ascii", "replace"))
    try:
        caller = app.authenticator.verify(secret)
    except Unauthenticated:
        app.broker.audit.refused(NOBODY, "login", "/api/v1/login", request.peer)
        raise
    await app.broker.audit.logged_in(caller, "/api/v1/login", request.peer)
    session_id = await app.broker.process.credentials.log_in(caller, secret.decode("ascii"))
    return Response(200, encode(of_caller(caller, app.broker)), headers=(_cookie(request, session_id.encode()),))


@routes.post("/api/v1/logout", needs=PUBLIC, audited=False, statuses=(204,))
async def logout(app: HttpApp, request: Request) -> Response:
    """End the session of the browser at every broker within a second, and delete its cookie."""
    for session_id in session_ids(request):
        await app.broker.process.credentials.log_out(session_id)
    return Response(204, headers=(_cookie(request, b"; Max-Age=0"),))


def _cookie(request: Request, value: bytes) -> tuple[bytes, bytes]:
    https = request.headers.get(b"origin", b"").startswith(b"https:")
    name, secure = (COOKIE_HTTPS, b"; Secure") if https else (COOKIE, b"")
    return b"set-cookie", name + b"=" + value + b"; Path=/; HttpOnly; SameSite=Strict" + secure
