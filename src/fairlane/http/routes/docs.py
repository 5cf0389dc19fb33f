"""GET /openapi.json, and a page at /docs that shows it without the internet."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fairlane.http.openapi import openapi
from fairlane.http.router import Router, Routes
from fairlane.http.server import Response
from fairlane.wire.base import encode

if TYPE_CHECKING:
    from fairlane.http.app import App

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
async def description(app: App) -> Response:
    """This description."""
    # Made once, and beside the loop: it takes as long as a thousand pushes, and anybody may ask.
    if app.description is None:
        app.description = asyncio.create_task(asyncio.to_thread(_described, app.router))
    return Response(200, await asyncio.shield(app.description))


def _described(router: Router) -> bytes:
    return encode(openapi(router.routes))


@routes.get("/docs", needs="status", each=True, content_type=HTML)
async def page() -> Response:
    """This description for people."""
    return _file("docs.html", HTML)


@routes.get("/docs/style.css", needs="status", each=True, content_type=CSS)
async def style() -> Response:
    """The page's style."""
    return _file("docs.css", CSS)


@routes.get("/docs/script.js", needs="status", each=True, content_type=SCRIPT)
async def script() -> Response:
    """The page's script."""
    return _file("docs.js", SCRIPT)
