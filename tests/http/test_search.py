"""Search: names and ids over all queues, as far as the caller may see them."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.broker import search
from tests.conformance.backends import Backend
from tests.http.test_narrow_keys import narrowed
from tests.http.wire import Wire

PATH = "/api/v1/search"
TRACE = "0198a3f0-0000-7000-8000-00000000000a"


async def found(wire: Wire, text: str, **query: Any) -> dict[str, Any]:
    body: dict[str, Any] = (await wire.get(PATH, text=text, **query)).ok()
    return body


async def test_a_text_finds_queues_partitions_messages_and_traces(wire: Wire) -> None:
    orders, bills = wire.name("orders"), wire.name("bills")
    for queue in (orders, bills):
        items = [
            {"queue": queue, "partition": "customer-7", "transactionId": "order-1001", "payload": 1, "traceId": TRACE},
            {"queue": queue, "partition": "customer-8", "transactionId": f"{queue} alone", "payload": 2},
        ]
        (await wire.post("/api/v1/push", body={"items": items})).ok(201)
    assert (await found(wire, orders.upper()))["queues"] == [orders]
    partitions = (await found(wire, "customer-", limit=50))["partitions"]
    assert {"queue": orders, "partition": "customer-7"} in partitions
    assert {"queue": bills, "partition": "customer-8"} in partitions
    body = await found(wire, "order-1001")
    assert {(one["queue"], one["partition"]) for one in body["messages"]} == {
        (orders, "customer-7"),
        (bills, "customer-7"),
    }
    assert body["complete"] is True
    assert len((await found(wire, "order-1001", limit=1))["messages"]) == 1
    [alone] = (await found(wire, f"{bills} alone"))["messages"]
    assert (alone["queue"], alone["status"]) == (bills, "pending")
    assert {one["queue"] for one in (await found(wire, TRACE.upper()))["trace"]} == {orders, bills}


async def test_a_text_that_matches_nothing_finds_nothing(wire: Wire) -> None:
    for text in ("nobody-has-this", "customer-%", "0198a3f0-0000-7000-8000-0000000000ff"):
        body = await found(wire, text)
        assert [body[kind] for kind in ("queues", "partitions", "messages", "trace", "operation")] == [
            [],
            [],
            [],
            [],
            None,
        ]
    for bad in ({}, {"text": ""}, {"text": "a\0b"}, {"text": "x" * 256}, {"text": "x", "limit": 51}):
        (await wire.get(PATH, **bad)).refused(400)


async def test_an_old_partition_is_left_out_and_the_answer_says_so(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = wire.name("orders")
    for n in range(3):
        await wire.push(queue, n, partition=f"customer-{n}")
    ids = [one["transactionId"] for one in (await wire.get("/api/v1/messages", queue=queue)).ok()["messages"]]
    monkeypatch.setattr(search, "PARTITIONS_MAX", 1)
    assert not (await found(wire, "order-1001"))["complete"]
    newest = await found(wire, ids[0])
    assert [one["transactionId"] for one in newest["messages"]] == [ids[0]]


async def test_a_key_finds_only_what_it_may_see(backend: Backend) -> None:
    async with narrowed(backend) as narrow:
        for queue in (narrow.mine, narrow.theirs):
            item = {
                "queue": queue,
                "partition": "customer-7",
                "transactionId": "order-1",
                "payload": 1,
                "traceId": TRACE,
            }
            (await narrow.ask("POST", "/api/v1/push", {"items": [item]}, admin=True)).ok(201)
        for text, kind, of in (
            ("customer-7", "partitions", "queue"),
            ("order-1", "messages", "queue"),
            (TRACE, "trace", "queue"),
        ):
            path = f"{PATH}?text={text}"
            assert [one[of] for one in (await narrow.ask("GET", path)).ok()[kind]] == [narrow.mine]
            everything = (await narrow.ask("GET", path, admin=True)).ok()[kind]
            assert {one[of] for one in everything} >= {narrow.mine, narrow.theirs}
        tag = narrow.mine.partition("-")[2]
        assert (await narrow.ask("GET", f"{PATH}?text={tag}")).ok()["queues"] == [narrow.mine]
