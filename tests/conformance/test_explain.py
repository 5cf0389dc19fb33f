"""Explain: every reason that keeps a lane from the next pop is named, with the time when it ends."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fairlane.broker.admission import Limit
from fairlane.broker.broker import Broker
from fairlane.broker.lane_diagnosis import explain
from fairlane.errors import NotFound
from fairlane.model.queue import Paused
from tests.conformance.harness import Harness
from tests.conformance.operation_driver import enqueue, no_operations, work_off
from tests.until import until


async def explained(broker: Broker, queue: str, group: str | None = None) -> tuple[str, int | None]:
    found = await (broker.pauses.explain(queue, "p") if group is None else broker.pauses.explain(queue, "p", group))
    assert found.sentence.endswith(".")
    return found.reason, found.until


async def test_a_lane_is_explained_from_its_birth_to_its_end(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("orders")
    await broker.queues.configure(queue, retry_limit=2, retry_delay_ms=1000, lease_seconds=10)
    await broker.push(queue, 0, partition="p")
    taken = await broker.pop(queue)
    ends_at = harness.clock() + 10_000_000
    assert await explained(broker, queue) == ("leased", ends_at)
    await broker.nack(taken, error="the database said no")
    found = await broker.pauses.explain(queue, "p")
    assert (found.reason, found.until) == ("backing_off", harness.clock() + 1_000_000)
    assert "attempt 1 of 3" in found.sentence
    assert "the database said no" in found.sentence
    harness.clock.advance(1)
    assert await explained(broker, queue) == ("ready", None)
    await broker.ack(await broker.pop(queue), "retry", delay_ms=5000)
    harness.clock.advance(5)
    await broker.ack(await broker.pop(queue))
    assert await explained(broker, queue) == ("empty", None)


async def test_a_message_given_back_for_a_while_is_asleep(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("orders")
    await broker.push(queue, 0, partition="p")
    await broker.ack(await broker.pop(queue), "retry", delay_ms=5000)
    assert await explained(broker, queue) == ("asleep", harness.clock() + 5_000_000)


@pytest.mark.parametrize(("option", "reason"), [("delay_seconds", "delayed"), ("window_seconds", "windowed")])
async def test_what_the_options_keep_back_is_explained(harness: Harness, option: str, reason: str) -> None:
    broker, queue = harness.broker, harness.name("orders")
    await broker.queues.configure(queue, **cast("dict[str, Any]", {option: 7}))
    await broker.push(queue, 0, partition="p")
    at = harness.clock()
    harness.clock.advance(1)
    assert not await broker.pop(queue)
    assert await explained(broker, queue) == (reason, at + 7_000_000)
    harness.clock.advance(6)
    assert await explained(broker, queue) == ("ready", None)


async def test_pauses_are_explained(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("orders")
    await broker.push(queue, 0, partition="p")
    assert not await broker.pop(queue, group="g", partition="other")
    for scope in ({}, {"group": "g"}, {"partition": "p"}):
        await broker.pauses.pause(queue, **scope)
        assert await explained(broker, queue, "g") == ("paused", None)
        assert await broker.pauses.resume(queue, **scope)
        assert not await broker.pauses.resume(queue, **scope)
    await broker.pauses.pause(queue, group="g", partition="p")
    assert await explained(broker, queue, "g") == ("parked", None)
    assert await broker.pauses.resume(queue, group="g", partition="p")
    assert await explained(broker, queue, "g") == ("ready", None)


@pytest.mark.parametrize(("policy", "reason"), [("block", "blocked"), ("park", "parked")])
async def test_a_lane_that_poison_stopped_is_explained(harness: Harness, policy: str, reason: str) -> None:
    broker, queue = harness.broker, harness.name("orders")
    await broker.queues.configure(queue, retry_limit=0, on_exhausted=policy)
    await broker.push(queue, 0, partition="p")
    await broker.nack(await broker.pop(queue), error="poison")
    found = await broker.pauses.explain(queue, "p")
    assert (found.reason, found.until, found.waiting) == (reason, None, 1)
    assert "failed once, with 'poison'" in found.sentence
    assert await broker.pauses.resume_lanes(queue) == 1
    assert [delivery.data for delivery in await broker.pop(queue)] == [0]


async def test_what_is_not_there_cannot_be_explained(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("orders")
    await broker.push(queue, 0, partition="p")
    for verb in (
        broker.pauses.explain(queue, "p"),
        broker.pauses.explain("nobody's", "p"),
        broker.pauses.explain(queue, "q", "g"),
    ):
        with pytest.raises(NotFound):
            await verb
    with pytest.raises(NotFound):
        await broker.pauses.pause(queue, group="nobody")


async def test_pushes_that_wait_as_operations_are_explained(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await no_operations(harness)
    await enqueue(harness, queue, [1], partition="p")
    # On a store without a broker that would apply it.
    [lane] = await harness.store.groups.lanes(group.id)
    found = explain(lane, queue, Paused(None, {}, {}), group=group.name, now=harness.clock())
    assert (found.reason, found.until, found.operations) == ("operations_pending", None, 1)
    assert "1 push waits" in found.sentence
    await work_off(harness, queue)
    [lane] = await harness.store.groups.lanes(group.id)
    found = explain(lane, queue, Paused(None, {}, {}), group=group.name, now=harness.clock())
    assert (found.reason, found.operations) == ("ready", 0)


async def test_acks_that_wait_as_operations_are_explained(harness: Harness) -> None:
    """The consumer has already acked, so waiting for the consumer would be the wrong advice."""
    broker, queue = harness.broker, harness.name("orders")
    await no_operations(harness)
    await broker._engine.operation_drain.stop()
    await broker.push(queue, 0, partition="p")
    batch = await broker.pop(queue)
    assert (await broker.pauses.explain(queue, "p")).acks == 0
    broker._engine.admission.limits = {"ack": Limit(-1.0, 10)}
    await broker.ack(batch)
    found = await broker.pauses.explain(queue, "p")
    assert (found.reason, found.acks) == ("leased", 1)
    assert found.sentence.endswith("1 ack of it is accepted and waits to be applied.")
    broker._engine.operation_drain.start()

    async def applied() -> bool:
        return (await broker.pauses.explain(queue, "p")).reason == "empty"

    await until(applied)
    assert (await broker.pauses.explain(queue, "p")).acks == 0


async def test_an_unordered_lane_tells_who_holds_it_and_when_it_tries_again(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("jobs")
    await broker.queues.configure(queue, ordering="unordered", retry_delay_ms=4000, lease_seconds=10)
    await broker.push(queue, 0, partition="p")
    taken = await broker.pop(queue)
    assert await explained(broker, queue) == ("leased", harness.clock() + 10_000_000)
    await broker.nack(taken, error="the database said no")
    found = await broker.pauses.explain(queue, "p")
    assert (found.reason, found.until) == ("backing_off", harness.clock() + 4_000_000)
    assert "attempt 1 of 4" in found.sentence
    assert found.next_try_at == harness.clock() + 4_000_000
    harness.clock.advance(4)
    assert await explained(broker, queue) == ("ready", None)


async def test_attempts_are_those_of_the_message_itself(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("orders")
    await broker.queues.configure(queue, retry_limit=2, retry_delay_ms=1000)
    pushed = await broker.push(queue, 0, partition="p", max_attempts=7)
    taken = await broker.pop(queue)
    await broker.nack(taken, error="no")
    found = await broker.pauses.explain(queue, "p")
    assert found.attempts_max == 7
    assert "attempt 1 of 7" in found.sentence
    assert (await broker.messages.get(str(taken[0].partition_id), pushed.transaction_id)).max_attempts == 7
    other = await broker.push(queue, 0, partition="q")
    assert (await broker.messages.get(str(other.partition), other.transaction_id)).max_attempts == 3
