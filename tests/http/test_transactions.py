"""Transactions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire


async def test_a_transaction_that_is_sent_again_without_ids_is_refused_and_told_why(wire: Wire) -> None:
    """A client that got no answer repeats its transaction like this."""
    source, target = wire.name("source"), wire.name("target")
    await wire.push(source, "order 1")
    [order] = await wire.pop(source, batch=1)
    ack = {"type": "ack", **{key: order[key] for key in ("transactionId", "partitionId", "leaseId")}}
    push = {"type": "push", "items": [{"queue": target, "payload": "invoice for order 1"}]}
    body = {"operations": [ack, push]}
    assert (await wire.post("/api/v1/transaction", body=body)).ok()["success"]
    for _ in range(2):
        again = (await wire.post("/api/v1/transaction", body=body)).refused(409, "already_applied")
        assert (again["success"], again["failedIndex"]) == (False, 1)
        assert "an earlier attempt applied" in again["error"]
    push["items"] = [{"queue": target, "payload": "order 1 is done", "transactionId": "done-1"}]
    (await wire.post("/api/v1/transaction", body=body)).refused(409, "already_applied")
    assert [one["data"] for one in await wire.pop(target, batch=10)] == ["invoice for order 1"]


async def test_a_transaction_names_its_isolation_level(wire: Wire) -> None:
    queue = wire.name()
    push = {"type": "push", "items": [{"queue": queue, "payload": 1}]}
    for level in ("read committed", "repeatable read", "serializable"):
        answer = (await wire.post("/api/v1/transaction", body={"operations": [push], "isolation": level})).ok()
        assert (answer["success"], answer["isolation"]) == (True, "serializable")
    for level in ("read uncommitted", "", "SERIALIZABLE; --"):
        body = {"operations": [push], "isolation": level}
        refused = (await wire.post("/api/v1/transaction", body=body)).refused(400, "invalid_request")
        assert "isolation must be one of" in refused["error"]
    assert len(await wire.pop(queue)) == 3


async def _operations(wire: Wire, queue: str, *statuses: str, batch: int = 1) -> list[Any]:
    """Return an ack for each status, of messages that one pop returns."""
    messages = await wire.pop(queue, batch=batch)
    keys = ("transactionId", "partitionId", "leaseId")
    return [
        {"type": "ack", **{key: messages[index % len(messages)][key] for key in keys}, "status": status, "error": "no"}
        for index, status in enumerate(statuses)
    ]


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_failed_ack_in_a_transaction_is_a_failed_attempt(wire: Wire, ordering: str) -> None:
    queue, target = wire.name("source"), wire.name("target")
    await wire.configure(queue, retryLimit=2, ordering=ordering)
    await wire.push(queue, "order 1")
    for attempt in range(3):
        operations = await _operations(wire, queue, "failed")
        push = {"type": "push", "items": [{"queue": target, "payload": f"attempt {attempt}"}]}
        answer = (await wire.post("/api/v1/transaction", body={"operations": [*operations, push]})).ok()
        assert (answer["success"], answer["results"][0]["dlq"]) == (True, attempt == 2), answer
    assert await wire.pop(queue) == []
    [letter] = (await wire.get("/api/v1/dlq", queue=queue)).ok()["messages"]
    assert (letter["errorMessage"], letter["retryCount"]) == ("no", 3)
    assert len(await wire.pop(target)) == 3, "what went with the attempts is stored"


async def test_a_message_of_two_verdicts_refuses_its_transaction(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    operations = await _operations(wire, queue, "completed", "failed")
    answer = (await wire.post("/api/v1/transaction", body={"operations": operations})).refused(400, "invalid_request")
    assert "step 1" in answer["error"]
    assert "`completed` in step 0" in answer["error"]
    body = {"operations": [operations[0], operations[0] | {"status": "success"}]}
    assert (await wire.post("/api/v1/transaction", body=body)).ok()["success"], "the same twice is said once"


async def test_what_lies_behind_a_failed_message_cannot_be_finished_with_it(wire: Wire) -> None:
    """The message is delivered again, so the pushes of the transaction would be made twice."""
    queue = wire.name()
    await wire.push(queue, 1, 2)
    operations = await _operations(wire, queue, "failed", "completed", batch=2)
    answer = (await wire.post("/api/v1/transaction", body={"operations": operations})).ok()
    assert (answer["success"], answer["failedIndex"]) == (False, 1)
    assert "delivered again" in answer["error"]
    body = {"operations": [operations[0] | {"status": "completed"}, operations[1] | {"status": "failed"}]}
    assert (await wire.post("/api/v1/transaction", body=body)).ok()["success"]
    assert [one["data"] for one in await wire.pop(queue)] == [2]
