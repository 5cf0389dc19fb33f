"""Pushes and acks that wait in the journal: each 202 names an operation, found until it is applied and after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fairlane import AckItem, Client
from fairlane.broker.push_batch import PushFlight, PushRequest
from fairlane.client import QueuedPush
from fairlane.model.ids import PartitionId, uuid7_ms
from fairlane.model.message import PushItem
from fairlane.store.opening import open_journal
from tests.conformance.backends import Backend
from tests.http.test_operations import make_busy, make_calm
from tests.http.wire import Wire, serving
from tests.until import until


@pytest.fixture
async def wire(backend: Backend, tmp_path: Path) -> AsyncIterator[Wire]:
    """A broker with a journal."""
    await backend.make()
    journal = await open_journal(str(tmp_path / "journal"), 10**9, "test")
    async with serving(await backend.open(None), journal=journal) as wire:
        yield wire
        await pause_pushes(wire, paused=False)


async def pause_pushes(wire: Wire, *, paused: bool) -> None:
    (await wire.post("/api/v1/pauses", body={"pushes": paused})).ok()


async def push(wire: Wire, queue: str, *payloads: Any, **more: Any) -> list[Any]:
    items = [{"queue": queue, "payload": payload, **more} for payload in payloads]
    found: list[Any] = (await wire.post("/api/v1/push", body={"items": items})).ok(202)
    return found


async def completed(wire: Wire, id: str) -> Any:
    async def over() -> bool:
        return bool((await wire.get("/api/v1/operations", id)).ok()["status"] == "completed")

    await until(over)
    return (await wire.get("/api/v1/operations", id)).ok()


async def test_a_push_in_the_journal_is_an_operation_that_is_found_before_and_after_the_drain(wire: Wire) -> None:
    queue = wire.name()
    await pause_pushes(wire, paused=True)
    first, second = await push(wire, queue, 1, 2)
    [third] = await push(wire, queue, 3)
    assert (first["status"], first["durability"], first["reason"]) == ("buffered", "journal", "maintenance")
    assert first["operationId"] == second["operationId"] != third["operationId"]
    assert uuid7_ms(first["operationId"]) is not None
    assert (first["queuePosition"], third["queuePosition"]) == (1, 2)
    assert first["estimatedWait"] > 0
    pending = (await wire.get("/api/v1/operations", first["operationId"])).ok()
    assert (pending["status"], pending["durability"], pending["operation_type"]) == ("pending", "journal", "PUSH")
    assert (pending["queue"], pending["partition"], pending["messages"]) == (queue, "Default", 2)
    for limit in (1, 100):
        found, cursor = [], ""
        while cursor is not None:
            page = (await wire.get("/api/v1/operations", queue=queue, limit=limit, cursor=cursor)).ok()
            found += [one["id"] for one in page["operations"]]
            cursor = page["cursor"]
        assert found == [first["operationId"], third["operationId"]]
    for verb in ("retry", "discard"):
        (await wire.post(f"/api/v1/operations/{first['operationId']}/{verb}")).refused(409, "conflict")
    await pause_pushes(wire, paused=False)
    for one, ids in ((first, [first, second]), (third, [third])):
        found = await completed(wire, one["operationId"])
        assert (found["durability"], found["queue"]) == ("store", queue)
        assert found["latency_seconds"] >= 0
        items = found["result"]["items"]
        assert [item["transaction_id"] for item in items] == [each["transaction_id"] for each in ids]
        assert {item["status"] for item in items} == {"queued"}
        assert all(item["message_id"] for item in items)


async def test_the_client_waits_for_a_push_in_the_journal(wire: Wire) -> None:
    queue = wire.name()
    await pause_pushes(wire, paused=True)
    async with Client(wire.base) as client, Client(wire.base, queued_operation="wait") as patient:
        handle = await client.push(queue, 1)
        assert isinstance(handle, QueuedPush)
        waiting = [asyncio.create_task(handle.wait()), asyncio.create_task(patient.push(queue, 2))]
        done, _ = await asyncio.wait(waiting, timeout=0.3)
        assert not done
        await pause_pushes(wire, paused=False)
        outcomes = await asyncio.gather(*waiting)
    assert [one.status for one in outcomes] == ["queued", "queued"]
    popped = await wire.pop(queue)
    assert [message["id"] for message in popped] == [one.message_id for one in outcomes]


async def test_a_push_that_leaves_the_journal_for_a_lane_with_operations_keeps_its_id(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0)
    await wire.app.broker._engine.operation_drain.stop()
    make_busy(wire)
    await push(wire, queue, 1)
    await pause_pushes(wire, paused=True)
    [accepted, again] = [(await push(wire, queue, 2, transactionId="x"))[0] for _ in range(2)]
    make_calm(wire)
    await pause_pushes(wire, paused=False)

    async def moved() -> bool:
        return bool((await wire.get("/api/v1/operations", accepted["operationId"])).ok()["durability"] == "store")

    await until(moved)
    found = (await wire.get("/api/v1/operations", accepted["operationId"])).ok()
    assert found["status"] == "pending"
    wire.app.broker._engine.operation_drain.start()
    assert (await completed(wire, accepted["operationId"]))["result"]["items"][0]["status"] == "queued"
    assert (await completed(wire, again["operationId"]))["result"]["items"][0]["status"] == "duplicate"
    assert [message["data"] for message in await wire.pop(queue)] == [0, 1, 2]


async def test_operations_in_the_journal_and_in_the_store_are_one_list(wire: Wire) -> None:
    queue, names = wire.name(), ["a", "b", "c", "d", "e"]
    await wire.app.broker._engine.operation_drain.stop()
    await pause_pushes(wire, paused=True)
    ids: list[Any] = []
    for name in names:  # alternating operations of one millisecond have no order between journal and store
        await asyncio.sleep(0.002)  # operations of one millisecond have no order between journal and store
        if len(ids) % 2:
            ids.append((await push(wire, queue, 0, partition=name))[0]["operationId"])
        else:
            request = PushRequest("default", [PushItem(queue=queue, partition=name, payload=b"0")])
            [[outcome]] = await wire.app.broker._engine.pusher.run_enqueue(PushFlight([request]))  # type: ignore[misc]
            ids.append(outcome.operation_id)
    for limit in (1, 2, 3, 100):
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (
                await wire.get("/api/v1/operations", status="pending", queue=queue, limit=limit, cursor=cursor)
            ).ok()
            assert len(page["operations"]) <= limit
            found += page["operations"]
            cursor = page["cursor"]
        assert [(one["id"], one["partition"]) for one in found] == list(zip(ids, names, strict=True))
        assert [one["durability"] for one in found] == ["store", "journal", "store", "journal", "store"]
    wire.app.broker._engine.operation_drain.start()


async def test_a_failed_entry_of_the_journal_is_a_failed_operation(wire: Wire) -> None:
    queue = wire.name()
    await pause_pushes(wire, paused=True)
    accepted = [(await push(wire, queue, n, partition="a"))[0]["operationId"] for n in range(2)]
    await wire.configure(queue, ordering="fifo")
    await pause_pushes(wire, paused=False)

    async def failed() -> bool:
        states = [(await wire.get("/api/v1/operations", id)).ok()["status"] for id in accepted]
        return states == ["failed", "failed"]

    await until(failed)
    found = (await wire.get("/api/v1/operations", accepted[0])).ok()
    assert (found["durability"], found["partition"]) == ("journal", "a")
    assert "fifo" in found["error_message"]
    listed = (await wire.get("/api/v1/operations", status="failed", queue=queue)).ok()
    assert [(one["id"], one["durability"]) for one in listed["operations"]] == [(id, "journal") for id in accepted]
    gone = (await wire.post(f"/api/v1/operations/{accepted[0]}/discard")).ok()
    assert (gone["id"], gone["status"]) == (accepted[0], "discarded")
    (await wire.get("/api/v1/operations", accepted[0])).refused(404)
    await wire.configure(queue, ordering="per_key")
    assert (await wire.post(f"/api/v1/operations/{accepted[1]}/retry")).ok()["status"] in ("pending", "completed")
    await completed(wire, accepted[1])
    assert [message["data"] for message in await wire.pop(queue)] == [1]


async def test_an_ack_that_is_an_operation_says_where_and_why(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0, 1)
    first, second = await wire.pop(queue)
    await wire.app.broker._engine.operation_drain.stop()
    make_busy(wire)

    async def ack(message: Any) -> Any:
        body = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")}
        [answer] = (await wire.post("/api/v1/ack", body=body)).ok(202)
        return answer

    one = await ack(first)
    assert (one["status"], one["durability"], one["reason"]) == ("buffered", "store", "system_busy")
    assert UUID(one["operationId"])
    assert (one["queuePosition"], one["estimatedWait"] > 0) == (1, True)
    make_calm(wire)
    two = await ack(second)
    assert (two["queuePosition"], two["reason"]) == (2, "maintaining_order")
    wire.app.broker._engine.operation_drain.start()
    assert (await completed(wire, two["operationId"]))["result"]["items"][0]["success"]


async def test_an_ack_of_messages_in_a_row_may_become_an_operation(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, *range(4))
    messages = await wire.pop(queue)
    await wire.app.broker._engine.operation_drain.stop()
    make_busy(wire)
    async with Client(wire.base) as client:
        row = {key: messages[1][key] for key in ("partitionId", "leaseId", "position")}
        body = {"acknowledgments": [row | {"transactionId": "", "count": 2}]}
        accepted = (await wire.post("/api/v1/ack/batch", body=body)).ok(202)
        assert [(one["index"], one["status"]) for one in accepted] == [(0, "buffered"), (1, "buffered")]
        assert len({one["operationId"] for one in accepted}) == 1
        make_calm(wire)
        rest = [AckItem(**_named(messages[at])) for at in (0, 3)]
        outcomes = await client.ack_many(rest)
        assert [outcome.reason for outcome in outcomes] == ["maintaining_order"] * 2
    wire.app.broker._engine.operation_drain.start()
    result = (await completed(wire, accepted[0]["operationId"]))["result"]
    assert [one["success"] for one in result["items"]] == [True, True]
    await completed(wire, str(outcomes[0].operation_id))
    assert not await wire.pop(queue)


def _named(message: Any) -> dict[str, Any]:
    where = {"partition": PartitionId.parse(message["partitionId"]), "lease": message["leaseId"]}
    return where | {"transaction_id": message["transactionId"], "position": message["position"]}


async def test_every_answer_to_a_push_names_the_trace_of_its_item(wire: Wire) -> None:
    queue, trace = wire.name(), "9f1c8b7e-5f0d-4c56-8a5e-1f6f2a3b4c5d"
    item = {"queue": queue, "payload": 1, "transactionId": "x", "traceId": trace}

    async def pushed(**more: Any) -> Any:
        [element] = (await wire.post("/api/v1/push", body={"items": [item | more]})).json
        return element

    elements = [await pushed(), await pushed(), await pushed(transactionId="y", delayMs=60_000)]
    await pause_pushes(wire, paused=True)
    elements.append(await pushed(transactionId="z"))
    assert [one["status"] for one in elements] == ["queued", "duplicate", "scheduled", "buffered"]
    assert [one["trace_id"] for one in elements] == [trace] * 4
