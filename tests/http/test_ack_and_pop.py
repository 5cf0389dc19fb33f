"""Ack and pop in one request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from fairlane import Client
from fairlane.client import Batch, Batched
from fairlane.store.opening import open_journal
from tests.conformance.backends import Backend
from tests.http.test_narrow_keys import Narrow, narrow
from tests.http.wire import Answer, Wire, serving
from tests.lost_answers import AWAY, fails
from tests.until import until

__all__ = ["narrow"]
PATH = "/api/v1/ack-and-pop/queue"


def acks(messages: list[Any], **more: Any) -> dict[str, Any]:
    names = ("transactionId", "partitionId", "leaseId")
    return {"acknowledgments": [{**{name: message[name] for name in names}, **more} for message in messages]}


async def ask(wire: Wire, queue: str, body: Any, *partition: str, **query: Any) -> Answer:
    parts = (queue, "partition", *partition) if partition else (queue,)
    return await wire.ask("POST", PATH, *parts, query=query, body=body)


async def committed(wire: Wire, queue: str) -> int:
    [lane] = await wire.app.broker.groups.lanes(queue, "__QUEUE_MODE__")
    return lane.committed


async def test_the_next_messages_come_with_the_answer_to_the_acks(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0, 1, 2)
    [first] = await wire.pop(queue, batch=1)
    answer = (await ask(wire, queue, acks([first]), batch=1)).ok()
    assert answer["success"]
    [acked] = answer["acknowledgments"]
    assert (acked["transactionId"], acked["success"], acked["leaseReleased"]) == (first["transactionId"], True, True)
    assert (acked["queueName"], acked["partitionName"]) == (queue, "Default")
    [second] = answer["messages"]
    assert (second["data"], second["leaseId"]) == (1, answer["leaseId"])
    answer = (await ask(wire, queue, acks([second]), byLane="true", batch=5)).ok()
    assert [one["success"] for one in answer["acknowledgments"]] == [True]
    [lane] = answer["lanes"]
    assert (lane["first"], [one["transactionId"] for one in lane["messages"]][1:]) == (2, [])
    third = {"transactionId": "", "partitionId": lane["partitionId"], "leaseId": answer["leaseId"]}
    body = {"acknowledgments": [{**third, "position": 2, "count": 1}]}
    answer = (await ask(wire, queue, body, "Default")).ok()
    assert (answer["messages"], answer["leaseId"]) == ([], "")
    assert [one["success"] for one in answer["acknowledgments"]] == [True]


async def test_a_group_is_given_once(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0, 1)
    [first] = await wire.pop(queue, batch=1, consumerGroup="billing")
    other = {**acks([first]), "consumerGroup": "audit"}
    refused = await ask(wire, queue, other, consumerGroup="billing")
    assert "give it once" in refused.refused(400, "invalid_request")["error"]
    answer = (await ask(wire, queue, acks([first]), consumerGroup="billing")).ok()
    assert [one["success"] for one in answer["acknowledgments"]] == [True]
    assert [one["data"] for one in answer["messages"]] == [1]


async def test_a_lost_lease_is_told_beside_the_next_messages(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0)
    [first] = await wire.pop(queue)
    (await wire.post("/api/v1/lease", first["leaseId"], "release")).ok()
    answer = (await ask(wire, queue, acks([first]))).ok()
    assert [one["code"] for one in answer["acknowledgments"]] == ["lease_lost"]
    assert [one["data"] for one in answer["messages"]] == [0]


async def test_the_acks_are_applied_while_the_poll_waits(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0)
    [first] = await wire.pop(queue)
    poll = asyncio.create_task(ask(wire, queue, acks([first]), wait="true", timeout=60_000))

    async def acked() -> bool:
        return await committed(wire, queue) == 1

    await until(acked)
    assert not poll.done()
    await wire.push(queue, 1)
    answer = (await poll).ok()
    assert [one["success"] for one in answer["acknowledgments"]] == [True]
    assert [one["data"] for one in answer["messages"]] == [1]


async def test_a_client_that_vanishes_while_it_waits_has_acked_and_burns_no_lease(wire: Wire) -> None:
    queue = "vanishing"
    await wire.push(queue, 0)
    [first] = await wire.pop(queue)
    url = URL(f"{wire.base}{PATH}/{queue}?wait=true&timeout=60000", encoded=True)
    waiters = wire.app.broker._engine.waiters
    async with aiohttp.ClientSession() as session:
        poll = asyncio.create_task(session.post(url, json=acks([first])))
        await until(lambda: len(waiters))
        poll.cancel()
    await until(lambda: not len(waiters))
    await wire.push(queue, 1)
    [second] = await wire.pop(queue)
    assert (second["data"], second["retryCount"]) == (1, 0)


async def test_messages_whose_answer_cannot_be_built_are_given_back(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 0, 1)
    [first] = await wire.pop(queue, batch=1)
    body = acks([first])
    body["acknowledgments"].append({"transactionId": "x", "partitionId": "0-99999"})
    fails(wire.app.broker._engine.store.queues, "partition", None, AWAY)
    (await ask(wire, queue, body)).refused(503, "store_unavailable")
    [second] = await wire.pop(queue, wait="true", timeout=10_000)
    assert (second["data"], second["retryCount"]) == (1, 0)


async def test_a_caller_needs_the_scope_for_the_acks_and_for_the_pop(narrow: Narrow) -> None:
    mine, theirs = await narrow.message(narrow.mine), await narrow.message(narrow.theirs)
    path = f"{PATH}/{narrow.mine}"
    refused = await narrow.ask("POST", path, acks([mine, theirs]))
    assert f"pop:{narrow.theirs}" in refused.refused(403, "forbidden")["error"]
    (await narrow.ask("POST", f"{PATH}/{narrow.theirs}", acks([mine]))).refused(403, "forbidden")
    (await narrow.ask("POST", f"{PATH}/{narrow.theirs}/partition/Default", acks([]))).refused(403, "forbidden")
    answer = (await narrow.ask("POST", path, acks([mine]))).ok()
    assert [(one["success"], one.get("noop", False)) for one in answer["acknowledgments"]] == [(True, False)]
    answer = (await narrow.ask("POST", f"{PATH}/{narrow.theirs}", acks([theirs]), admin=True)).ok()
    assert [(one["success"], one.get("noop", False)) for one in answer["acknowledgments"]] == [(True, False)]


@pytest.mark.parametrize("body", [{}, {"acknowledgments": [{"transactionId": "x", "partitionId": "no"}]}, []])
async def test_a_body_that_makes_no_sense_is_refused_and_pops_nothing(wire: Wire, body: Any) -> None:
    queue = wire.name()
    await wire.push(queue, 0)
    (await ask(wire, queue, body)).refused(400, "invalid_request")
    assert len(await wire.pop(queue)) == 1


async def test_while_the_store_is_away_the_acks_wait_in_the_journal(backend: Backend, tmp_path: Path) -> None:
    await backend.make()
    journal = await open_journal(str(tmp_path / "journal"), 10**9, "test")
    async with serving(await backend.open(None), journal=journal) as wire:
        queue = wire.name()
        await wire.push(queue, 0, 1)
        [first] = await wire.pop(queue, batch=1)
        engine = wire.app.broker._engine
        for verb in ("ack_and_pop", "ack"):
            fails(engine.store.messages, verb, AWAY)
        fails(engine.store, "check_health", *[AWAY] * 1000)
        answer = (await ask(wire, queue, acks([first]))).ok(202)
        [acked] = answer["acknowledgments"]
        assert (acked["status"], acked["durability"], acked["reason"]) == ("buffered", "journal", "store_unavailable")
        assert (answer["messages"], answer["problem"]["code"]) == ([], "store_unavailable")
        engine.write_router.health.mark_available()

        async def drained() -> bool:
            return await committed(wire, queue) == 1

        await until(drained)
        assert [one["data"] for one in await wire.pop(queue)] == [1]


class Counted:
    """The database of the verbs of messages. It counts their statements, which are transactions on SQLite."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.statements = 0

    def write(self, *arguments: Any) -> Any:
        self.statements += 1
        return self._database.write(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_batch_of_a_consumer_takes_one_statement(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    """Without it, each batch took a statement for its ack and one for its pop."""
    queue, batches = wire.name(), 8
    await wire.app.broker.queues.configure(queue, ordering=ordering)
    await wire.push(queue, *range(10 * batches))
    seen: list[int] = []

    async def handle(batch: Batch[int]) -> None:
        seen.extend(message.data for message in batch)

    async with Client(wire.base) as client:
        first = await client.pop(queue, batch=10)
        await client.release(first)
        messages: Any = wire.app.broker._engine.store.messages
        counted = Counted(messages._database)
        for user in (messages, getattr(messages, "_popper", messages)):
            monkeypatch.setattr(user, "_database", counted)
        await client.consume(queue, Batched(handle), type=int, batch=10, limit=10 * batches)
    assert seen == list(range(10 * batches))
    assert counted.statements - batches in (1, 2), "one for each batch, the last ack, and perhaps a second for the pop"
