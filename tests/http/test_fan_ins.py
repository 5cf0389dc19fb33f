"""Fan-ins on the wire: steps of transactions, and their progress."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire


def step(queue: str, count: int, **more: Any) -> dict[str, Any]:
    items = [{"queue": queue, "payload": n} for n in range(count)]
    return {"type": "fan_in", "items": items, "then": {"queue": f"{queue}.then", "payload": "report"}, **more}


async def transact(wire: Wire, *operations: dict[str, Any]) -> Any:
    return await wire.post("/api/v1/transaction", body={"operations": list(operations)})


async def test_a_fan_in_is_created_shown_listed_and_deleted(wire: Wire) -> None:
    queue, id = wire.name(), wire.name("fan-in")
    results = (await transact(wire, step(queue, 2, id=id))).ok()["results"]
    assert [one["type"] for one in results] == ["push", "push"]
    first, second = await wire.pop(queue)
    ack = {name: first[name] for name in ("transactionId", "partitionId", "leaseId")}
    (await wire.post("/api/v1/ack", body={**ack, "status": "completed", "result": 1})).ok()
    shown = (await wire.get("/api/v1/fan-ins", id)).ok()
    assert {name: shown[name] for name in ("status", "total", "open", "completed", "failed", "queue")} == {
        "status": "open",
        "total": 2,
        "open": 1,
        "completed": 1,
        "failed": 0,
        "queue": f"{queue}.then",
    }
    assert [part["status"] for part in shown["parts"]] == ["completed", "open"]
    assert [part["part"] for part in (await wire.get("/api/v1/fan-ins", id, offset=1)).ok()["parts"]] == [1]
    assert id in [one["id"] for one in (await wire.get("/api/v1/fan-ins")).ok()["fanIns"]]
    assert (await wire.delete("/api/v1/fan-ins", id)).ok() == {"id": id, "deleted": True}
    assert (await wire.delete("/api/v1/fan-ins", id)).ok()["deleted"] is False
    (await wire.get("/api/v1/fan-ins", id)).refused(404)
    assert second["data"] == 1


async def test_the_callback_is_a_message_with_results_and_failures(wire: Wire) -> None:
    queue = wire.name()
    operation = step(queue, 2)
    operation["then"] |= {"partition": "lane 7", "type": "report", "headers": {"by": "test"}}
    (await transact(wire, operation)).ok()
    for message, status in zip(await wire.pop(queue), ("completed", "dlq"), strict=True):
        ack = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        await wire.post("/api/v1/ack", body={**ack, "status": status, "result": {"n": 1}, "error": "no paper"})
    [callback] = await wire.pop(f"{queue}.then", wait="true", timeout=30_000)
    assert (callback["partition"], callback["type"], callback["headers"]["by"]) == ("lane 7", "report", "test")
    data = callback["data"]
    assert (data["data"], data["total"], data["results"], data["failed"]) == ("report", 2, [{"n": 1}, None], 1)
    assert [(one["part"], one["status"], one["error"]) for one in data["failures"]] == [(1, "dead_letter", "no paper")]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"then": None}, "a fan_in needs"),
        ({"items": None}, "a fan_in needs"),
        ({"id": ""}, "id must not be empty"),
        ({"consumerGroup": ""}, "consumerGroup must not be empty"),
        ({"consumerGroup": "x" * 300}, "consumerGroup has 300 characters"),
        ({"then": {"queue": "", "payload": 1}}, "queue"),
        ({"then": {"queue": "q", "payload": 1, "delayMs": 5}}, "leave out deliverAt and delayMs"),
        ({"items": [{"queue": "q", "payload": 1, "delayMs": 5}]}, "cannot be scheduled"),
    ],
)
async def test_a_bad_fan_in_is_refused_with_a_reason(wire: Wire, change: dict[str, Any], error: str) -> None:
    problem = (await transact(wire, {**step(wire.name(), 1), **change})).refused(400)
    assert error in problem["error"]
