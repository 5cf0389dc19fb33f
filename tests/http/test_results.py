"""Results over HTTP: the values that acks carried, looked up and waited for by message and group."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from fairlane.broker import results
from tests.conformance.backends import PostgresBackend
from tests.conformance.configurations import Configuration
from tests.http.test_polls import narrow, waiting  # noqa: F401  # a fixture
from tests.http.wire import Wire, serving
from tests.until import until


async def result(wire: Wire, pushed: Any, **query: Any) -> Any:
    message = pushed["partition_id"], pushed["transaction_id"]
    return (await wire.ask("GET", _path("/api/v1/messages", *message, "result"), query=query)).ok()


async def result_by_name(wire: Wire, queue: str, id: str, **query: Any) -> Any:
    return (await wire.ask("GET", _path("/api/v1/queues", queue, "results", id), query=query)).ok()


def _path(start: str, *parts: str) -> str:
    return "/".join([start, *(quote(part, safe="") for part in parts)])


async def test_a_message_shows_its_results_by_group(wire: Wire) -> None:
    queue, lane = wire.name(), wire.name("lane")
    first, _ = await wire.push(queue, 1, 2, ids=["one", "two"], partition=lane)
    for group, value in (("billing", {"invoice": 7}), ("mail", None)):
        await wire.ack((await wire.pop(queue, consumerGroup=group))[:1], result=value)
    shown = (await wire.get("/api/v1/messages", first["partition_id"], "one")).ok()
    assert {group: one["result"] for group, one in shown["results"].items()} == {
        "billing": {"invoice": 7},
        "mail": None,
    }
    assert shown["results"]["billing"]["createdAt"].startswith("20")
    assert (await wire.get("/api/v1/messages", first["partition_id"], "two")).ok()["results"] == {}
    found = await result(wire, first, consumerGroup="billing")
    assert found == await result_by_name(wire, queue, "one", partition=lane, consumerGroup="billing")
    assert found == {
        "partitionId": first["partition_id"],
        "transactionId": "one",
        "consumerGroup": "billing",
        "status": "completed",
        "result": {"invoice": 7},
        "error": None,
        "deadLetterId": None,
        "replayedAs": None,
        "progress": None,
    }
    assert (await result_by_name(wire, queue, "two", partition=lane, consumerGroup="mail"))["status"] == "processing"


async def test_the_end_of_a_message_is_told_also_without_a_result(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=0)
    done, bad, waiting = await wire.push(queue, 1, 2, 3, ids=["done", "bad", "waiting"])
    assert (await result(wire, done))["status"] == "pending", "nobody has read it"
    popped = await wire.pop(queue, batch=2)
    await wire.ack(popped[:1])
    await wire.ack(popped[1:], "failed", error="no such customer")
    assert [(await result(wire, done))[name] for name in ("status", "result")] == ["completed", None]
    assert [(await result(wire, bad))[name] for name in ("status", "error")] == ["dead_letter", "no such customer"]
    assert (await result(wire, waiting, wait="true", timeout=20))["status"] == "pending"


async def test_a_wait_ends_with_the_ack_whoever_else_acks(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a wake-up, the next check would come too late."""
    monkeypatch.setattr(results, "LOOK_SECONDS", 3600.0)
    queue = wire.name()
    await wire.push(queue, 1, 2, ids=["one", "two"], partition="a")
    waits = [
        asyncio.create_task(result_by_name(wire, queue, id, partition="a", wait="true", timeout=60_000))
        for id in ("one", "two", "two")
    ]
    await until(lambda: waiting(wire) == 3)
    popped = await wire.pop(queue)
    await wire.ack(popped[:1], result="first")
    assert (await waits[0])["result"] == "first"
    assert not waits[1].done()
    await wire.ack(popped[1:], result="second")
    assert [(await wait)["result"] for wait in waits[1:]] == ["second", "second"]
    assert waiting(wire) == 0


async def test_a_wait_begins_before_the_message_is_stored(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue)
    wait = asyncio.create_task(result_by_name(wire, queue, "soon", wait="true", timeout=60_000))
    await until(lambda: waiting(wire) == 1)
    await wire.push(queue, 1, ids=["soon"])
    await wire.ack(await wire.pop(queue), result=[1])
    assert (await wait)["result"] == [1]


async def test_waits_are_among_the_long_polls(narrow: Wire) -> None:  # noqa: F811
    queue = narrow.name()
    await narrow.push(queue, 1, ids=["one"])
    waits = [asyncio.create_task(result_by_name(narrow, queue, "one", wait="true")) for _ in range(2)]
    await until(lambda: waiting(narrow) == 2)
    answer = await narrow.ask("GET", _path("/api/v1/queues", queue, "results", "one"), query={"wait": "true"})
    answer.refused(503, "too_many_polls")
    assert (await result_by_name(narrow, queue, "one"))["status"] == "pending", "who does not wait is answered"
    await narrow.ack(await narrow.pop(queue), result=1)
    assert [(await wait)["result"] for wait in waits] == [1, 1]


async def test_a_broker_that_stops_answers_who_waits(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1, ids=["one"])
    wait = asyncio.create_task(result_by_name(wire, queue, "one", wait="true"))
    await until(lambda: waiting(wire) == 1)
    await wire.app.broker.stop()
    assert (await wait)["status"] == "pending"


async def test_what_is_not_there_is_said(wire: Wire) -> None:
    queue = wire.name()
    [pushed] = await wire.push(queue, 1, ids=["one"])
    for path in (
        _path("/api/v1/queues", wire.name("nobody"), "results", "one"),
        _path("/api/v1/queues", queue, "results", "two"),
        _path("/api/v1/messages", pushed["partition_id"], "two", "result"),
        _path("/api/v1/messages", "0-999999999", "one", "result"),
        _path("/api/v1/messages", "nonsense", "one", "result"),
    ):
        (await wire.get(path)).refused(404, "not_found")
    (await wire.get(_path("/api/v1/queues", queue, "results", "one"), timeout=-1)).refused(400)
    (await wire.get(_path("/api/v1/queues", queue, "results", "one"), consumer_group="x")).refused(400)


async def test_a_wait_ends_when_another_broker_acks(postgres18: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint of the other broker wakes the request. The lease continues, so nothing else would."""
    backend = PostgresBackend(postgres18, Configuration("http", postgres=18))
    await backend.make()
    monkeypatch.setattr(results, "LOOK_SECONDS", 3600.0)
    async with serving(await backend.open(None)) as one, serving(await backend.open(None)) as other:
        queue = one.name()
        await one.push(queue, 1, 2, ids=["one", "two"])
        wait = asyncio.create_task(result_by_name(one, queue, "one", wait="true", timeout=60_000))
        await until(lambda: waiting(one) == 1)
        await other.ack((await other.pop(queue))[:1], result="there")
        assert (await wait)["result"] == "there"
