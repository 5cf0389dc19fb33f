"""The maximum attempts that a push sets for a message, in place of the queue's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlane.model.message import PushItem
from fairlane.model.queue import Queue
from fairlane.model.segment import pack
from fairlane.store.contract.values import DeadFilter, Nack, Stored
from fairlane.store.keyring import Keyring
from tests.conformance.harness import Harness
from tests.conformance.test_unordered import apply_unordered, unordered_ack

LOOKS_LIKE = {"x": 1, "traceId": None, "maxAttempts": 1}
"""A payload with a text that otherwise occurs only in the header of a stored message."""


async def push(
    harness: Harness, queue: Queue, *attempts: int | None, data: Any = 0, trace_id: str | None = None
) -> None:
    """Push one message for each number of attempts, with an id that needs quoting."""
    partition = await harness.partition(queue)
    part = harness.slice(queue, partition, [data] * len(attempts), [f'"é\\{harness.mint()}' for _ in attempts])
    part.fragments = [
        pack(
            harness.mint(),
            id,
            PushItem(queue="", payload=msgspec.json.encode(data), max_attempts=own, trace_id=trace_id),
        )
        for id, own in zip(part.transaction_ids, attempts, strict=True)
    ]
    [stored] = await harness.store.messages.push([part])
    assert isinstance(stored, Stored)


async def dead(harness: Harness, queue: Queue) -> dict[int, int]:
    """Return the attempts of the dead messages, by position."""
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter(), limit=100)
    return {letter.position: letter.attempts for letter in letters}


@pytest.mark.parametrize("trace_id", [None, "0198a3f0-0000-7000-8000-000000000001"])
async def test_a_message_has_as_many_attempts_as_its_push_named(harness: Harness, trace_id: str | None) -> None:
    queue = await harness.queue(retry_limit=2)
    await push(harness, queue, 1, 5, None, trace_id=trace_id)
    for position, attempts in ((0, 1), (1, 5), (2, 3)):
        for attempt in range(1, attempts + 1):
            taken = await harness.pop(queue)
            assert (taken.lane.first, taken.lane.attempts) == (position, attempt - 1)
            acked = await harness.nack(taken, position, upto=position)
            assert acked.dead == (attempt == attempts)
    assert await dead(harness, queue) == {0: 1, 1: 5, 2: 3}


async def test_a_payload_cannot_say_how_many(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=2)
    await push(harness, queue, None, data=LOOKS_LIKE)
    assert not (await harness.nack(await harness.pop(queue))).dead


async def test_attempts_of_leases_that_ran_out_count(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, lease_seconds=5)
    await push(harness, queue, 2)
    for attempt in range(2):
        assert (await harness.pop(queue)).lane.attempts == attempt
        harness.clock.advance(5)
    assert not await harness.pop(queue)
    assert await dead(harness, queue) == {0: 2}


@pytest.mark.parametrize("how", ["block", "park"])
async def test_a_lane_that_such_a_message_stops_can_be_resumed(harness: Harness, how: str) -> None:
    queue = await harness.queue(retry_limit=9, on_exhausted=how)
    await push(harness, queue, 1)
    taken = await harness.pop(queue)
    await harness.nack(taken)
    assert not await harness.pop(queue)
    await harness.store.groups.repair_wakes(None, limit=1000)
    assert not await harness.pop(queue), "it is stopped for good reason"
    assert await harness.store.pauses.resume_lanes(taken.group.id) == 1
    assert (await harness.pop(queue)).positions == [0]


async def test_a_message_of_an_unordered_queue_has_its_own_too(harness: Harness) -> None:
    queue = await harness.queue(ordering="unordered", retry_limit=1, lease_seconds=5)
    await push(harness, queue, 1, 3, None, 2)
    taken = await harness.pop(queue)
    nacks = [Nack(position, charge=True, error="x") for position in range(3)]
    acked = await apply_unordered(harness, unordered_ack(taken, nacks=nacks))
    assert acked.died == [0]
    harness.clock.advance(5)  # the last attempt is charged for the expired lease
    again = await harness.pop(queue)
    while again and again.positions:
        left = [position for position in again.positions if position != 3]
        acked = await apply_unordered(
            harness, unordered_ack(again, nacks=[Nack(position, charge=True, error="x") for position in left])
        )
        harness.clock.advance(5)
        again = await harness.pop(queue)
    assert await dead(harness, queue) == {0: 1, 1: 3, 2: 2, 3: 2}


async def test_a_sealed_message_has_its_own_too(harness: Harness) -> None:
    await harness.store.codec.set_keyring(Keyring((bytes(range(32)),)))
    queue = await harness.queue(retry_limit=3, encryption_enabled=True)
    await push(harness, queue, 1, data="x" * 3000)
    assert (await harness.nack(await harness.pop(queue))).dead
