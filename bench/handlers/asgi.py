"""For uvicorn and hypercorn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bench.handlers.push import answer

_KIND = (b"content-type", b"application/json")


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    body, more = b"", True
    while more:
        part = await receive()
        body += part["body"]
        more = part.get("more_body", False)
    said = answer(body)
    headers = [_KIND, (b"content-length", b"%d" % len(said))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": said})
