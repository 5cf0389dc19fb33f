"""Sources on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire

ROUTE = "/api/v1/sources"


async def test_a_source_is_leased_committed_shown_released_and_deleted(wire: Wire) -> None:
    name, queue = wire.name("source"), wire.name()
    leased = (await wire.post(ROUTE, name, "lease", body={"seconds": 60})).ok()
    token = leased["token"]
    assert (leased["name"], leased["cursor"], leased["revision"], leased["records"]) == (name, None, "", 0)
    assert (await wire.post(ROUTE, name, "lease", body={})).status == 409
    kept = (await wire.post(ROUTE, name, "lease", body={"seconds": 90, "token": token})).ok()
    assert kept["leasedUntil"] > leased["leasedUntil"]

    page = {
        "token": token,
        "before": "",
        "revision": "r1",
        "queue": queue,
        "cursor": "2",
        "type": "order",
        "records": [{"key": "1", "hash": "h", "data": {"id": 1}}, {"key": "2", "hash": "h", "data": {"id": 2}}],
    }
    done = (await wire.post(ROUTE, name, "commit", body=page)).ok()
    counts = {"created": 2, "changed": 0, "unchanged": 0, "deleted": 0, "more": False}
    assert done == {"revision": "r1", "repeated": False, **counts}
    assert (await wire.post(ROUTE, name, "commit", body=page)).ok()["repeated"] is True
    (await wire.post(ROUTE, name, "commit", body={**page, "revision": "r2"})).refused(409, "conflict")
    other = {**page, "before": "r1", "revision": "r2", "token": token + 1}
    (await wire.post(ROUTE, name, "commit", body=other)).refused(409, "lease_lost")
    messages = await wire.pop(queue, batch=10, partitions=10)
    assert [message["data"]["record"] for message in messages] == [{"id": 1}, {"id": 2}]
    assert {message["type"] for message in messages} == {"order.created"}

    shown = (await wire.get(ROUTE, name)).ok()
    assert (shown["cursor"], shown["records"], shown["revision"]) == ("2", 2, "r1")
    assert shown in (await wire.get(ROUTE)).ok()["sources"]
    assert (await wire.post(ROUTE, name, "release", body={"token": token})).ok()["released"] is True
    assert (await wire.post(ROUTE, name, "release", body={"token": token})).ok()["released"] is False
    assert (await wire.delete(ROUTE, name)).ok() == {"name": name, "deleted": True}
    assert (await wire.get(ROUTE, name)).status == 404
    assert (await wire.post(ROUTE, name, "commit", body=page)).status == 404


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"records": [{"key": "", "hash": "h", "data": 1}]}, "key must not be empty"),
        ({"records": [{"key": "1", "hash": "h"}]}, "data"),
        ({"cursor": ""}, "cursor must not be empty"),
        ({"begin": True}, "words of a sweep"),
        ({"sweep": True}, "no sweep in progress"),
        ({"token": -1}, "token"),
        ({"revision": ""}, "revision must not be empty"),
    ],
)
async def test_a_page_that_cannot_be_committed_is_refused_with_a_reason(
    wire: Wire, wrong: dict[str, Any], said: str
) -> None:
    name = wire.name("source")
    token = (await wire.post(ROUTE, name, "lease")).ok()["token"]
    page = {"token": token, "before": "", "revision": "r1", "queue": wire.name(), **wrong}
    answer = await wire.post(ROUTE, name, "commit", body=page)
    assert answer.status == 400
    assert said in str(answer.body)
    assert (await wire.get(ROUTE, name)).ok()["revision"] == ""
