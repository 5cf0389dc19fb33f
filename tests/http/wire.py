"""A broker behind its real server on a loopback port, and short helpers for requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import aiohttp
import msgspec
from yarl import URL

from fairlane.broker.admission import LIMITS
from fairlane.broker.broker import Broker
from fairlane.broker.engine import build_engine
from fairlane.http.app import HttpApp
from fairlane.http.auth.tokens import Tokens
from fairlane.model.limits import POLLS_MAX
from fairlane.store.contract.store import Store
from fairlane.store.journal.journal import Journal

_numbers = itertools.count(1)
AWKWARD = "a/b %2F %zz ?x=1&y #\"'\\ \U0001f680 é"
"""A part of names with characters that every path, query and body must preserve."""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def ok(self, status: int = 200) -> Any:
        """Return the body of an answer, which must have this status."""
        assert self.status == status, (self.status, self.body[:500])
        return self.json if self.body else None

    def refused(self, status: int, code: str | None = None) -> dict[str, Any]:
        """Return the body of an answer, which must be an error of this kind."""
        assert self.status == status, (self.status, self.body[:500])
        found: dict[str, Any] = self.json
        assert isinstance(found["error"], str)
        assert found["error"]
        assert code is None or found["code"] == code, found
        return found


class Wire:
    """The HTTP API of a broker."""

    def __init__(self, app: HttpApp | None, session: aiohttp.ClientSession, base: str) -> None:
        self.base = base
        self._app = app
        self._session = session

    @property
    def app(self) -> HttpApp:
        """The app of the broker, which must run in this process."""
        assert self._app is not None
        return self._app

    def name(self, base: str = "orders") -> str:
        """Return an awkward name that no other test uses."""
        return f"{base} {AWKWARD} {next(_numbers)}-{uuid4().hex[:8]}"

    async def ask(
        self,
        method: str,
        path: str,
        *parts: str,
        query: dict[str, Any] | None = None,
        body: Any = msgspec.UNSET,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request. `parts` are names, which are encoded; `path` is sent as it is."""
        target = self.base + path + "".join(f"/{quote(part, safe='')}" for part in parts)
        if query:
            target += f"?{urlencode(query)}"
        data = None if body is msgspec.UNSET else body if isinstance(body, bytes) else msgspec.json.encode(body)
        # A body is JSON, unless the test says otherwise.
        headers = {"content-type": "application/json"} | (headers or {}) if data is not None else headers
        async with self._session.request(method, URL(target, encoded=True), data=data, headers=headers) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def get(self, path: str, *parts: str, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return await self.ask("GET", path, *parts, query=query, headers=headers)

    async def post(self, path: str, *parts: str, body: Any = msgspec.UNSET) -> Answer:
        return await self.ask("POST", path, *parts, body=body)

    async def delete(self, path: str, *parts: str, **query: Any) -> Answer:
        return await self.ask("DELETE", path, *parts, query=query)

    async def configure(self, queue: str, namespace: str = "", task: str = "", **options: Any) -> Any:
        body = {"queue": queue, "namespace": namespace, "task": task, "options": options}
        return (await self.post("/api/v1/configure", body=body)).ok()

    async def push(self, queue: str, *payloads: Any, ids: list[str] | None = None, **more: Any) -> list[Any]:
        items = [{"queue": queue, "payload": payload, **more} for payload in payloads]
        for item, id in zip(items, ids or [], strict=False):
            item["transactionId"] = id
        found: list[Any] = (await self.post("/api/v1/push", body={"items": items})).ok(201)
        return found

    async def pop(self, queue: str, *, partition: str | None = None, **query: Any) -> list[Any]:
        parts = ["queue", queue, *(["partition", partition] if partition is not None else [])]
        answer = await self.get("/api/v1/pop", *parts, **{"batch": 100, **query})
        found: list[Any] = [] if answer.status == 204 else answer.ok()["messages"]
        return found

    async def ack(self, messages: list[Any], status: str = "completed", **more: Any) -> list[Any]:
        acks = [
            {**{key: message[key] for key in ("transactionId", "partitionId", "leaseId")}, "status": status, **more}
            for message in messages
        ]
        group = messages[0]["consumerGroup"]
        body = {"acknowledgments": acks, "consumerGroup": group}
        found: list[Any] = (await self.post("/api/v1/ack/batch", body=body)).ok()
        return found


@asynccontextmanager
async def serving(
    store: Store,
    *,
    polls_max: int = POLLS_MAX,
    journal: Journal | None = None,
    host: str = "127.0.0.1",
    tokens: Tokens | None = None,
    **options: Any,
) -> AsyncIterator[Wire]:
    """`options` are those of `HttpApp.serve`."""
    broker = Broker(build_engine(store, polls_max=polls_max, limits=LIMITS, journal=journal))
    await broker._engine.start()
    app = HttpApp(broker, metrics_series_max=1_000_000, tokens=tokens)  # the store may have the queues of many tests
    server = app.serve(**options)
    port = await server.start(host, 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Wire(app, session, f"http://127.0.0.1:{port}")
        # The session closes its connection in the next turn of the loop.
        await asyncio.sleep(0)
    finally:
        await broker.stop()
        await server.close(grace_seconds=30)  # a busy machine may take this long to finish its store calls
        await broker.close()
