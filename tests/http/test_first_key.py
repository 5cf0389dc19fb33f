"""Requests that began before the first key was created end when it is created."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlane.errors import StoreUnavailable
from fairlane.http.route_table import ROUTES
from fairlane.http.router import EVENTS
from fairlane.store.opening import open_journal
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Answer, Wire, serving
from tests.until import until

WAITING = {
    "/api/v1/pop/queue/{queue}/partition/{partition}": "/api/v1/pop/queue/orders/partition/p?wait=true",
    "/api/v1/pop/queue/{queue}": "/api/v1/pop/queue/orders?wait=true",
    "/api/v1/pop": "/api/v1/pop?namespace=shop&wait=true",
    "/api/v1/ack-and-pop/queue/{queue}": "/api/v1/ack-and-pop/queue/orders?wait=true",
    "/api/v1/ack-and-pop/queue/{queue}/partition/{partition}": "/api/v1/ack-and-pop/queue/orders/partition/p?wait=true",
    "/api/v1/messages/{partitionId}/{transactionId}/result": "/api/v1/messages/{id}/one/result?wait=true",
    "/api/v1/queues/{queue}/results/{transactionId}": "/api/v1/queues/held/results/one?wait=true",
}
"""Every route that may wait, with a request that waits."""


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        for queue in ("orders", "held"):
            await wire.configure(queue, namespace="shop" if queue == "orders" else "")
        yield wire


def test_every_route_that_waits_is_tried() -> None:
    assert set(WAITING) == {route.path for route in ROUTES if route.long}
    assert [route.path for route in ROUTES if route.content_type == EVENTS] == ["/api/v1/live"]


@pytest.mark.parametrize("route", WAITING)
async def test_a_request_that_waits_ends_with_the_first_key(wire: Wire, route: str) -> None:
    broker = wire.app.broker
    await wire.push("held", 1, ids=["one"])
    [pushed] = await wire.pop("held")
    path = WAITING[route].replace("{id}", pushed["partitionId"])
    ack = {"transactionId": "one", "status": "completed", **{name: pushed[name] for name in ("partitionId", "leaseId")}}
    method, body = ("POST", {"acknowledgments": [ack]}) if "ack-and-pop" in path else ("GET", msgspec.UNSET)
    waiting = asyncio.create_task(wire.ask(method, f"{path}&timeout=3600000", body=body))
    await until(lambda: len(broker._engine.waiters) + len(broker._engine.result_waiters) > 0)
    key = await first_key(wire)
    refused = (await waiting).refused(401, "unauthenticated")
    assert "Authorization: Bearer" in refused["error"]
    header = {"authorization": f"Bearer {key}"}
    push = {"items": [{"queue": "orders", "payload": "after the key"}]}
    (await wire.ask("POST", "/api/v1/push", body=push, headers=header)).ok(201)
    popped = await wire.ask("GET", "/api/v1/pop/queue/orders", headers=header)
    assert popped.ok()["messages"][0]["data"] == "after the key"


async def test_a_probe_is_answered_without_a_key_and_shown_the_journal_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    journal = await open_journal(str(tmp_path / "journal"), 10**9, "test")
    async with serving(await backend.open(None), journal=journal) as wire:
        admin = {"authorization": f"Bearer {await first_key(wire)}"}
        body = {"name": "prober", "scopes": ["status:-"]}
        made = (await wire.ask("POST", "/api/v1/keys", body=body, headers=admin)).ok(201)
        body = {"name": "pusher", "scopes": ["push"]}
        pusher = (await wire.ask("POST", "/api/v1/keys", body=body, headers=admin)).ok(201)
        prober = {"authorization": f"Bearer {made['key']}"}
        strangers = [{}, {"authorization": "Bearer fl_wrong"}, {"authorization": f"Bearer {pusher['key']}"}]
        for headers in strangers:
            answer = await wire.ask("GET", "/readyz", headers=headers)
            assert answer.ok() == {"status": "ready", "database": "connected", "journal": None}
        assert (await wire.ask("GET", "/readyz", headers=prober)).ok()["journal"]["storeUp"] is True
        (await wire.get("/metrics")).refused(401, "unauthenticated")

        async def away() -> None:
            raise StoreUnavailable("the disk of db-3.internal is full")

        async def refused() -> bool:
            return (await wire.get("/readyz")).status == 503

        monkeypatch.setattr(wire.app.broker._engine.store, "check_health", away)
        await until(refused)
        for headers in strangers:
            told = (await wire.ask("GET", "/readyz", headers=headers)).json
            assert told == {"status": "not ready", "database": "disconnected", "journal": None}
        assert "db-3" in (await wire.ask("GET", "/readyz", headers=prober)).json["journal"]["whyNot"]


async def test_a_live_stream_ends_with_the_first_key(wire: Wire) -> None:
    watching = asyncio.create_task(wire.get("/api/v1/live?watch=/api/v1/resources/queues/orders"))
    await until(lambda: wire.app.live._streams == 1)
    await first_key(wire)
    assert (await watching).status == 200  # it started successfully and ended


async def test_a_body_that_arrives_after_the_first_key_is_refused(wire: Wire) -> None:
    _, _, port = wire.base.rpartition(":")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    body = b'{"items":[{"queue":"orders","payload":1}]}'
    head = b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(head + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body))
    assert b"100 Continue" in await reader.readline()  # it was accepted
    await first_key(wire)
    writer.write(body)
    await reader.readline()
    assert b" 401 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


async def first_key(wire: Wire) -> str:
    made: Answer = await wire.post("/api/v1/keys", body={"name": "first", "role": "admin"})
    key: str = made.ok(201)["key"]
    return key
