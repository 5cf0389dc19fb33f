"""Two unreliable services outside the shop: a payment service and a supplier's price list."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


class Outside:
    """A server where `POST /charges` charges once per Idempotency-Key and `GET /prices` lists prices by id."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.orders: list[int] = []
        self.prices: dict[int, int] = {article: 100 * article for article in range(1, 26)}
        self.asked = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, target, _ = head[0].split(" ")
        self.asked += 1
        if self.asked % 9 == 4:
            status, answer = 503, {"error": "come back later"}
        elif method == "POST":
            status, answer = 200, self._charge(headers["idempotency-key"], json.loads(body))
        else:
            status, answer = 200, self._list(parse_qs(urlsplit(target).query))
        text = json.dumps(answer).encode()
        if self.asked % 11 != 5:  # sometimes the answer is lost after the work was done
            writer.write(f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n".encode())
            writer.write(text)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    def _charge(self, key: str, order: dict[str, int]) -> dict[str, str]:
        if key not in self.charges:
            self.charges[key] = len(self.charges) + 1
            self.orders.append(order["order"])
        return {"charge": f"ch_{self.charges[key]}"}

    def _list(self, query: dict[str, list[str]]) -> dict[str, Any]:
        after, size = int(query.get("after", ["0"])[0]), int(query["page_size"][0])
        behind = sorted(article for article in self.prices if article > after)
        return {"prices": [{"id": article, "cents": self.prices[article]} for article in behind[:size]]}
