"""Answers for browsers: pages of the configured origins may call the API. Without configuration nothing of this is in
the path of a request, and browsers let no other origin's page read an answer."""

from __future__ import annotations

from fairlane.http.server import Handler, Request, Response

_METHODS = b"GET, POST, PUT, PATCH, DELETE"
_PREFLIGHT_SECONDS = b"600"


class Cors:
    """A handler around another."""

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
