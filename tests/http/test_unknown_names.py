"""No part of a request is ignored: an unknown name is refused, with a suggestion."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire
from tests.queen_package import INSTALLED


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({}, "missing required field `payload`"),
        ({"data": {"important": 1}}, "did you mean `payload`?"),
        ({"paylod": 1}, "did you mean `payload`?"),
        ({"payload": 1, "transaction_id": "a"}, "did you mean `transactionId`?"),
        ({"payload": 1, "delay": 500}, "did you mean `delayMs`?"),
    ],
)
async def test_an_item_without_a_payload_or_with_an_unknown_field_is_refused(
    wire: Wire, item: dict[str, Any], words: str
) -> None:
    queue = wire.name()
    body = {"items": [{"queue": queue, "payload": 0}, {"queue": queue, **item}]}
    refused = (await wire.post("/api/v1/push", body=body)).refused(400)
    assert words in refused["error"]
    assert "items[1]" in refused["error"]
    (await wire.get("/api/v1/resources/queues", queue)).refused(404)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("maxSise", "did you mean `maxSize`?"),
        ("color", "expected one of"),
        ("retry-limit", "did you mean `retryLimit`?"),
    ],
)
async def test_an_unknown_option_is_refused_and_nothing_is_configured(wire: Wire, option: str, words: str) -> None:
    queue = wire.name()
    refused = (await wire.post("/api/v1/configure", body={"queue": queue, "options": {option: 3}})).refused(400)
    assert option in refused["error"]
    assert words in refused["error"]
    (await wire.get("/api/v1/resources/queues", queue)).refused(404)


async def test_an_option_is_known_by_its_name_and_by_that_of_the_wire_and_errors_say_which_was_used(wire: Wire) -> None:
    queue = wire.name()
    for spelt in ("leaseTime", "leaseSeconds", "lease_seconds"):
        answer = await wire.post("/api/v1/configure", body={"queue": queue, "options": {spelt: 77, "max_size": 5}})
        assert (answer.ok()["options"]["leaseTime"], answer.ok()["options"]["maxSize"]) == (77, 5)
        refused = (await wire.post("/api/v1/configure", body={"queue": queue, "options": {spelt: -1}})).refused(400)
        assert refused["error"].startswith(f"{spelt} is -1")
        text = (await wire.post("/api/v1/configure", body={"queue": queue, "options": {spelt: "x"}})).refused(400)
        assert spelt in text["error"]
    twice = {"leaseTime": 1, "lease_seconds": 2}
    refused = (await wire.post("/api/v1/configure", body={"queue": queue, "options": twice})).refused(400)
    assert "given twice" in refused["error"]
    (await wire.post("/api/v1/configure", body={"queue": queue, "options": {"leaseTime": None}})).ok()


async def test_an_unknown_query_parameter_is_refused_and_takes_nothing(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    refused = (await wire.get("/api/v1/pop/queue", queue, consumer_group="foo")).refused(400)
    assert "did you mean `consumerGroup`?" in refused["error"]
    (await wire.get("/api/v1/pop/queue", queue, groop="foo")).refused(400)
    (await wire.get("/api/v1/resources/overview", verbose="1")).refused(400)
    assert len(await wire.pop(queue)) == 1


async def test_an_unknown_field_of_an_ack_or_a_transaction_is_refused(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    [message] = await wire.pop(queue)
    ack = {"transactionId": message["transactionId"], "partitionId": message["partitionId"], "state": "failed"}
    assert "status" in (await wire.post("/api/v1/ack", body=ack)).refused(400)["error"]
    step = {"type": "push", "queue": queue, "payload": 2, "partitionKey": "x"}
    (await wire.post("/api/v1/transaction", body={"operations": [step]})).refused(400)


async def test_what_published_clients_send_besides_is_passed_over(wire: Wire) -> None:
    queue = wire.name()
    item = {"queue": queue, "payload": 1, "producerSub": "somebody"}
    (await wire.post("/api/v1/push", body={"items": [item]})).ok(201)
    foreign: dict[str, Any] = {"namespace": "n", "task": "t", "frames": "true"} if INSTALLED else {}
    popped = (await wire.get("/api/v1/pop/queue", queue, **foreign)).ok()
    assert popped["messages"][0].get("producerSub") is None
