"""Browsers: which requests they may have been talked into by a page that is not ours.

A page of any site can have the browser of somebody who runs a broker send it requests. Its own name can even lead to
the broker's address (DNS rebinding): then the browser takes both for one site, and only the Host header tells.
Otherwise the browser says that another site asks, in Sec-Fetch-Site or Origin."""

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
_MET_MAX = 1000
_OWN_SITES = (b"same-origin", b"none")
"""Of Sec-Fetch-Site: a page of ours, and a person who typed the address."""
_API = (b"/api/", b"/admin/", b"/streams/", b"/internal/")
_JSON = b"application/json"
_FORM = b"application/x-www-form-urlencoded"
_METHODS = b"GET, POST, PUT, PATCH, DELETE"
_PREFLIGHT_SECONDS = b"600"


class Hosts:
    """The names and addresses under which this server is asked: of loopback, where it is bound, and those allowed."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """InvalidRequest if one is not a host."""
        given = [name.strip() for name in allowed if name.strip()]
        self._any = ANY in given
        # Every address is none: a browser that asks for it reaches loopback, and does not say for whom it asks.
        self._known = {*_LOOPBACK, *(_allowed(name) for name in given if name != ANY)} - {"0.0.0.0", "::"}  # noqa: S104
        self.met: set[bytes] = set()
        """Headers that were found to name one of ours: clients send the same few again and again."""

    def add(self, address: str) -> None:
        self._known.add(address.partition("%")[0])

    def refusal(self, header: bytes) -> Response | None:
        """The answer to a request whose Host header does not name one of ours."""
        host = _parsed(header.strip(b" \t").decode("latin-1"))
        if host is None:
            return bad_request("the header host is no name or address")
        if not self._any and host not in self._known:
            return error_response(
                403,
                "host_not_allowed",
                f"this broker does not go by the name {host:.100}; if it should, start it with that in --allowed-hosts",
            )
        if len(self.met) >= _MET_MAX:
            self.met.clear()
        self.met.add(header)
        return None


def _allowed(name: str) -> str:
    bare = name.removeprefix("[").removesuffix("]")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(bare))
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"allowed_hosts has {name!r:.80}; it must be a name or an address, without a port")
    return name.lower()


def _parsed(text: str) -> str | None:
    """The host of a Host header, in the one form in which hosts are compared; None if it is none."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    if found[1] is None:
        return found[2].lower()
    try:
        return str(ipaddress.IPv6Address(found[1]))
    except ValueError:
        return None


def check_origins(origins: str) -> frozenset[bytes]:
    """`*`, or origins like `https://app.example.com`, separated by commas. InvalidRequest if one is none."""
    found = frozenset(origin.strip().encode() for origin in origins.split(","))
    for origin in found:
        scheme, _, host = origin.partition(b"://")
        if origin != ANY.encode() and (scheme not in (b"http", b"https") or not host or b"/" in host):
            raise InvalidRequest(
                f"cors_origin has {origin.decode()!r:.80}; an origin is `*`, or like https://app.example.com"
            )
    return found


def foreign(request: Request, origins: frozenset[bytes]) -> Response | None:
    """The answer to a request that a page of another site made, unless it is of one of these origins. Links to what
    anybody may look at are not refused; of the API also a GET may take messages away."""
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
        403, "cross_site", "a page of another site asked for this; --cors-origin names the origins that may"
    )


def by_own_page(request: Request) -> bool:
    """Return False if a browser says that something else than a page of ours asks the API, as a link in a mail does.
    Browsers say nothing by plain http to another machine."""
    site = request.headers.get(b"sec-fetch-site", b"same-origin")
    return site == b"same-origin" or not request.path.startswith(_API)


def misfit(request: Request) -> Response | None:
    """The answer to a body of the API that does not say it is JSON. A form cannot say that, and a script of another
    site not without being allowed to. What curl sends by itself is taken for JSON from whoever is no browser."""
    kind = request.headers.get(b"content-type", b"")
    if kind == _JSON or not request.path.startswith(_API):
        return None
    kind = kind.partition(b";")[0].strip().lower()
    by_browser = b"origin" in request.headers or b"sec-fetch-site" in request.headers
    if kind == _JSON or (kind in (_FORM, b"") and not by_browser):
        return None
    return error_response(415, "unsupported_media_type", "the body must be JSON, with content-type: application/json")


class Cors:
    """A handler around another, which lets pages of the configured origins call the API. Without configuration it is
    not in the path of a request, and browsers let no other origin's page read an answer."""

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
