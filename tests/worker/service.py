"""A small HTTP service that behaves as told and records its requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.small_server import SmallServer


class Asked(NamedTuple):
    at: float
    headers: dict[str, str]
    body: bytes


class Service(SmallServer):
    """The service. `answer(asked)` returns status, further headers and body."""

    def __init__(self, answer: Callable[[Asked], tuple[int, str, bytes]]) -> None:
        self.asked: list[Asked] = []
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
