"""Long polls: parked without a connection, woken at once, and harmless when the caller disconnects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.pop import Popper
from fairlane.broker.pop_target import PopTargets
from fairlane.errors import ShuttingDown
from fairlane.model.batch import Batch
from fairlane.model.group import Seek, Subscription
from fairlane.model.lease import PopRequest
from fairlane.model.names import DEFAULT_TENANT
from tests.conformance.backends import Row
from tests.conformance.harness import Harness
from tests.until import until

# A poll that times out returns nothing, because it only pops when it is woken.
LONG = 20.0

pytestmark = pytest.mark.usefixtures("only_when_told")

Wake = Callable[[Broker, str, Batch[Any]], Awaitable[object]]


async def ack_one_of_two(broker: Broker, queue: str, batch: Batch[Any]) -> object:
    return await broker.ack(batch)


async def nack(broker: Broker, queue: str, batch: Batch[Any]) -> object:
    return await broker.nack(batch)


async def retry(broker: Broker, queue: str, batch: Batch[Any]) -> object:
    return await broker.ack(batch, "retry")


async def release(broker: Broker, queue: str, batch: Batch[Any]) -> object:
    return await broker.release(batch.lease)


async def seek(broker: Broker, queue: str, batch: Batch[Any]) -> object:
    return await broker.groups.seek(queue, batch[0].group, Seek("beginning"))


async def push(broker: Broker, queue: str, batch: Batch[Any]) -> object:
    return await broker.push(queue, "other lane", partition="other")


async def transact(broker: Broker, queue: str, batch: Batch[Any]) -> object:
    async with broker.transaction() as transaction:
        transaction.push(queue, "other lane", partition="other")
    return transaction.outcomes


WAKES: list[Wake] = [ack_one_of_two, nack, retry, release, seek, push, transact]


async def parked(broker: Broker, queue: str) -> None:
    """Wait until a poll of the queue has popped once and is parked."""

    def waits() -> bool:
        return len(broker._engine.waiters) > 0

    await until(waits)
    # It parks before it pops. The first pop of a connection takes a while.
    await until(lambda: not broker._engine.popper.pending)


@pytest.mark.parametrize("who", ["here", "elsewhere"])
@pytest.mark.parametrize("wake", WAKES, ids=lambda wake: wake.__name__)
async def test_a_parked_poll_is_woken_at_once_by_what_makes_a_lane_ready(
    harness: Harness, wake: Wake, who: str
) -> None:
    """The lane becomes ready at the broker of the poll, or at another one."""
    waker = harness.broker if who == "here" else await harness.second_broker()
    queue = harness.name("orders")
    await waker.push(queue, 1)
    await waker.push(queue, 2)
    batch = await waker.pop(queue)
    poll = asyncio.create_task(harness.broker.pop(queue, batch=2, wait=LONG))
    await parked(harness.broker, queue)
    assert not poll.done()
    await wake(waker, queue, batch)
    assert len(await poll) >= 1


async def test_a_poll_that_finds_nothing_comes_back_empty_in_time(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.push(queue, 1)
    await harness.broker.pop(queue)
    began = time.monotonic()
    assert len(await harness.broker.pop(queue, wait=0.1)) == 0
    assert len(await harness.broker.pop(harness.name("nowhere"), wait=0.1)) == 0
    assert 0.2 <= time.monotonic() - began < 5


async def test_a_poll_of_a_queue_that_nobody_made_waits_for_its_first_message(harness: Harness) -> None:
    for partition in (None, "p"):
        queue = harness.name("later")
        poll = asyncio.create_task(harness.broker.pop(queue, partition=partition, wait=LONG))
        await parked(harness.broker, queue)
        await harness.broker.push(queue, "first", partition="p")
        assert [one.data for one in await poll] == ["first"]


async def test_a_poll_of_one_partition_is_woken_by_its_message_alone(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.push(queue, 0, partition="mine")
    await harness.broker.pop(queue, partition="mine", auto_ack=True)
    poll = asyncio.create_task(harness.broker.pop(queue, partition="mine", wait=LONG))
    await parked(harness.broker, queue)
    await harness.broker.push(queue, "theirs", partition="other")
    await harness.broker.push(queue, "mine", partition="mine")
    assert [one.data for one in await poll] == ["mine"]


async def test_every_group_is_woken(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)
    polls = [asyncio.create_task(harness.broker.pop(queue, group=name, wait=LONG)) for name in ("a", "b", "c")]
    await until(lambda: len(harness.broker._engine.waiters) >= 3)
    await parked(harness.broker, queue)
    await harness.broker.push(queue, 1)
    for poll in polls:
        assert len(await poll) == 1


async def test_of_many_parked_polls_as_many_are_served_as_there_are_lanes(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)
    polls = [asyncio.create_task(harness.broker.pop(queue, wait=LONG)) for _ in range(50)]
    await until(lambda: len(harness.broker._engine.waiters) >= 50)
    await parked(harness.broker, queue)
    for n in range(50):
        await harness.broker.push(queue, n, partition=str(n))
    batches = await asyncio.gather(*polls)
    assert sorted(one.data for batch in batches for one in batch) == list(range(50))


async def test_parked_polls_hold_up_nobody(harness: Harness) -> None:
    """There are more polls than connections."""
    idle, busy = harness.name("idle"), harness.name("busy")
    await harness.broker.queues.configure(idle)
    polls = [asyncio.create_task(harness.broker.pop(idle, group=f"g{n}", wait=LONG)) for n in range(40)]
    await until(lambda: len(harness.broker._engine.waiters) >= 40)
    await parked(harness.broker, idle)
    async with asyncio.timeout(15):
        await harness.broker.push(busy, 1)
        await harness.broker.ack(await harness.broker.pop(busy))
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)


async def test_a_lane_that_slept_is_delivered_when_it_is_due(harness: Harness) -> None:
    await harness.reopen(own_clock=True)
    queue = harness.name("orders")
    await harness.broker.push(queue, 1)
    await harness.broker.ack(await harness.broker.pop(queue), "failed", delay_ms=150)
    poll = asyncio.create_task(harness.broker.pop(queue, wait=LONG))
    [delivery] = await poll
    assert delivery.failed_attempts == 1


async def test_a_lane_whose_lease_ran_out_is_delivered_then(harness: Harness) -> None:
    await harness.reopen(own_clock=True)
    queue = harness.name("orders")
    await harness.broker.push(queue, 1)
    await harness.broker.pop(queue, lease_seconds=1)
    poll = asyncio.create_task(harness.broker.pop(queue, wait=LONG))
    [delivery] = await poll
    assert delivery.failed_attempts == 1


async def test_a_cancelled_poll_takes_nothing_with_it(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue, retry_limit=0)
    poll = asyncio.create_task(harness.broker.pop(queue, wait=LONG))
    await parked(harness.broker, queue)
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    assert len(harness.broker._engine.waiters) == 0
    await harness.broker.push(queue, 1)
    [delivery] = await harness.broker.pop(queue)
    assert delivery.failed_attempts == 0


async def test_what_was_claimed_for_a_caller_that_is_gone_is_given_back_without_charge(harness: Harness) -> None:
    queue = harness.name("orders")
    made = await harness.broker.queues.configure(queue, retry_limit=0, max_size=10)
    await harness.broker.push(queue, 1)
    await harness.broker.release((await harness.broker.pop(queue)).lease)
    async with harness.hold(Row.queue(made.id)) as arrived:
        pop = asyncio.create_task(harness.broker.pop(queue))
        await arrived(pop)
        pop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pop
    [delivery] = await harness.broker.pop(queue, wait=LONG)
    assert (delivery.data, delivery.failed_attempts) == (1, 0)
    assert await harness.broker.dead_letters.page(queue) == []


async def test_a_poll_that_looks_for_its_queue_while_the_broker_stops_is_answered(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)
    await harness.broker.pop(queue)
    looked, stopped = asyncio.Event(), asyncio.Event()
    find = PopTargets.find

    async def held(targets: PopTargets, request: PopRequest) -> object:
        found = await find(targets, request)
        looked.set()
        await stopped.wait()
        return found

    monkeypatch.setattr(PopTargets, "find", held)
    monkeypatch.setattr(Popper, "_known_target", lambda *_: None)
    poll = asyncio.create_task(harness.broker.pop(queue, wait=LONG))
    await looked.wait()
    await harness.broker.stop()
    stopped.set()
    assert len(await poll) == 0


async def test_a_broker_that_stops_answers_everybody(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue)
    polls = [asyncio.create_task(harness.broker.pop(queue, wait=LONG)) for _ in range(5)]
    pushes = [asyncio.create_task(harness.broker.push(harness.name("busy"), n)) for n in range(5)]
    await parked(harness.broker, queue)
    async with asyncio.timeout(15):
        await harness.broker.close()
        assert [len(batch) for batch in await asyncio.gather(*polls)] == [0] * 5
        assert {outcome.status for outcome in await asyncio.gather(*pushes)} == {"queued"}
    for call in (harness.broker.push(queue, 1), harness.broker.pop(queue), harness.broker.renew("1.x")):
        with pytest.raises(ShuttingDown):
            await call


async def test_a_new_group_that_polls_a_queue_nobody_made_gets_its_first_message(harness: Harness) -> None:
    queue = harness.name("later")
    poll = asyncio.create_task(harness.broker.pop(queue, group="g", wait=LONG, subscription=Subscription("new")))

    async def begun() -> bool:
        made = await harness.store.queues.get(DEFAULT_TENANT, queue)
        return made is not None and bool(await harness.store.groups.all(made.id))

    await until(begun)
    await harness.broker.push(queue, "first")
    assert [one.data for one in await poll] == ["first"]
