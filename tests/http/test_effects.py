"""Effects on the wire."""

from __future__ import annotations

from tests.http.wire import Wire

ROUTE = "/api/v1/effects"


async def test_the_first_value_under_a_key_is_kept(wire: Wire) -> None:
    key, where = wire.name("key"), {"partitionId": "0-1"}
    (await wire.ask("GET", ROUTE, key, query=where)).refused(404, "not_found")
    first = (await wire.post(ROUTE, key, body={**where, "value": {"a": 1}})).ok()
    assert first == {"key": key, "value": {"a": 1}}
    assert (await wire.post(ROUTE, key, body={**where, "value": 2})).ok() == first
    assert (await wire.ask("GET", ROUTE, key, query=where)).ok() == first


async def test_what_cannot_be_kept_is_refused(wire: Wire) -> None:
    key = wire.name("key")
    for wrong in ({"value": 1}, {"partitionId": "x", "value": 1}, {"partitionId": "0-1", "value": "x" * 70_000}):
        (await wire.post(ROUTE, key, body=wrong)).refused(400)
    (await wire.ask("GET", ROUTE, key)).refused(400)
    (await wire.ask("GET", ROUTE, key, query={"partitionId": "0-1"})).refused(404)
