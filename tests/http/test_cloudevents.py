"""CloudEvents webhooks: both modes of the HTTP binding become the same message, with source and id as its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.test_webhooks import SECRET, Inbox, headers_of
from tests.http.wire import Wire

ATTRIBUTES = {"specversion": "1.0", "id": "e-1", "source": "/orders", "type": "order.created"}
DATA = {"order": 7}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)


async def inbox_of(wire: Wire, more: str = "") -> Inbox:
    return await Inbox(wire).apply(f"queue Q% {{}} webhook W% {{ queue: Q%  format: cloudevents  {more} }}")


def structured(event: Any, **headers: str) -> tuple[bytes, dict[str, str]]:
    return json.dumps(event).encode(), {"Content-Type": "application/cloudevents+json; charset=utf-8", **headers}


def binary(body: bytes, kind: str = "application/json", **attributes: str) -> tuple[bytes, dict[str, str]]:
    return body, {f"ce-{name}": value for name, value in attributes.items()} | {"Content-Type": kind}


async def payloads(wire: Wire, inbox: Inbox) -> list[Any]:
    return [message["data"]["payload"] for message in await wire.pop(inbox.queue)]


async def test_both_modes_become_the_same_message(wire: Wire) -> None:
    inbox = await inbox_of(wire)
    event = ATTRIBUTES | {"datacontenttype": "application/json", "subject": "caf\u00e9 7", "data": DATA}
    answer = (await inbox.send("W", *structured(event))).ok(202)
    assert answer["idempotency_key"] == "/orders e-1"
    again = binary(json.dumps(DATA).encode(), **ATTRIBUTES | {"subject": "caf%C3%A9%207"})
    assert (await inbox.send("W", *again)).ok(202) == answer, "the same event, in the other mode"
    other = binary(json.dumps(DATA).encode(), **ATTRIBUTES | {"id": "e-2", "subject": "caf%C3%A9%207"})
    assert (await inbox.send("W", *other)).ok(202)["message_id"] != answer["message_id"], "equal data, another event"
    assert await payloads(wire, inbox) == [event, event | {"id": "e-2"}]


async def test_data_that_is_no_json_is_kept_as_text_or_base64(wire: Wire) -> None:
    inbox = await inbox_of(wire)
    bodies: list[tuple[bytes, str, dict[str, Any]]] = [
        (b"<order>\xc3\xa9</order>", "application/xml", {"data": "<order>\u00e9</order>"}),
        (b"a,b", "text/csv", {"data": "a,b"}),
        (b"\x00\xff", "application/octet-stream", {"data_base64": "AP8="}),
        (b"[1]", "application/vnd.order+json", {"data": [1]}),
        (b"", "application/json", {}),
    ]
    for number, (body, kind, _) in enumerate(bodies):
        (await inbox.send("W", *binary(body, kind, **ATTRIBUTES | {"id": str(number)}))).ok(202)
    expected = [
        ATTRIBUTES | {"id": str(number), "datacontenttype": kind} | data
        for number, (_, kind, data) in enumerate(bodies)
    ]
    assert await payloads(wire, inbox) == expected


async def test_what_is_no_event_is_refused_and_nothing_stored(wire: Wire) -> None:
    inbox = await inbox_of(wire)
    missing = [structured({key: value for key, value in ATTRIBUTES.items() if key != name}) for name in ATTRIBUTES]
    missing += [binary(b"{}", **{k: v for k, v in ATTRIBUTES.items() if k != name}) for name in ATTRIBUTES]
    odd = [
        structured(ATTRIBUTES | {"id": ""}),
        structured(ATTRIBUTES | {"id": 7}),
        structured(ATTRIBUTES | {"specversion": "0.3"}),
        structured([ATTRIBUTES]),
        binary(b"{", **ATTRIBUTES),
        binary(b"\xff", "text/plain", **ATTRIBUTES),
        binary(b"{}", **ATTRIBUTES | {"subject": "%ff"}),
        binary(b"{}", **ATTRIBUTES | {"data": "x"}),
    ]
    for body, headers in [*missing, *odd]:
        assert (await inbox.send("W", body, headers)).refused(400, "invalid_request")["error"], (body, headers)
    batch = json.dumps([ATTRIBUTES]).encode(), {"Content-Type": "application/cloudevents-batch+json"}
    refused = (await inbox.send("W", *batch)).refused(415)
    assert "one event" in refused["error"]
    assert await payloads(wire, inbox) == []


async def test_signatures_types_and_keys_of_ones_own_go_with_it(wire: Wire) -> None:
    verify = 'verify: standard_webhooks { secret_env: "HOOK_SECRET" }  on_type: "order.created"'
    inbox = await inbox_of(wire, f"{verify}  idempotency: payload.data.order")
    body, kind = structured(ATTRIBUTES | {"data": DATA})
    (await inbox.send("W", body, kind)).refused(401)
    answer = (await inbox.send("W", body, headers_of("standard_webhooks", body) | kind)).ok(202)
    assert answer["idempotency_key"] == "7"
    body, kind = structured(ATTRIBUTES | {"type": "order.deleted"})
    assert (await inbox.send("W", body, headers_of("standard_webhooks", body) | kind)).ok() == {"ignored": True}
    assert len(await payloads(wire, inbox)) == 1


async def test_a_webhook_of_events_is_tried_with_one(wire: Wire) -> None:
    inbox = await Inbox(wire).apply(
        """
        queue Q% {
          message_type {
            payload: {
              specversion: string  id: string  source: string  type: string  subject: string  data: { n: int }
            }
            headers: map<string, string>  source_ip: string  received_at: time
          }
          key: payload.subject
        }
        webhook W% { queue: Q%  format: cloudevents }
        """
    )
    tried = (await wire.post("/api/v1/hooks", f"W{inbox.tag}", "test")).ok()
    assert (tried["status"], tried["body"]["queued"]) == (202, True), tried
