"""Pushes that a busy broker accepts and stores later: a handle, or a wait; also for the blocking client."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fairlane import Client, InvalidRequest, NotFound, OperationFailed, Unavailable, blocking
from fairlane.client import QueuedPush
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome
from fairlane.wire.push import Item
from tests.cli.conftest import Command
from tests.client.rogue import Answer, Rogue

ID = str(uuid4())
LOOK = f"/api/v1/operations/{ID}"


def kept(*ids: str, **more: Any) -> Answer:
    """Return the answer of a busy broker to a push."""
    element = {
        "status": "buffered",
        "operationId": ID,
        "queuePosition": 12,
        "reason": "system_busy",
        "estimatedWait": 3.2,
        "durability": "store",
        **more,
    }
    return Answer(202, [{"index": index, "transaction_id": id, **element} for index, id in enumerate(ids)])  # type: ignore[arg-type]


def operation(status: str, *items: dict[str, Any], error: str | None = None) -> Answer:
    body = {
        "id": ID,
        "operation_type": "PUSH",
        "status": status,
        "created_at": "2030-01-01T00:00:00.000000Z",
        "error_message": error,
        "result": {"items": list(items)} if items else None,
    }
    return Answer(200, body)


def stored(id: str, status: str = "queued") -> dict[str, Any]:
    return {"transaction_id": id, "status": status, "message_id": f"m-{id}", "position": 7}


async def test_a_push_that_is_an_operation_returns_a_handle_at_once(rogue: Rogue, queue: str) -> None:
    rogue.do(kept("a"))
    async with Client(rogue.url) as client:
        outcome = await client.push(queue, 1, transaction_id="a")
        assert isinstance(outcome, QueuedPush)
        assert (outcome.status, outcome.operation_id, outcome.queue_position) == ("buffered", ID, 12)
        assert (outcome.estimated_wait, outcome.reason, outcome.durability) == (3.2, "system_busy", "store")
        assert len(rogue.seen) == 1
        rogue.do(operation("pending"), operation("processing"), operation("completed", stored("a")))
        done = await outcome.wait()
    assert (done.status, done.message_id, done.position) == ("queued", "m-a", 7)
    assert len(rogue.requests(LOOK)) == 3


async def test_a_client_that_is_told_to_wait_returns_when_it_is_stored(rogue: Rogue, queue: str) -> None:
    rogue.do(kept("a", "b"), operation("pending"), operation("completed", stored("a"), stored("b", "duplicate")))
    items = [PushItem(queue=queue, payload=b"1", transaction_id=id) for id in ("a", "b")]
    async with Client(rogue.url, queued_operation="wait") as client:
        outcomes = await client.push_many(items)
    assert [(one.status, one.message_id) for one in outcomes] == [("queued", "m-a"), ("duplicate", "m-b")]
    assert len(rogue.requests(LOOK)) == 2, "one operation is asked for once, however many items it has"


async def test_an_operation_that_failed_is_an_error(rogue: Rogue, queue: str) -> None:
    rogue.do(kept("a"), operation("failed", error="queue 'x' was deleted"))
    async with Client(rogue.url, queued_operation="wait") as client:
        with pytest.raises(OperationFailed, match="was deleted"):
            await client.push(queue, 1, transaction_id="a")


async def test_a_wait_ends_after_its_time_and_the_message_stays(rogue: Rogue, queue: str) -> None:
    rogue.do(kept("a"), *[operation("pending")] * 20)
    async with Client(rogue.url) as client:
        outcome = await client.push(queue, 1, transaction_id="a")
        assert isinstance(outcome, QueuedPush)
        with pytest.raises(Unavailable, match="is still pending after"):
            await outcome.wait(0.3)


async def test_an_operation_of_another_brokers_journal_may_not_be_known_yet(rogue: Rogue, queue: str) -> None:
    unknown = Answer(404, {"error": "there is no such operation", "code": "not_found"})
    rogue.do(kept("a", durability="journal"), unknown, operation("completed", stored("a")))
    async with Client(rogue.url, queued_operation="wait") as client:
        assert (await client.push(queue, 1, transaction_id="a")).status == "queued"
        rogue.do(kept("b"), unknown)
        with pytest.raises(NotFound):
            await client.push(queue, 1, transaction_id="b")


async def test_an_id_made_for_the_call_is_no_duplicate_of_itself(rogue: Rogue) -> None:
    for given, status in ((None, "queued"), ("x", "duplicate")):
        rogue.do(operation("completed", stored("x", "duplicate")))
        async with Client(rogue.url, queued_operation="wait") as client:
            waiting = PushOutcome("buffered", "x", operation_id=ID, durability="store")
            item = Item(queue="orders", payload=msgspec.Raw(b"1"), transaction_id="x")
            [outcome] = await client._pushes._settled([waiting], [item], [given is None])
        assert outcome.status == status


def test_queued_operation_takes_two_words() -> None:
    with pytest.raises(InvalidRequest, match="'return' or 'wait'"):
        Client("http://127.0.0.1:1", queued_operation="perhaps")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["return", "wait"])
async def test_a_caller_without_a_loop_waits_the_same_way(rogue: Rogue, queue: str, mode: Any) -> None:
    rogue.do(kept("a"), operation("pending"), operation("completed", stored("a")))

    def push() -> str:
        with blocking.Client(rogue.url, queued_operation=mode) as client:
            outcome = client.push(queue, 1, transaction_id="a")
            if mode == "return":
                assert isinstance(outcome, blocking.QueuedPush)
                assert outcome.queue_position == 12
                outcome = outcome.wait()
            return f"{outcome.status} as {outcome.message_id}"

    assert await asyncio.to_thread(push) == "queued as m-a"


async def test_the_command_line_says_where_a_push_waits(rogue: Rogue, queue: str) -> None:
    rogue.do(kept("a"), kept("a"))
    said = await asyncio.to_thread(Command(rogue.url), "push", queue, "1", "--id", "a")
    assert (said.code, said.err) == (0, f"queued, position 12, about 3 s (operation {ID})\n")
    told = await asyncio.to_thread(Command(rogue.url), "push", queue, "1", "--id", "a", "--json")
    assert (told.json["status"], told.json["operationId"]) == ("buffered", ID)
