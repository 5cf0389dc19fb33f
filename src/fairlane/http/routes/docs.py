"""GET /openapi.json, and a page at /docs that shows it without the internet."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from fairlane.http.openapi import openapi
from fairlane.http.router import Route, Router
from fairlane.http.server import Request, Response, json_response

if TYPE_CHECKING:
    from fairlane.http.app import App

HTML = "text/html; charset=utf-8"
CSS = "text/css; charset=utf-8"
SCRIPT = "text/javascript; charset=utf-8"
_POLICY = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        b"frame-ancestors 'none'; form-action 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
)


@lru_cache
def _file(name: str) -> bytes:
    return files("fairlane.http").joinpath(name).read_bytes()


async def description(app: App, request: Request) -> Response:
    """Made once, and beside the loop: it takes as long as a thousand pushes, and anybody may ask."""
    if app.description is None:
        app.description = asyncio.create_task(asyncio.to_thread(_described, app.router))
    return Response(200, await asyncio.shield(app.description))


def _described(router: Router) -> bytes:
    return json_response(openapi(router.routes)).body


async def page(app: App, request: Request) -> Response:
    return Response(200, _file("docs.html"), content_type=HTML.encode(), headers=_POLICY)


async def style(app: App, request: Request) -> Response:
    return Response(200, _file("docs.css"), content_type=CSS.encode(), headers=_POLICY)


async def script(app: App, request: Request) -> Response:
    return Response(200, _file("docs.js"), content_type=SCRIPT.encode(), headers=_POLICY)


ROUTES = [
    Route(method="GET", path="/openapi.json", endpoint=description, summary="This description.", tag="docs"),
    Route(
        method="GET", path="/docs", endpoint=page, summary="This description for people.", tag="docs", content_type=HTML
    ),
    Route(
        method="GET", path="/docs/style.css", endpoint=style, summary="The page's style.", tag="docs", content_type=CSS
    ),
    Route(
        method="GET",
        path="/docs/script.js",
        endpoint=script,
        summary="The page's script.",
        tag="docs",
        content_type=SCRIPT,
    ),
]
