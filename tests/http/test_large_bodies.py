"""Large bodies block the event loop only briefly.

Bodies over a limit are refused before they are decoded, and concurrent large bodies are decoded one after another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlane.broker import specs
from fairlane.errors import InvalidRequest
from fairlane.http.request_body import decode
from fairlane.http.routes import pushes
from fairlane.http.server import Request
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.wire.ack import AckBatch
from fairlane.wire.push import PushBody
from fairlane.wire.sources import SourcePage
from fairlane.wire.transactions import TransactionBody
from tests.conformance.backends import SqliteBackend
from tests.http.wire import Wire, serving

ITEM = {"queue": "q", "payload": 1}
ACK = {"transactionId": "x", "partitionId": "0-1"}


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    backend = SqliteBackend(tmp_path / "queue.db")
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        yield wire


@pytest.mark.parametrize(
    ("type", "field", "element"),
    [
        (PushBody, "items", ITEM),
        (AckBatch, "acknowledgments", ACK),
        (TransactionBody, "operations", {"type": "push", **ITEM}),
        (SourcePage, "records", {"key": "k", "hash": "h", "data": 1}),
    ],
)
def test_a_list_that_is_too_long_is_counted_and_not_decoded(type: Any, field: str, element: Any) -> None:
    check_counted(type, field, element)


def check_counted(type: Any, field: str, element: Any) -> None:
    # The last element is invalid. Decoding the list would report that error instead of the length.
    body = msgspec.json.encode({field: [*[element] * 2 * BATCH_ITEMS_MAX, {**element, "unknown": 1}]})
    with pytest.raises(InvalidRequest, match=f"{field} has 20001 elements, and may have"):
        decode(body, type)
    with pytest.raises(InvalidRequest, match="does not fit"):
        decode(msgspec.json.encode({field: [element, 1]}), type)


@pytest.mark.parametrize("nested", [{"a": [{}] * 2 * BATCH_ITEMS_MAX}, [{"queue": "q"}] * 2 * BATCH_ITEMS_MAX])
async def test_what_is_in_a_payload_does_not_count(wire: Wire, nested: Any) -> None:
    assert [one["status"] for one in await wire.push("orders", nested, nested)] == ["queued", "queued"]


async def test_a_push_of_too_many_items_is_refused_before_they_are_decoded(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(body: bytes) -> Any:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(pushes, "_decode", never)
    monkeypatch.setattr(pushes, "_decode_uniform", never)
    refused = await wire.post("/api/v1/push", body={"items": [ITEM] * 2 * BATCH_ITEMS_MAX})
    assert "items has 20000 elements" in refused.refused(400)["error"]


async def test_large_bodies_that_come_at_once_leave_turns_to_others(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, turn, decoded_at, body = asyncio.get_running_loop(), 0, [], b'{"items":[{"queue":"q","payload":1}'
    # The decoder that is called depends on the specs that other tests applied at the shared broker.
    decoders = {name: getattr(pushes, name) for name in ("_decode_uniform", "_decode")}

    def tick() -> None:
        nonlocal turn
        turn += 1
        ticking[0] = loop.call_soon(tick)

    def decode(body: bytes, *, by: str) -> Any:
        decoded_at.append(turn)
        return decoders[by](body)

    for name in decoders:
        monkeypatch.setattr(pushes, name, partial(decode, by=name))
    ticking = [loop.call_soon(tick)]
    app, large = wire.app, body + b" " * 2**21 + b"]}"
    requests = [Request("POST", b"/api/v1/push", {b"host": b"localhost"}, large, "127.0.0.1") for _ in range(8)]
    for request in requests:
        app.on_headers(request, has_body=True)
    answers = await asyncio.gather(*(app.handle(request) for request in requests))
    ticking[0].cancel()
    assert [answer.status for answer in answers] == [201] * 8
    assert len(set(decoded_at)) == len(requests), "each in a turn of its own"


async def test_a_spec_is_planned_beside_the_loop(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    real = vars(specs)["plan"]

    def plan(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*arguments, **options)

    monkeypatch.setattr(specs, "plan", plan)
    spec = {"app": "shop", "version": 1, "queues": {"orders": {"options": {}}}}
    (await wire.post("/api/v1/spec/plan", body={"spec": spec})).ok()
    assert threads
    assert threading.main_thread() not in threads
