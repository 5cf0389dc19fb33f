"""Protection against requests that pages of other sites make a browser send: Host, Origin and content type checks.

A page of any site can make a user's browser send requests to a broker. Its name can even resolve to the broker's
address (DNS rebinding): then the browser treats both as one site, and only the Host header differs. Otherwise the
browser reports another site in Sec-Fetch-Site or Origin.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable

from fairlane.errors import InvalidRequest
from fairlane.http.server import Handler, Request, Response, bad_request, error_response

ANY = "*"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"[0-9a-zA-Z._-]{1,255}")
_HOST = re.compile(rf"(?:\[([0-9a-fA-F:.]{{2,64}})\]|({_NAME.pattern}))(?::\d{{1,5}})?")
_ACCEPTED_MAX = 1000
_OWN_SITES = (b"same-origin", b"none")
"""Values of Sec-Fetch-Site for a page of this server, and for an address that a person typed."""
_API = (b"/api/", b"/admin/", b"/streams/", b"/internal/")
_JSON = b"application/json"
_FORM = b"application/x-www-form-urlencoded"
_METHODS = b"GET, POST, PUT, PATCH, DELETE"
_PREFLIGHT_SECONDS = b"600"


class Hosts:
    """The host names of this server: loopback, the addresses it is bound to, and the allowed names."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """Raise InvalidRequest if an allowed name is not a host."""
        given = [name.strip() for name in allowed if name.strip()]
        self._any = ANY in given
        # A browser that asks for the wildcard address reaches loopback without naming its site.
        self._known = {*_LOOPBACK, *(_allowed(name) for name in given if name != ANY)} - {"0.0.0.0", "::"}  # noqa: S104
        self.accepted: set[bytes] = set()
        """Cache of Host headers that were accepted."""

    def add(self, address: str) -> None:
        self._known.add(address.partition("%")[0])

    def refusal(self, header: bytes) -> Response | None:
        """Return the error response if the Host header names another host, else None."""
        host = _parsed(header.strip(b" \t").decode("latin-1"))
        if host is None:
            return bad_request("the header host is not a name or an address")
        if not self._any and host not in self._known:
            return error_response(
                403,
                "host_not_allowed",
                f"{host:.100} is not a name of this broker; --allowed-hosts adds it",
            )
        if len(self.accepted) >= _ACCEPTED_MAX:
            self.accepted.clear()
        self.accepted.add(header)
        return None


def _allowed(name: str) -> str:
    bare = name.removeprefix("[").removesuffix("]")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(bare))
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"allowed_hosts has {name!r:.80}; it must be a name or an address, without a port")
    return name.lower()


def _parsed(text: str) -> str | None:
    """Return the normalised host of a Host header, or None if it is not valid."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    if found[1] is None:
        return found[2].lower()
    try:
        return str(ipaddress.IPv6Address(found[1]))
    except ValueError:
        return None


def parse_origins(origins: str) -> frozenset[bytes]:
    """Parse a comma-separated list of origins, or `*`. Raises InvalidRequest if one is not an origin."""
    found = frozenset(origin.strip().encode() for origin in origins.split(","))
    for origin in found:
        scheme, _, host = origin.partition(b"://")
        if origin != ANY.encode() and (scheme not in (b"http", b"https") or not host or b"/" in host):
            raise InvalidRequest(
                f"cors_origin has {origin.decode()!r:.80}; an origin is `*`, or like https://app.example.com"
            )
    return found


def cross_site_refusal(request: Request, origins: frozenset[bytes]) -> Response | None:
    """Return the error response to a request from a page of another site, unless `origins` allows it. None otherwise.

    Links to public pages are allowed. GET requests to the API are not, because a GET can pop messages.
    """
    site, origin = request.headers.get(b"sec-fetch-site"), request.headers.get(b"origin")
    if site is None and origin is None:
        return None
    if request.method == "OPTIONS" or (request.method in ("GET", "HEAD") and not request.path.startswith(_API)):
        return None
    if origin is not None and (origin in origins or ANY.encode() in origins):
        return None
    if site in _OWN_SITES:
        return None
    if site is None and origin is not None and origin.partition(b"://")[2] == request.headers[b"host"]:
        return None
    return error_response(
        403, "cross_site", "pages of other sites may not call this; --cors-origin allows their origins"
    )


def is_own_page(request: Request) -> bool:
    """Return False if the browser says that an API request does not come from a page of this server.

    Browsers say nothing over plain http to another machine.
    """
    site = request.headers.get(b"sec-fetch-site", b"same-origin")
    return site == b"same-origin" or not request.path.startswith(_API)


def content_type_refusal(request: Request) -> Response | None:
    """Return the error response if the content type of an API body is not JSON, else None.

    A form cannot declare JSON, and a script of another site needs permission to. The default type of curl is accepted
    from clients that are not browsers.
    """
    kind = request.headers.get(b"content-type", b"")
    if kind == _JSON or not request.path.startswith(_API):
        return None
    kind = kind.partition(b";")[0].strip().lower()
    by_browser = b"origin" in request.headers or b"sec-fetch-site" in request.headers
    if kind == _JSON or (kind in (_FORM, b"") and not by_browser):
        return None
    return error_response(415, "unsupported_media_type", "the body must be JSON, with content-type: application/json")


class Cors:
    """Middleware that adds CORS headers for the configured origins. It is not installed without any."""

    def __init__(self, handler: Handler, origins: frozenset[bytes]) -> None:
        self._handler = handler
        self._origins = origins

    async def __call__(self, request: Request) -> Response:
        origin = request.headers.get(b"origin")
        if origin is None or not (origin in self._origins or b"*" in self._origins):
            return await self._handler(request)
        allow = ((b"access-control-allow-origin", origin), (b"vary", b"origin"))
        asked = request.headers.get(b"access-control-request-method")
        if request.method == "OPTIONS" and asked is not None:
            return Response(204, headers=(*allow, *_preflight(request)))
        answer = await self._handler(request)
        return answer.plus(*allow, (b"access-control-expose-headers", b"retry-after"))


def _preflight(request: Request) -> tuple[tuple[bytes, bytes], ...]:
    headers = request.headers.get(b"access-control-request-headers")
    allowed = ((b"access-control-allow-headers", headers),) if headers else ()
    return (
        (b"access-control-allow-methods", _METHODS),
        *allowed,
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
    )
