"""Operations over HTTP: the 202 answers, their later results, and the answers of a full queue."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from fairlane import Client
from fairlane.broker.admission import Limit
from tests.http.wire import Wire
from tests.metrics import sample, samples
from tests.until import until


def make_busy(wire: Wire, *, push: int = 10_000) -> None:
    wire.app.broker._engine.admission.limits = {"push": Limit(-1.0, push), "ack": Limit(-1.0, 50_000)}


def make_calm(wire: Wire) -> None:
    wire.app.broker._engine.admission.limits = {}


async def push(wire: Wire, queue: str, *payloads: Any, status: int = 202) -> list[Any]:
    items = [{"queue": queue, "payload": payload} for payload in payloads]
    found: list[Any] = (await wire.post("/api/v1/push", body={"items": items})).ok(status)
    return found


async def ended(wire: Wire, id: str) -> Any:
    async def over() -> bool:
        return (await wire.get("/api/v1/operations", id)).ok()["status"] in ("completed", "failed")

    await until(over)
    return (await wire.get("/api/v1/operations", id)).ok()


async def test_a_push_that_is_an_operation_is_told_where_and_looked_up(wire: Wire) -> None:
    queue = wire.name()
    await push(wire, queue, 0, status=201)
    make_busy(wire)
    first, second = await push(wire, queue, 1, 2)
    assert (first["status"], first["reason"], first["durability"]) == ("buffered", "system_busy", "store")
    assert (first["index"], second["index"], first["queueName"]) == (0, 1, queue)
    assert first["operationId"] == second["operationId"]
    assert first["queuePosition"] >= 1
    assert first["estimatedWait"] > 0
    found = await ended(wire, first["operationId"])
    assert (found["operation_type"], found["priority"], found["status"]) == ("PUSH", 5, "completed")
    assert (found["retry_count"], found["max_retries"], found["error_message"]) == (0, 3, None)
    assert found["created_at"] <= found["processing_started_at"] <= found["processed_at"]
    assert found["latency_seconds"] > 0
    assert [item["transaction_id"] for item in found["result"]["items"]] == [
        first["transaction_id"],
        second["transaction_id"],
    ]
    popped = await wire.pop(queue)
    assert [message["data"] for message in popped] == [0, 1, 2]
    acks = [{**{key: one[key] for key in ("transactionId", "partitionId", "leaseId")}} for one in popped]
    answer = await wire.post("/api/v1/ack/batch", body={"acknowledgments": acks})
    [ack, *_] = answer.ok(202)
    assert (ack["success"], ack["status"], ack["durability"]) == (True, "buffered", "store")
    assert (await ended(wire, ack["operationId"]))["operation_type"] == "ACK_BATCH"
    make_calm(wire)
    await push(wire, queue, 3, status=201)


async def test_a_refused_push_says_when_to_come_again_and_how_much_waits(wire: Wire) -> None:
    make_busy(wire, push=0)
    answer = await wire.post("/api/v1/push", body={"items": [{"queue": wire.name(), "payload": 1}]})
    assert answer.status == 429
    assert int(answer.headers["Retry-After"]) >= 5
    told = answer.json
    assert told["code"] == "overloaded"
    assert told["queueDepth"] >= 0
    assert told["error"]


async def test_stats_count_operations_and_name_the_deepest_lanes(wire: Wire) -> None:
    queue = wire.name()
    await wire.app.broker._engine.operation_drain.stop()
    make_busy(wire)
    await push(wire, queue, 1)
    [deep] = await push(wire, queue, 2)
    assert deep["queuePosition"] == 2
    found = (await wire.get("/api/v1/operations/stats")).ok()
    [pending] = [one for one in found["stats"] if one["status"] == "pending"]
    assert (pending["operation_type"], pending["priority"]) == ("PUSH", 5)
    assert pending["count"] >= 2
    assert pending["oldest"] <= pending["newest"]
    assert found["systemHealth"]["queueDepth"] >= 2
    assert 0 <= found["systemHealth"]["poolUtilization"] <= 1
    [lane] = [one for one in found["lanes"] if one["queue"] == queue]
    assert (lane["partition"], lane["depth"], lane["consumerGroup"]) == ("Default", 2, None)
    assert sample("operations", state="waiting") in samples((await wire.get("/metrics/prometheus")).body)
    discarded = (await wire.post(f"/api/v1/operations/{deep['operationId']}/discard")).ok()
    assert discarded["status"] == "discarded"
    again = await wire.post(f"/api/v1/operations/{deep['operationId']}/discard")
    assert (again.status, again.json["code"]) == (409, "conflict")
    await wire.app.broker._engine.store.queues.delete("default", queue)


async def test_discarded_operations_are_listed_newest_first(wire: Wire) -> None:
    queue = wire.name()
    ids = await fail(wire, queue, 1, 2, 3)
    (await wire.post("/api/v1/operations/discard", body={"ids": ids})).ok()
    query: dict[str, Any] = {"status": "discarded", "queue": queue, "order": "desc"}
    newest = (await wire.get("/api/v1/operations", limit=2, **query)).ok()
    assert [one["id"] for one in newest["operations"]] == sorted(ids, reverse=True)[:2]
    assert await listed(wire, cursor=newest["cursor"], **query) == [min(ids)]
    assert await listed(wire, **query | {"queue": "another"}) == []
    for status in ("failed", "pending"):
        (await wire.get("/api/v1/operations", order="desc", status=status)).refused(400)
    (await wire.get("/api/v1/operations", order="desc")).refused(400)


async def test_a_failed_operation_is_shown_and_tried_again(wire: Wire) -> None:
    queue = wire.name()
    await push(wire, queue, 0, status=201)
    await wire.app.broker._engine.operation_drain.stop()
    make_busy(wire)
    [poison] = await push(wire, queue, "kept")
    await wire.app.broker.queues.delete(queue)
    wire.app.broker._engine.operation_drain.start()
    failed = await ended(wire, poison["operationId"])
    assert failed["status"] == "failed"
    assert "deleted" in failed["error_message"]
    path = f"/api/v1/operations/{poison['operationId']}/retry"
    refused = await wire.post(path)
    assert (refused.status, refused.json["code"]) == (409, "conflict")
    await wire.configure(queue)
    assert (await wire.post(path)).ok()["status"] in ("pending", "processing", "completed")
    assert (await ended(wire, poison["operationId"]))["status"] == "completed"
    assert [message["data"] for message in await wire.pop(queue)] == ["kept"]


async def fail(wire: Wire, queue: str, *payloads: Any) -> list[str]:
    """Make failed operations of a queue that was deleted under them, one for each payload. The queue exists again."""
    await push(wire, queue, "first", status=201)
    await wire.app.broker._engine.operation_drain.stop()
    make_busy(wire)
    ids = [(await push(wire, queue, payload))[0]["operationId"] for payload in payloads]
    await wire.app.broker.queues.delete(queue)
    make_calm(wire)
    wire.app.broker._engine.operation_drain.start()
    assert {(await ended(wire, id))["status"] for id in ids} == {"failed"}
    await wire.configure(queue)
    return ids


async def listed(wire: Wire, **query: Any) -> list[str]:
    return [one["id"] for one in (await wire.get("/api/v1/operations", **query)).ok()["operations"]]


async def test_failed_operations_are_found_page_by_page_and_counted(wire: Wire) -> None:
    queue = wire.name()
    ids = await fail(wire, queue, 1, 2, 3)
    found = (await wire.get("/api/v1/operations", status="failed", queue=queue, limit=2)).ok()
    assert ([one["id"] for one in found["operations"]], found["complete"]) == (ids[:2], True)
    assert all("deleted" in one["error_message"] and one["failed_at"] for one in found["operations"])
    rest = (await wire.get("/api/v1/operations", status="failed", queue=queue, cursor=found["cursor"])).ok()
    assert ([one["id"] for one in rest["operations"]], rest["cursor"]) == (ids[2:], None)
    assert await listed(wire, status="completed", queue=queue) == []
    assert await listed(wire, queue=queue) == ids
    assert samples((await wire.get("/metrics")).body)[sample("operations", state="failed")] >= 3
    for query in ({"status": "odd"}, {"cursor": "nowhere"}, {"limit": 0}):
        (await wire.get("/api/v1/operations", **query)).refused(400)


async def test_failed_operations_are_retried_and_discarded_together(wire: Wire) -> None:
    queue, other = wire.name(), wire.name()
    ids = await fail(wire, queue, *range(5))
    others = await fail(wire, other, "kept")
    discarded = (await wire.post("/api/v1/operations/discard", body={"ids": ids[:2]})).ok()
    assert (discarded["done"], discarded["refused"], discarded["cursor"]) == (ids[:2], [], None)
    first = (await wire.post("/api/v1/operations/retry", body={"queue": queue, "limit": 2})).ok()
    assert (first["done"], first["cursor"]) == (ids[2:4], ids[3])
    rest = (await wire.post("/api/v1/operations/retry", body={"queue": queue, "cursor": first["cursor"]})).ok()
    assert (rest["done"], rest["cursor"]) == (ids[4:], None)
    assert {(await ended(wire, id))["status"] for id in ids[2:]} == {"completed"}
    assert [message["data"] for message in await wire.pop(queue)] == [2, 3, 4], "in the order they were accepted"
    late = (await wire.post("/api/v1/operations/retry", body={"ids": [ids[0], str(uuid4())]})).ok()
    assert [one["code"] for one in late["refused"]] == ["conflict", "not_found"]
    assert (await wire.get("/api/v1/operations", ids[0])).ok()["status"] == "discarded"
    assert await listed(wire, status="failed", queue=other) == others
    for body in ({}, {"ids": [], "all": True}, {"queue": queue, "all": True}, {"ids": ["x"]}):
        (await wire.post("/api/v1/operations/discard", body=body)).refused(400)


async def test_the_client_lists_retries_and_discards_operations(wire: Wire) -> None:
    queue = wire.name()
    ids = await fail(wire, queue, *range(4))
    async with Client(wire.base) as client:
        found = await client.operations.all(status="failed", queue=queue, limit=3)
        assert [(one.id, one.queue, one.messages) for one in found] == [(id, queue, 1) for id in ids[:3]]
        assert (await client.operations.discard(ids[0])).status == "discarded"
        assert (await client.operations.retry(ids[1])).status in ("pending", "processing", "completed")
        again = await client.operations.retry_failed(queue=queue)
        assert (again.done, again.refused) == (ids[2:], [])
        assert {(await ended(wire, id))["status"] for id in ids[1:]} == {"completed"}
        late = await client.operations.discard_failed(ids[1:2])
        assert [(one.id, one.code) for one in late.refused] == [(ids[1], "conflict")]


async def test_unknown_operations_are_not_found(wire: Wire) -> None:
    assert (await wire.get("/api/v1/operations", str(uuid4()))).status == 404
    for verb in ("retry", "discard"):
        assert (await wire.post(f"/api/v1/operations/{uuid4()}/{verb}")).status == 404


async def test_a_limited_queue_tells_its_pressure_and_when_there_will_be_room(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, maxSize=4)
    [one, *_] = await push(wire, queue, 1, 2, status=201)
    assert (one["queueDepth"], one["remainingCapacity"], one["pressure"]) == (2, 2, 0.5)
    make_busy(wire)
    [accepted] = await push(wire, queue, 3)
    assert (accepted["queueDepth"], accepted["remainingCapacity"], accepted["pressure"]) == (3, 1, 0.75)
    await ended(wire, accepted["operationId"])
    make_calm(wire)
    await push(wire, queue, 4, status=201)
    full = await wire.post("/api/v1/push", body={"items": [{"queue": queue, "payload": 5}]})
    told = full.json
    assert (full.status, told["code"], told["queueDepth"], told["capacity"]) == (429, "QUEUE_FULL", 4, 4)
    assert 1 <= int(full.headers["Retry-After"]) <= 30
    await wire.ack(await wire.pop(queue))
    await push(wire, queue, 5, status=201)
