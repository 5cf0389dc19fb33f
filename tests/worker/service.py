"""A small HTTP service that does what it is told to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple, Self


class Asked(NamedTuple):
    at: float
    headers: dict[str, str]
    body: bytes


class Service:
    """`answer(asked)` gives status, further headers and body."""

    def __init__(self, answer: Callable[[Asked], tuple[int, str, bytes]]) -> None:
        self.asked: list[Asked] = []
        self._answer = answer

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(time.monotonic(), headers, body)
        self.asked.append(asked)
        status, more, answer = self._answer(asked)
        writer.write(
            f"HTTP/1.1 {status} X\r\nConnection: close\r\n{more}Content-Length: {len(answer)}\r\n\r\n".encode()
        )
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
