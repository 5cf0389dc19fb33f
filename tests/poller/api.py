"""An HTTP API with records that are added, changed and deleted, and that fails as real APIs do."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.small_server import SmallServer


class Asked(NamedTuple):
    path: str
    query: dict[str, str]
    headers: dict[str, str]


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: str = ""


class Api(SmallServer):
    """`/id` pages by ids, `/token` by opaque tokens, `/link` by Link headers. Each request takes one of `faults`:
    drop (no answer), half (of one), busy (429), broken (503), repeat (the page before this one), or none."""

    def __init__(self, count: int = 0) -> None:
        self.records: dict[int, dict[str, Any]] = {n: {"id": n, "text": "first"} for n in range(1, count + 1)}
        self.faults: deque[str | None] = deque()
        self.asked: list[Asked] = []
        self.retry_after = "0.01"
        self.meet: Callable[[Asked, str], Awaitable[None]] | None = None
        """Callback for the moments when a request came (`asked`) and when half of its answer was sent (`half`)."""
        self._last: Answer | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        target = urlsplit(head[0].split(" ")[1])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        asked = Asked(target.path, dict(parse_qsl(target.query)), headers)
        self.asked.append(asked)
        await self._meet(asked, "asked")
        fault = self.faults.popleft() if self.faults else None
        answer = self._answer(asked, fault)
        whole = (
            f"HTTP/1.1 {answer.status} X\r\nConnection: close\r\nContent-Length: {len(answer.body)}\r\n"
            f"{answer.headers}\r\n"
        ).encode() + answer.body
        if fault != "drop":
            half = len(whole) - len(answer.body) // 2
            writer.write(whole[:half])
            await writer.drain()
            await self._meet(asked, "half")
            writer.write(b"" if fault == "half" else whole[half:])
        await writer.drain()

    async def _meet(self, asked: Asked, what: str) -> None:
        if self.meet is not None:
            await self.meet(asked, what)

    def _answer(self, asked: Asked, fault: str | None) -> Answer:
        if fault == "busy":
            return Answer(429, b"{}", f"Retry-After: {self.retry_after}\r\n")
        if fault == "broken":
            return Answer(503, b"{}")
        if fault == "repeat" and self._last is not None:
            return self._last
        answer: Answer = getattr(self, f"_{asked.path.strip('/')}")(asked.query)
        self._last = answer
        return answer

    def _page(self, after: int, size: int) -> tuple[list[dict[str, Any]], bool]:
        behind = sorted(n for n in self.records if n > after)
        return [self.records[n] for n in behind[:size]], len(behind) > size

    def _id(self, query: dict[str, str]) -> Answer:
        page, _ = self._page(int(query.get("after", 0)), int(query["page_size"]))
        return Answer(200, json.dumps(page).encode())

    def _token(self, query: dict[str, str]) -> Answer:
        token = query.get("cursor", "t0")
        if not token.startswith("t"):
            return Answer(410, b'{"error":"this token expired"}')
        page, more = self._page(int(token[1:]), int(query["limit"]))
        meta = {"next": f"t{page[-1]['id']}" if more else None, "total": len(self.records)}
        return Answer(200, json.dumps({"result": {"data": page}, "meta": meta}).encode())

    def _link(self, query: dict[str, str]) -> Answer:
        after = int(query.get("from", 0))
        page, more = self._page(after, int(query["page_size"]))
        further = f"/link?page_size={query['page_size']}&from={page[-1]['id']}" if more else ""
        link = f'Link: </link?page_size=1>; rel="first", <{further}>; rel="next"\r\n' if more else ""
        return Answer(200, json.dumps(page).encode(), link)

    def _away(self, query: dict[str, str]) -> Answer:
        return Answer(200, b'[{"id": 1}]', 'Link: <http://127.0.0.2:1/next>; rel="next"\r\n')

    def _moved(self, query: dict[str, str]) -> Answer:
        return Answer(302, b"", "Location: /id\r\n")
