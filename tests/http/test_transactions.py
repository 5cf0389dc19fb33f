"""Transactions over HTTP."""

from __future__ import annotations

from tests.http.wire import Wire


async def test_a_transaction_that_is_sent_again_without_ids_is_refused_and_told_why(wire: Wire) -> None:
    """As by a client that got no answer."""
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
        assert "applied by an earlier try" in again["error"]
    push["items"] = [{"queue": target, "payload": "order 1 is done", "transactionId": "done-1"}]
    (await wire.post("/api/v1/transaction", body=body)).refused(409, "already_applied")
    assert [one["data"] for one in await wire.pop(target, batch=10)] == ["invoice for order 1"]
