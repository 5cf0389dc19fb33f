"""The life of a webhook's message in nine cases, with the app of the documentation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fairlane.model.names import COMMANDS
from fairlane.webhooks.schemes import PRESETS
from fairlane.webhooks.signatures import sign
from tests.clock import ManualClock
from tests.conformance.backends import Backend
from tests.http.wire import Answer, Wire, serving
from tests.spec.samples import INCIDENTS, compiled

SECRET = "a secret of more than 24 bytes"


class Incidents:
    def __init__(self, wire: Wire, clock: ManualClock) -> None:
        self.wire = wire
        self.clock = clock
        self.tag = uuid4().hex
        self.queue, self.dead = f"In{self.tag}", f"Dead{self.tag}"

    async def apply(self) -> None:
        text = INCIDENTS.replace("WebhookIngress", self.queue).replace("WebhookDLQ", self.dead)
        text = text.replace("PagerDutyAlert", f"Webhook{self.tag}").replace("IncidentManagement", f"App{self.tag}")
        text = text.replace("Incident.CreateIncident", f"Create{self.tag}")
        text = text.replace("max_depth: 10000", "max_depth: 4  completed_max_age_seconds: 60")
        spec = msgspec.to_builtins(compiled(text.replace("max_attempts: 5", "max_attempts: 2")).spec)
        (await self.wire.post("/api/v1/spec/apply", body={"spec": spec})).ok()

    async def send(self, incident: str, delivery_id: str) -> Answer:
        body = b'{"incident":{"id":"%b","title":"%b"}}' % (incident.encode(), delivery_id.encode())
        signed = sign(PRESETS["pagerduty"], SECRET.encode(), body, delivery_id=delivery_id, now=0)
        headers = {"Content-Type": "application/json"} | {name.decode(): text.decode() for name, text in signed.items()}
        return await self.wire.ask("POST", f"/hook/Webhook{self.tag}", body=body, headers=headers)

    async def pop(self) -> list[Any]:
        """Pop with the group that runs the commands of the queue."""
        return await self.wire.pop(self.queue, consumerGroup=COMMANDS, partitions=10)


def titles(messages: list[Any]) -> list[str]:
    return [message["data"]["payload"]["incident"]["title"] for message in messages]


@pytest.fixture
async def incidents(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Incidents]:
    monkeypatch.setenv("PAGERDUTY_WEBHOOK_SECRET", SECRET)
    await backend.make()
    clock = ManualClock()
    async with serving(await backend.open(clock)) as wire:
        incidents = Incidents(wire, clock)
        await incidents.apply()
        yield incidents


async def test_a_look_at_a_mapped_queue_stops_no_webhook(incidents: Incidents) -> None:
    """Four such groups are allowed, and the one that runs the commands keeps working."""
    assert (await incidents.send("i", "d-first")).status == 202
    assert len(await incidents.wire.pop(incidents.queue, partitions=10)) == 1
    for n in range(6):
        assert (await incidents.send("i", f"d-{n}")).status == 202
        await incidents.wire.ack(await incidents.pop())


async def test_enqueued_dequeued_in_order_and_once_by_its_idempotency_key(incidents: Incidents) -> None:
    """Enqueue, dequeue, idempotency and ordering."""
    for incident, delivery in [("a", "1"), ("b", "2"), ("a", "3"), ("a", "1"), ("a", "3")]:
        (await incidents.send(incident, delivery)).ok(202)
    found = await incidents.pop()
    by_incident: dict[str, list[str]] = {}
    for message in found:
        by_incident.setdefault(message["partition"], []).extend(titles([message]))
    assert by_incident == {"a": ["1", "3"], "b": ["2"]}
    await incidents.wire.ack(found, result={"created": True})
    assert (await incidents.send("a", "1")).ok()["result"] == {"created": True}
    assert await incidents.pop() == []


async def test_a_redelivery_gets_its_result_after_retention_deleted_the_message(incidents: Incidents) -> None:
    sent = (await incidents.send("a", "1")).ok(202)
    await incidents.wire.ack(await incidents.pop(), result={"created": True})
    incidents.clock.advance(60)
    gone = (await incidents.wire.post("/api/v1/retention/run")).ok()["deleted"]
    assert [one["messages"] for one in gone if one["queue"] == incidents.queue] == [1]
    for seconds in (0, 3_600, 86_400 - 3_661):
        incidents.clock.advance(seconds)
        again = (await incidents.send("a", "1")).ok()
        assert (again["message_id"], again["result"]) == (sent["message_id"], {"created": True})
    assert await incidents.pop() == []
    incidents.clock.advance(2)
    (await incidents.send("a", "1")).ok(202)


async def test_invisible_while_leased_and_retried_with_a_growing_pause(incidents: Incidents) -> None:
    """Visibility timeout and retry."""
    (await incidents.send("a", "1")).ok(202)
    assert titles(await incidents.pop()) == ["1"]
    assert await incidents.pop() == []
    incidents.clock.advance(299)
    assert await incidents.pop() == []
    incidents.clock.advance(2)
    [again] = await incidents.pop()
    assert titles([again]) == ["1"]
    await incidents.wire.ack([again])
    (await incidents.send("a", "2")).ok(202)
    await incidents.wire.ack(await incidents.pop(), "failed")
    incidents.clock.advance(0.9)
    assert await incidents.pop() == []
    incidents.clock.advance(0.2)
    assert titles(await incidents.pop()) == ["2"]


async def test_dead_after_its_last_attempt_and_replayed_once(incidents: Incidents) -> None:
    """Dead letters and replay."""
    (await incidents.send("a", "1")).ok(202)
    for _ in range(2):
        await incidents.wire.ack(await incidents.pop(), "failed", error="boom")
        incidents.clock.advance(61)
    listed = (await incidents.wire.get("/admin/queues", incidents.queue, "dlq")).ok()["dead_letters"]
    assert [(letter["error"], letter["attempts"]) for letter in listed] == [("boom", 2)]
    await incidents.wire.app.broker._engine.forwarder.forward()
    [letter] = await incidents.wire.pop(incidents.dead)
    assert letter["data"]["error"] == "boom"
    replay = f"/admin/queues/{incidents.queue}/dlq/{listed[0]['id']}/replay"
    assert (await incidents.wire.post(replay)).ok()["ok"] is True
    assert titles(await incidents.pop()) == ["1"]
    assert (await incidents.wire.post(replay)).status in (200, 404, 409)
    assert await incidents.pop() == []


async def test_a_full_queue_answers_503_and_takes_again_what_was_refused(incidents: Incidents) -> None:
    """Backpressure."""
    for number in range(4):
        (await incidents.send(f"i{number}", f"{number}")).ok(202)
    refused = await incidents.send("i4", "4")
    assert refused.refused(503, "QUEUE_FULL")["error"]
    assert int(refused.headers["Retry-After"]) >= 1
    await incidents.wire.ack(await incidents.pop())
    (await incidents.send("i4", "4")).ok(202)
    assert titles(await incidents.pop()) == ["4"]
