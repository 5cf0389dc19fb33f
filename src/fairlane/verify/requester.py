"""Single HTTP requests to the brokers of a run. A request that fails is never repeated here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec

from fairlane.client.connection import ConnectionBroken, ConnectionPool
from fairlane.client.tls import TlsOptions
from fairlane.verify.history import Fate

TIMEOUT_SECONDS = 8.0
EXPECTED = frozenset({200, 201, 202, 204, 207, 429, 503, 504})
"""Statuses that a client of a healthy or failing store may get. Any other status is unexpected."""


@dataclass(frozen=True)
class HttpAnswer:
    """An answer of a broker. `status` is 0 if there was none."""

    status: int
    content: bytes
    began: float
    ended: float

    @property
    def body(self) -> Any:
        """The decoded JSON, or None."""
        try:
            return msgspec.json.decode(self.content) if self.content else None
        except msgspec.DecodeError:
            return None

    @property
    def fate(self) -> Fate:
        if self.status == 429:
            return "refused"
        if self.status == 202:
            return "deferred"
        return "done" if 200 <= self.status < 300 else "unknown"


class Requester:
    """Sends requests to brokers by their number."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.count = len(urls)
        self._pools = [ConnectionPool(url, TlsOptions()) for url in urls]

    async def send(self, broker: int, method: str, path: str, body: Any = None, **query: Any) -> HttpAnswer:
        """Send one request and return its answer, or one with the status 0."""
        pool = self._pools[broker]
        content = None if body is None else msgspec.json.encode(body)
        if query:
            path += "?" + urlencode(
                {name: str(value).lower() if value is True else value for name, value in query.items()}
            )
        head = f"{method} {path}{pool.head}"
        if content is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        began = time.monotonic()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status, answer = await self._exchange(pool, f"{head}\r\n".encode(), content)
        except (ConnectionBroken, TimeoutError, OSError):
            status, answer = 0, b""
        return HttpAnswer(status, answer, began, time.monotonic())

    async def _exchange(self, pool: ConnectionPool, head: bytes, content: bytes | None) -> tuple[int, bytes]:
        connection = pool.take_idle() or await pool.connect()
        try:
            reply = await connection.exchange(head, content)
        except BaseException:
            connection.close()
            raise
        pool.release(connection)
        return reply.status, reply.body

    def close(self) -> None:
        for pool in self._pools:
            while connection := pool.take_idle():
                connection.close()
