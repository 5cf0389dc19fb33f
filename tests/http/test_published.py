"""Undocumented requests of published clients: nulls, extra fields of transactions, queues without a name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire
from tests.queen_package import INSTALLED


async def test_null_is_as_good_as_absent(wire: Wire) -> None:
    queue = wire.name()
    options = dict.fromkeys(("leaseTime", "retryLimit", "maxSize", "encryptionEnabled", "deadLetterQueue"))
    body: dict[str, Any] = {"queue": queue, "namespace": None, "task": None, "options": {**options, "priority": 3}}
    configured = (await wire.post("/api/v1/configure", body=body)).ok()["options"]
    assert (configured["leaseTime"], configured["retryLimit"], configured["priority"]) == (300, 3, 3)
    (await wire.post("/api/v1/configure", body={**body, "options": None})).ok()
    item = dict.fromkeys(("partition", "transactionId", "traceId", "type", "headers"))
    items = [{**item, "queue": queue, "payload": None}, {**item, "queue": queue, "payload": {"kept": None}}]
    (await wire.post("/api/v1/push", body={"items": items})).ok(201)
    messages = await wire.pop(queue)
    assert [message["data"] for message in messages] == [None, {"kept": None}]
    where = [{key: message[key] for key in ("transactionId", "partitionId")} for message in messages]
    renewed = (await wire.post("/api/v1/lease", messages[0]["leaseId"], "extend", body={"seconds": None})).ok()
    assert renewed["success"]
    nothing = dict.fromkeys(("status", "leaseId", "consumerGroup", "error"))
    [first] = (await wire.post("/api/v1/ack", body={**nothing, **where[0]})).ok()
    assert first["success"]
    body = {"operations": [{"type": "ack", **nothing, **where[1]}], "requiredLeases": None, "kv": None, "timers": []}
    assert (await wire.post("/api/v1/transaction", body=body)).ok()["success"]
    sought = {"toEnd": True, "timestamp": None, "toBeginning": None}
    (await wire.post("/api/v1/consumer-groups", "__QUEUE_MODE__", "queues", queue, "seek", body=sought)).ok()


async def test_null_is_not_as_good_as_what_is_required(wire: Wire) -> None:
    for path, body in (
        ("/api/v1/configure", {"queue": None}),
        ("/api/v1/push", {"items": None}),
        ("/api/v1/ack/batch", {"acknowledgments": None}),
        ("/api/v1/transaction", {"operations": None}),
        *([("/streams/v1/queries", {"name": None, "source_queue": "s", "config_hash": "h"})] if INSTALLED else []),
    ):
        (await wire.post(path, body=body)).refused(400)


@pytest.mark.parametrize("rider", ["kv", "timers"])
@pytest.mark.parametrize("alone", [False, True])
async def test_a_transaction_over_what_is_not_here_is_refused_whole(wire: Wire, rider: str, alone: bool) -> None:
    source, sink = wire.name(), wire.name("sink")
    await wire.push(source, 1)
    [message] = await wire.pop(source)
    ack = {"type": "ack", **{key: message[key] for key in ("transactionId", "partitionId", "leaseId")}}
    push = {"type": "push", "items": [{"queue": sink, "payload": 1}]}
    op: dict[str, Any] = {"op": "put", "ns": "n", "key": "k", "value": 1, "forever": True}
    body = {"operations": [] if alone else [ack, push], rider: [op]}
    refused = (await wire.post("/api/v1/transaction", body=body)).ok()
    assert (refused["success"], refused["results"]) == (False, [])
    assert f"no {rider}" in refused["error"]
    assert "rolled back" in refused["error"]
    assert await wire.pop(sink) == []
    renewed = (await wire.post("/api/v1/lease", message["leaseId"], "extend")).ok()
    assert renewed["success"], "it was not acked"


async def test_a_queue_without_a_name_is_configured_as_far_as_that_goes(wire: Wire) -> None:
    """A published load test does this by mistake and expects success."""
    answer = (await wire.post("/api/v1/configure", body={"queue": "", "options": {"leaseTime": 7}})).ok()
    assert (answer["configured"], answer["queue"], answer["options"]["leaseTime"]) == (True, "", 7)
    (await wire.post("/api/v1/configure", body={"queue": "", "options": {"leaseTime": -1}})).refused(400)
    (await wire.post("/api/v1/push", body={"items": [{"queue": "", "payload": 1}]})).refused(400)
    assert "" not in [queue["name"] for queue in (await wire.get("/api/v1/resources/queues")).ok()["queues"]]
