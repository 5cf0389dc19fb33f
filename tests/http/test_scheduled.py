"""Scheduled messages on the wire."""

from __future__ import annotations

import pytest

from tests.http.wire import Wire

FAR = "2199-01-31T12:00:00.000000Z"


async def test_a_message_is_scheduled_listed_rescheduled_and_cancelled(wire: Wire) -> None:
    queue, partition = wire.name(), wire.name("lane")
    [kept] = await wire.push(queue, 1, ids=["it/1"], partition=partition, deliverAt=FAR)
    assert (kept["status"], kept["deliverAt"], kept["transaction_id"]) == ("scheduled", FAR, "it/1")
    [again] = await wire.push(queue, 1, ids=["it/1"], partition=partition, delayMs=60_000)
    assert (again["status"], again["message_id"]) == ("duplicate", kept["message_id"])
    [listed] = (await wire.get("/api/v1/scheduled", queue)).ok()["messages"]
    assert (listed["transactionId"], listed["partition"], listed["deliverAt"]) == ("it/1", partition, FAR)
    assert await wire.pop(queue) == []
    message = ("/api/v1/scheduled", queue, partition, "it/1")
    moved = (await wire.post(*message, body={"deliverAt": "2199-02-01T00:00:00Z"})).ok()
    assert (moved["rescheduled"], moved["deliverAt"]) == (True, "2199-02-01T00:00:00.000000Z")
    assert (await wire.delete(*message)).ok()["cancelled"] is True
    assert (await wire.delete(*message)).ok()["cancelled"] is False
    assert (await wire.post(*message, body={"delayMs": 1})).ok() == {**moved, "rescheduled": False, "deliverAt": None}


async def test_what_is_due_at_once_is_pushed_in_its_place_among_the_others(wire: Wire) -> None:
    queue = wire.name()
    items = [
        {"queue": queue, "payload": "now"},
        {"queue": queue, "payload": "later", "delayMs": 3_600_000},
        {"queue": queue, "payload": "past", "deliverAt": "2001-01-01T00:00:00Z"},
    ]
    answer = (await wire.post("/api/v1/push", body={"items": items})).ok(201)
    assert [element["status"] for element in answer] == ["queued", "scheduled", "queued"]
    assert [element["index"] for element in answer] == [0, 1, 2]
    assert [message["data"] for message in await wire.pop(queue)] == ["now", "past"]


async def test_a_message_with_a_delay_comes_when_it_has_passed(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, "soon", delayMs=300)
    [message] = await wire.pop(queue, wait="true", timeout=20_000)
    assert message["data"] == "soon"


@pytest.mark.parametrize(
    "when",
    [
        {"deliverAt": "tomorrow"},
        {"deliverAt": 5},
        {"delayMs": -1},
        {"delayMs": 10**15},
        {"delayMs": "1"},
        {"delayMs": 1, "deliverAt": FAR},
    ],
    ids=str,
)
async def test_a_time_that_is_none_is_refused_and_nothing_stored(wire: Wire, when: dict[str, object]) -> None:
    queue = wire.name()
    items = [{"queue": queue, "payload": 1}, {"queue": queue, "payload": 2, **when}]
    (await wire.post("/api/v1/push", body={"items": items})).refused(400, "invalid_request")
    assert await wire.pop(queue) == []


async def test_a_transaction_schedules(wire: Wire) -> None:
    queue = wire.name()
    later = {"queue": queue, "payload": 1, "delayMs": 1000}
    at = {"queue": queue, "payload": 1, "transactionId": "at", "deliverAt": FAR}
    body = {"operations": [{"type": "push", "items": [later]}, {"type": "push", **at}]}
    answer = (await wire.post("/api/v1/transaction", body=body)).ok()
    assert [result["status"] for result in answer["results"]] == ["scheduled", "scheduled"]
    assert answer["results"][1]["deliverAt"] == FAR
    assert [one["deliverAt"] for one in (await wire.get("/api/v1/scheduled", queue)).ok()["messages"]][1:] == [FAR]
    for bad in ({"delayMs": -1}, {"delayMs": 1, "deliverAt": FAR}):
        body = {"operations": [{"type": "push", "items": [{"queue": queue, "payload": 1}, {**at, **bad}]}]}
        (await wire.post("/api/v1/transaction", body=body)).refused(400, "invalid_request")
    assert await wire.pop(queue) == []


async def test_scheduled_messages_come_in_pages(wire: Wire) -> None:
    queue = wire.name()
    for n in range(5):
        await wire.push(queue, n, ids=[f"n{n}"], deliverAt=f"2199-01-0{n + 1}T00:00:00Z")
    first = (await wire.get("/api/v1/scheduled", queue, limit=3)).ok()
    second = (await wire.get("/api/v1/scheduled", queue, limit=3, after=first["next"])).ok()
    assert [one["transactionId"] for one in (*first["messages"], *second["messages"])] == [f"n{n}" for n in range(5)]
    assert second["next"] is None
    (await wire.get("/api/v1/scheduled", queue, after="nowhere")).refused(400, "invalid_request")
    (await wire.get("/api/v1/scheduled", wire.name())).refused(404, "not_found")
