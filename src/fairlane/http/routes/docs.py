"""GET /openapi.json, and a page at /docs that shows it without internet access."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fairlane.http.router import Routes
from fairlane.http.server import Response

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

routes = Routes("docs")
HTML, CSS, SCRIPT = (f"text/{kind}; charset=utf-8" for kind in ("html", "css", "javascript"))
POLICY = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@lru_cache
def _file(name: str, content_type: str) -> Response:
    body = files("fairlane.http").joinpath(name).read_bytes()
    return Response(200, body, content_type=content_type.encode(), headers=POLICY)


@routes.get("/openapi.json", needs="status", each=True)
async def description(app: HttpApp) -> Response:
    """Show this description of the API."""
    return Response(200, await app.description())


@routes.get("/docs", needs="status", each=True, content_type=HTML)
async def page() -> Response:
    """Show this description as a page."""
    return _file("docs.html", HTML)


@routes.get("/docs/style.css", needs="status", each=True, content_type=CSS)
async def style() -> Response:
    """Serve the style of the page."""
    return _file("docs.css", CSS)


@routes.get("/docs/script.js", needs="status", each=True, content_type=SCRIPT)
async def script() -> Response:
    """Serve the script of the page."""
    return _file("docs.js", SCRIPT)
