"""Cancelling messages over HTTP, and watching the messages of leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.conformance.backends import PostgresBackend, SqliteBackend
from tests.conformance.configurations import Configuration
from tests.http.wire import Answer, Wire, serving
from tests.until import until


@pytest.fixture
async def wire(tmp_path: Any) -> AsyncIterator[Wire]:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        yield wire


async def cancel(wire: Wire, queue: str, id: str, **body: Any) -> Answer:
    return await wire.post("/api/v1/queues", queue, "cancellations", id, body=body)


async def watch(wire: Wire, *leases: str, wait_ms: int = 0) -> list[Any]:
    found = await wire.post("/api/v1/leases/cancelled", body={"leases": list(leases), "timeout": wait_ms})
    messages: list[Any] = found.ok()["messages"]
    return messages


async def result(wire: Wire, queue: str, id: str, **query: Any) -> Any:
    return (await wire.get("/api/v1/queues", queue, "results", id, **query)).ok()


async def test_a_waiting_message_is_cancelled(wire: Wire) -> None:
    queue = wire.name()
    [pushed, _] = await wire.push(queue, 1, 2, ids=["one", "two"])
    assert (await cancel(wire, queue, "one")).ok() == {
        "queue": queue,
        "partition": "Default",
        "partitionId": pushed["partition_id"],
        "transactionId": "one",
        "before": "pending",
        "consumerGroups": [],
        "status": "cancelled",
    }
    assert (await result(wire, queue, "one"))["status"] == "cancelled"
    assert [message["data"] for message in await wire.pop(queue)] == [2]
    assert (await cancel(wire, queue, "one")).ok()["before"] == "cancelled"
    shown = (await wire.get("/api/v1/messages", pushed["partition_id"], "one")).ok()
    assert (shown["status"], [one["cancelled"] for one in shown["consumerGroups"]]) == ("cancelled", [True])
    listed = (await wire.get("/api/v1/messages", queue=queue, status="cancelled")).ok()["messages"]
    assert [one["transactionId"] for one in listed] == ["one"]


async def test_a_held_message_is_cancelled_and_its_ack_refused(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, ids=["one"])
    held = await wire.pop(queue)
    assert (await cancel(wire, queue, "one")).ok()["before"] == "processing"
    [acked] = await wire.ack(held)
    assert (acked["success"], acked["code"]) == (False, "cancelled")
    assert "not delivered again" in acked["error"]
    renewed = (await wire.post("/api/v1/lease", held[0]["leaseId"], "extend", body={"seconds": 60})).ok()
    where = {"partitionId": held[0]["partitionId"], "position": 0}
    assert (renewed["success"], renewed["cancelled"]) == (False, [where])
    assert await watch(wire, held[0]["leaseId"]) == [{"leaseId": held[0]["leaseId"], **where}]
    assert (await wire.get("/api/v1/dlq", queue=queue)).ok()["total"] == 0


async def test_a_transaction_that_acks_a_cancelled_message_is_refused(wire: Wire) -> None:
    queue, target = wire.name(), wire.name()
    await wire.push(queue, 1, ids=["one"])
    [held] = await wire.pop(queue)
    await cancel(wire, queue, "one")
    ack = {key: held[key] for key in ("transactionId", "partitionId", "leaseId")}
    steps = [{"type": "ack", **ack}, {"type": "push", "items": [{"queue": target, "payload": 1}]}]
    answer = (await wire.post("/api/v1/transaction", body={"operations": steps})).ok()
    assert not answer["success"]
    assert "was cancelled" in answer["error"]
    assert await wire.pop(target) == []


async def test_a_scheduled_message_is_cancelled(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, ids=["later"], delayMs=3_600_000)
    assert (await cancel(wire, queue, "later")).ok()["before"] == "scheduled"
    assert (await wire.get("/api/v1/scheduled", queue)).ok()["messages"] == []
    assert (await result(wire, queue, "later"))["status"] == "cancelled"
    assert (await cancel(wire, queue, "later")).ok()["before"] == "cancelled"


async def test_a_message_with_a_priority_is_found_by_its_partition(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, ordering="unordered")
    await wire.push(queue, 1, ids=["urgent"], partition="p", priority=7)
    assert (await cancel(wire, queue, "urgent", partition="p")).ok()["partition"] == "p!7"
    assert await wire.pop(queue) == []


async def test_what_cannot_be_cancelled_is_refused_with_the_reason(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    [pushed] = await wire.push(queue, 1, ids=["one"])
    await wire.ack(await wire.pop(queue))
    (await cancel(wire, queue, "nobody")).refused(404, "not_found")
    (await cancel(wire, queue, "one", partition="other")).refused(404, "not_found")
    (await cancel(wire, wire.name("nowhere"), "one")).refused(404, "not_found")
    (await cancel(wire, queue, "one", consumerGroup=group)).refused(404, "not_found")
    finished = (await cancel(wire, queue, "one")).refused(409, "conflict")
    assert "every group has finished" in finished["error"]
    by_id = await wire.post("/api/v1/messages", pushed["partition_id"], "one", "cancel")
    by_id.refused(409, "conflict")
    (await cancel(wire, queue, "one", group="x")).refused(400)
    (await wire.post("/api/v1/leases/cancelled", body={"leases": ["x"], "timeout": 10**6})).refused(400)
    assert await watch(wire, "nonsense", "1.00000000-0000-0000-0000-000000000000", wait_ms=60) == []


async def test_one_group_loses_a_message_by_the_id_of_its_partition(wire: Wire) -> None:
    queue, group = wire.name(), wire.name("group")
    [pushed] = await wire.push(queue, 1, ids=["one"])
    for one in ("__QUEUE_MODE__", group):
        [message] = await wire.pop(queue, consumerGroup=one)
        (await wire.post("/api/v1/lease", message["leaseId"], "release")).ok()
    body = {"consumerGroup": group}
    answer = (await wire.post("/api/v1/messages", pushed["partition_id"], "one", "cancel", body=body)).ok()
    assert (answer["consumerGroups"], answer["before"]) == ([group], "pending")
    assert await wire.pop(queue, consumerGroup=group) == []
    assert [message["data"] for message in await wire.pop(queue)] == [1]
    assert (await result(wire, queue, "one", consumerGroup=group))["status"] == "cancelled"
    assert (await result(wire, queue, "one"))["status"] == "processing"


async def test_waiting_for_a_result_ends_when_the_message_is_cancelled(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, ids=["one"])
    held = await wire.pop(queue)
    waiters = wire.app.broker._engine.result_waiters
    waiting = asyncio.create_task(result(wire, queue, "one", wait="true", timeout=3_600_000))
    watching = asyncio.create_task(watch(wire, held[0]["leaseId"], wait_ms=10_000))
    await until(lambda: len(waiters) == 2)
    await cancel(wire, queue, "one")
    assert (await waiting)["status"] == "cancelled"
    assert len(await watching) == 1


async def test_a_cancelled_message_may_be_pushed_again_as_a_copy(wire: Wire) -> None:
    queue = wire.name()
    [pushed] = await wire.push(queue, {"n": 1}, ids=["one"])
    await cancel(wire, queue, "one")
    (await wire.post("/api/v1/messages", pushed["partition_id"], "one", "retry")).ok()
    assert [message["data"] for message in await wire.pop(queue)] == [{"n": 1}]


async def test_another_broker_cancels_what_a_worker_of_this_one_holds(postgres18: Any) -> None:
    backend = PostgresBackend(postgres18, Configuration("http", postgres=18))
    await backend.make()
    async with serving(await backend.open(None)) as one, serving(await backend.open(None)) as other:
        queue = one.name()
        await one.push(queue, 1, 2, ids=["one", "two"])
        held = await one.pop(queue)
        watching = asyncio.create_task(watch(one, held[0]["leaseId"], wait_ms=10_000))
        await until(lambda: len(one.app.broker._engine.result_waiters) == 1)
        assert (await cancel(other, queue, "two")).ok()["before"] == "processing"
        assert [message["position"] for message in await watching] == [1]
        first, second = await one.ack(held)
        assert (first["success"], second["code"]) == (True, "cancelled")
