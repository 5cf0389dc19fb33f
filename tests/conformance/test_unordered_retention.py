"""Retention of unordered queues: leased messages stay, and every message is counted once."""

from __future__ import annotations

from fairlane.store.contract.values import Nack
from tests.conformance.harness import Harness
from tests.conformance.test_retention import run, total
from tests.conformance.test_unordered import apply_unordered, drain, finish, unordered, unordered_ack


async def test_a_claimed_message_does_not_go_and_its_holder_may_finish_it(harness: Harness) -> None:
    queue = await unordered(harness, retention_enabled=True, retention_seconds=60, lease_seconds=600, max_size=10)
    await harness.push(queue, [1, 2, 3, 4, 5])
    first = await harness.pop(queue, batch=1)
    second = await harness.pop(queue, batch=2)
    await finish(harness, first)
    harness.clock.advance(120)
    assert total(await run(harness), queue, "retention") == 1
    assert await harness.store.queues.depth(queue.id) == 4
    await finish(harness, second)
    harness.clock.advance(120)
    assert total(await run(harness), queue, "retention") == 4
    assert await harness.store.queues.depth(queue.id) == 0
    assert (await harness.lane(first.group)).expired == 2
    assert not await harness.pop(queue)


async def test_a_claim_that_ran_out_protects_nothing(harness: Harness) -> None:
    queue = await unordered(harness, retention_enabled=True, retention_seconds=60, lease_seconds=10, max_size=10)
    await harness.push(queue, [1, 2, 3])
    taken = await harness.pop(queue, batch=2)
    harness.clock.advance(120)
    assert total(await run(harness), queue, "retention") == 3
    assert await harness.store.queues.depth(queue.id) == 0
    assert (await harness.lane(taken.group)).expired == 3
    await harness.push(queue, [4])
    assert await drain(harness, queue) == [4]


async def test_of_a_claim_that_is_half_acked_only_the_open_half_expires(harness: Harness) -> None:
    queue = await unordered(harness, retention_enabled=True, retention_seconds=60, lease_seconds=10, max_size=10)
    await harness.push(queue, [1, 2, 3, 4])
    taken = await harness.pop(queue, batch=4)
    await apply_unordered(harness, unordered_ack(taken, 1, 3))
    harness.clock.advance(120)
    assert total(await run(harness), queue, "retention") == 4
    assert await harness.store.queues.depth(queue.id) == 0
    assert (await harness.lane(taken.group)).expired == 2


async def test_the_cursor_passes_what_was_finished_behind_a_message_that_goes(harness: Harness) -> None:
    """No later pop moves the cursor, so finished messages behind the deleted one would stay forever."""
    rules = {"retention_seconds": 60, "completed_retention_seconds": 30}
    queue = await unordered(harness, retention_enabled=True, lease_seconds=1000, **rules)
    await harness.push(queue, [1])
    first = await harness.pop(queue)
    await apply_unordered(harness, unordered_ack(first, nacks=[Nack(0, charge=True, error="no", delay_ms=900_000)]))
    harness.clock.advance(20)
    await harness.push(queue, [2, 3])
    await finish(harness, await harness.pop(queue, batch=2))
    assert (await harness.lane(first.group)).committed == 0
    harness.clock.advance(45)
    expired = await run(harness)
    assert total(expired, queue, "retention") == 1
    assert (await harness.lane(first.group)).committed == 3
    harness.clock.advance(60)
    expired += await run(harness)
    assert total(expired, queue, "completed") == 2
