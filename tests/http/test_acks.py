"""Acks over HTTP: one message, or many."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.wire import Wire


async def popped(wire: Wire, count: int) -> tuple[str, list[Any]]:
    queue = wire.name()
    await wire.push(queue, *range(count))
    return queue, await wire.pop(queue)


async def single(wire: Wire, message: Any, **more: Any) -> Any:
    body = {key: message[key] for key in ("transactionId", "partitionId", "leaseId")} | more
    [element] = (await wire.post("/api/v1/ack", body=body)).ok()
    return element


async def left(wire: Wire, queue: str, lease: str) -> list[Any]:
    """What comes again when the lease is given back."""
    (await wire.post("/api/v1/lease", lease, "release")).ok()
    found = []
    while messages := await wire.pop(queue):
        found += [message["data"] for message in messages]
        await wire.ack(messages)
    return found


@pytest.mark.parametrize("cumulative", [None, True, False])
async def test_a_single_ack_on_the_wire_finishes_what_is_before_it_unless_told_otherwise(
    wire: Wire, cumulative: bool | None
) -> None:
    queue, messages = await popped(wire, 4)
    more = {} if cumulative is None else {"cumulative": cumulative}
    assert (await single(wire, messages[2], **more))["success"]
    expected = [0, 1, 3] if cumulative is False else [3]
    assert await left(wire, queue, messages[0]["leaseId"]) == expected


async def test_a_batch_of_acks_finishes_what_it_names(wire: Wire) -> None:
    queue, messages = await popped(wire, 4)
    assert all(element["success"] for element in await wire.ack([messages[0], messages[2]]))
    assert await left(wire, queue, messages[0]["leaseId"]) == [1, 3]


async def test_an_item_of_a_batch_may_speak_for_those_before_it(wire: Wire) -> None:
    queue, messages = await popped(wire, 4)
    await wire.ack([messages[2]], cumulative=True)
    assert await left(wire, queue, messages[0]["leaseId"]) == [3]


async def test_an_ack_without_a_lease_on_the_wire_finishes_its_message_alone(wire: Wire) -> None:
    queue, messages = await popped(wire, 3)
    [waiting] = await wire.push(queue, "waiting")
    assert (await single(wire, messages[1], leaseId=None))["success"]
    other = {**messages[0], "transactionId": waiting["transaction_id"], "leaseId": None}
    refused = await single(wire, other)
    assert (refused["success"], refused["code"]) == (False, "not_delivered")
    assert "handed out" in refused["error"]
    assert await left(wire, queue, messages[0]["leaseId"]) == [0, 2, "waiting"]
