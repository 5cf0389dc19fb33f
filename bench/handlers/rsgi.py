"""For Granian, by its own interface, which is faster than ASGI."""

from __future__ import annotations

from typing import Any

from bench.handlers.push import answer


async def app(scope: Any, protocol: Any) -> None:
    protocol.response_bytes(201, [("content-type", "application/json")], answer(await protocol()))
