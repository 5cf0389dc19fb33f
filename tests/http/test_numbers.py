"""Numbers and times that are valid JSON but that readers cannot represent."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from tests.http.test_webhooks import Inbox
from tests.http.wire import Wire

HUGE = b"1e400"
"""A valid JSON number that no double can represent."""


async def test_a_number_that_no_double_holds_is_refused_where_it_must_be_read(wire: Wire) -> None:
    inbox = await Inbox(wire).apply(
        """
        queue Q% {}
        queue F% { message_type { f: float?  n: int? } }
        queue K% { key: payload.id }
        webhook T% { queue: Q%  on_type: "x" }
        webhook I% { queue: Q%  idempotency: payload.id }
        webhook K% { queue: K% }
        webhook E% { queue: Q%  format: cloudevents }
        """
    )
    json_type = {"Content-Type": "application/json"}
    for name, status in (("T", 400), ("I", 400), ("K", 422)):
        body = b'{"type":"x","id":"a","n":%b}' % HUGE
        assert "out of range" in (await inbox.send(name, body, json_type)).refused(status)["error"]
    event = b'{"specversion":"1.0","id":"a","source":"s","type":"t","data":%b}' % HUGE
    (await inbox.send("E", event, {"Content-Type": "application/cloudevents+json"})).ok(202)
    for bad in (b'{"f":%b}' % HUGE, b'{"n":%b}' % HUGE, b'{"n":9223372036854775808}', b'{"n":-9223372036854775809}'):
        item = b'{"items":[{"queue":"F%b","payload":%b}]}' % (inbox.tag.encode(), bad)
        (await wire.ask("POST", "/api/v1/push", body=item, headers=json_type)).refused(422, "payload_invalid")
    for good in (b'{"n":9223372036854775807}', b'{"n":-9223372036854775808}'):
        item = b'{"items":[{"queue":"F%b","payload":%b}]}' % (inbox.tag.encode(), good)
        (await wire.ask("POST", "/api/v1/push", body=item, headers=json_type)).ok(201)
    schedule = b'{"queue":"Q%b","everySeconds":3600,"data":%b}' % (inbox.tag.encode(), HUGE)
    answer = await wire.ask("POST", f"/api/v1/schedules/S{inbox.tag}", body=schedule, headers=json_type)
    assert "out of range" in answer.refused(400, "invalid_request")["error"]


async def test_a_number_that_no_double_holds_is_kept_as_it_came(wire: Wire) -> None:
    queue = f"numbers{uuid4().hex}"
    await wire.configure(queue, retryLimit=0)
    for number in (HUGE, b"-1e999"):
        payload = b'{"text":"%b","n":%b}' % (b"x" * 300, number)
        item = b'{"items":[{"queue":"%b","payload":%b}]}' % (queue.encode(), payload)
        headers = {"Content-Type": "application/json"}
        (await wire.ask("POST", "/api/v1/push", body=item, headers=headers)).ok(201)
        popped = await wire.ask("GET", f"/api/v1/pop/queue/{queue}")
        assert payload in popped.body
        [message] = json.loads(popped.body)["messages"]
        await wire.ack([message], "failed", error="no")
    letters = json.loads((await wire.ask("GET", f"/admin/queues/{queue}/dlq")).body)["dead_letters"]
    assert [letter["preview"] for letter in letters] == ['{"text":"' + "x" * 71 + "..."] * 2


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59Z", "2256-01-01T00:00:00+00:00"])
async def test_a_delivery_in_centuries_is_refused(wire: Wire, at: str) -> None:
    queue = wire.name()
    item = {"queue": queue, "payload": 1, "deliverAt": at}
    refused = (await wire.post("/api/v1/push", body={"items": [item]})).refused(400, "invalid_request")
    assert "deliverAt must be before 2255" in refused["error"]
    [stored] = (await wire.post("/api/v1/push", body={"items": [item | {"deliverAt": "2254-01-01"}]})).ok(201)
    assert stored["deliverAt"].startswith("2254-01-01")
