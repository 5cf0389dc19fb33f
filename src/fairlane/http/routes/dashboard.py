"""The dashboard: a page at / and the files that it loads.

All files are read into memory once and looked up by name, so no request path reaches the file system.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fairlane.errors import NotFound
from fairlane.http.router import Routes
from fairlane.http.routes.docs import CSS, HTML, POLICY, SCRIPT
from fairlane.http.server import Request, Response

routes = Routes("dashboard")
_INDEX = "index.html"
_TYPES = {"html": HTML, "css": CSS, "js": SCRIPT, "svg": "image/svg+xml"}
"""Content types by file extension. Other files are not served."""


class _File(NamedTuple):
    """The responses with a file: plain, compressed, and 304."""

    plain: Response
    compressed: Response
    same: Response
    tag: bytes


@cache
def served() -> dict[str, _File]:
    """Return all files by name."""
    return {name: _read(name, body) for name, body in _below(files("fairlane") / "dashboard")}


def _below(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _below(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in _TYPES:
            yield prefix + each.name, each.read_bytes()


def _read(name: str, body: bytes) -> _File:
    kind = _TYPES[name.rpartition(".")[2]].encode()
    # Weak, because the compressed file has the same tag.
    tag = b'W/"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
    headers = ((b"etag", tag), (b"vary", b"accept-encoding"), *POLICY)
    compressed = Response(200, gzip.compress(body, mtime=0), kind, ((b"content-encoding", b"gzip"), *headers))
    found = Response(200, body, kind, headers), compressed, Response(304, b"", kind, headers)
    for each in found:
        each.cached = True
    return _File(*found, tag)


def _answer(request: Request, name: str) -> Response:
    found = served().get(name)
    if found is None:
        raise NotFound(f"the dashboard has no file {name!r:.200}")
    if found.tag in request.headers.get(b"if-none-match", b""):
        return found.same
    return found.compressed if b"gzip" in request.headers.get(b"accept-encoding", b"") else found.plain


@routes.get("/", needs="public", content_type=HTML)
async def index(request: Request) -> Response:
    """Serve the dashboard."""
    return _answer(request, _INDEX)


@routes.get("/dashboard/{path}", needs="public", rest=True, content_type="*/*")
async def file(request: Request, path: str) -> Response:
    """Serve a file of the dashboard."""
    return _answer(request, path)
