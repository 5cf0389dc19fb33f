"""Operations at the store: applied once, in the order of their lane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest_asyncio

from fairlane.model.operation import TIMEOUT_SECONDS, read_push
from fairlane.store.contract.operations import Enqueued, Lost
from fairlane.store.contract.values import Duplicates, Full, Gone, OperationsAhead, Stored
from tests.conformance.backends import Row
from tests.conformance.harness import Harness, answer
from tests.conformance.operation_driver import (
    application,
    apply,
    enqueue,
    no_operations,
    push_operation,
    status,
    try_enqueue,
    work_off,
)


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def alone(harness: Harness) -> AsyncIterator[None]:
    await no_operations(harness)
    yield
    await no_operations(harness)


async def test_a_push_after_an_open_operation_is_not_stored(harness: Harness) -> None:
    queue = await harness.queue()
    await enqueue(harness, queue, ["waits"])
    free = await harness.partition(queue, "free")
    partition = await harness.partition(queue)
    slices = [harness.slice(queue, partition, ["after"]), harness.slice(queue, free, ["elsewhere"])]
    refused, stored = await harness.store.messages.push(slices)
    assert refused == OperationsAhead()
    assert isinstance(stored, Stored), "the other lanes of the call are not held up"
    await work_off(harness, queue)
    assert isinstance(await harness.try_push(queue, ["after"]), Stored)
    assert (await harness.pop(queue, partition=partition.id)).data == ["waits", "after"]


async def test_operations_of_a_lane_are_applied_in_the_order_they_were_enqueued(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0])
    positions = []
    for n in range(1, 6):
        _, result = await try_enqueue(harness, queue, [n, n + 0.5])
        assert isinstance(result, Enqueued)
        positions.append(result.position)
    assert positions == [1, 2, 3, 4, 5]
    harness.clock.advance(-3600)  # their order does not come from a clock
    await enqueue(harness, queue, [6])
    harness.clock.advance(3600)
    await work_off(harness, queue)
    assert await harness.drain(queue) == [0, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6]


async def test_operations_of_one_call_are_numbered_in_their_order(harness: Harness) -> None:
    queue = await harness.queue()
    names = ["a", "b", "a", "a", "b"]
    news = [await push_operation(harness, queue, [n], partition=name) for n, name in enumerate(names)]
    results = await harness.store.operations.enqueue(news)
    assert [result.position for result in results if isinstance(result, Enqueued)] == [1, 1, 2, 3, 2]
    await work_off(harness, queue)
    partition = await harness.partition(queue, "a")
    assert (await harness.pop(queue, partition=partition.id)).data == [0, 2, 3]


async def test_a_push_that_waited_for_the_lane_while_an_operation_was_enqueued_must_become_one(
    harness: Harness,
) -> None:
    """X is stored, Y is an operation, and Z began before Y existed: Z must not overtake Y."""
    queue = await harness.queue()
    partition = await harness.partition(queue)
    second = await harness.open_second()
    await harness.push(queue, ["x"])
    y = await push_operation(harness, queue, ["y"])
    z = harness.slice(queue, partition, ["z"])
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partition.id)) as arrived:
        enqueuing = tasks.create_task(harness.store.operations.enqueue([y]))
        await arrived(enqueuing)
        pushing = tasks.create_task(answer(second.messages.push([z])))
        await arrived(enqueuing, pushing)
    assert isinstance(enqueuing.result()[0], Enqueued)
    assert pushing.result() == [OperationsAhead()]
    assert isinstance(
        (await harness.store.operations.enqueue([await push_operation(harness, queue, ["z"])]))[0], Enqueued
    )
    await work_off(harness, queue, store=second)
    assert await harness.drain(queue) == ["x", "y", "z"]


async def test_a_push_that_waited_for_the_lane_while_its_last_operation_ended_is_stored_after_it(
    harness: Harness,
) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    second = await harness.open_second()
    await enqueue(harness, queue, ["y"])
    claimed = await harness.store.operations.claim("worker")
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partition.id)) as arrived:
        applying = tasks.create_task(apply(harness, queue, claimed))
        await arrived(applying)
        pushing = tasks.create_task(answer(second.messages.push([harness.slice(queue, partition, ["z"])])))
        await arrived(applying, pushing)
    assert isinstance(applying.result()[0], Stored)
    assert isinstance(pushing.result()[0], Stored)
    assert await harness.drain(queue) == ["y", "z"]


async def test_pushes_and_operations_that_race_keep_the_order_of_each_producer(harness: Harness) -> None:
    """Each producer pushes, and enqueues what may not be stored. Workers at both brokers apply operations meanwhile."""
    queue = await harness.queue()
    partition = await harness.partition(queue)
    stores = [harness.store, await harness.open_second()]
    rounds, producers = 12, 4
    producing = True

    async def produce(number: int) -> None:
        for n in range(rounds):
            store = stores[(number + n) % 2]
            if (n + number) % 5 == 0:
                result: object = OperationsAhead()
            else:
                [result] = await store.messages.push([harness.slice(queue, partition, [[number, n]])])
            if result == OperationsAhead():
                new = await push_operation(harness, queue, [[number, n]])
                [enqueued] = await store.operations.enqueue([new])
                assert isinstance(enqueued, Enqueued)

    async def work(number: int) -> None:
        while producing or await stores[number].operations.depth():
            for claimed in await stores[number].operations.claim(f"worker {number}"):
                assert isinstance((await apply(harness, queue, [claimed], store=stores[number]))[0], Stored)
            await asyncio.sleep(0.001)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(work(number)) for number in range(2)]
        async with asyncio.TaskGroup() as producing_tasks:
            for number in range(producers):
                producing_tasks.create_task(produce(number))
        producing = False
        await asyncio.wait(workers)
    seen = await harness.drain(queue)
    assert len(seen) == rounds * producers
    for number in range(producers):
        assert [n for producer, n in seen if producer == number] == list(range(rounds))


async def test_a_lane_has_one_worker_at_a_time(harness: Harness) -> None:
    queue = await harness.queue()
    for name in ("a", "b"):
        await enqueue(harness, queue, [name, 1], partition=name)
        await enqueue(harness, queue, [name, 2], partition=name)
    stores = [harness.store, await harness.open_second()]
    claims = await asyncio.gather(*(stores[n % 2].operations.claim(f"worker {n}") for n in range(4)))
    backlogs = [backlog for claimed in claims for backlog in claimed]
    while some := await stores[0].operations.claim("late"):  # a worker that met another at a row released its claim
        backlogs += some
    assert sorted(backlog.operations[0].partition_name for backlog in backlogs) == ["a", "b"]
    assert [len(backlog.operations) for backlog in backlogs] == [2, 2], "with all that waits in them"
    assert await harness.store.operations.claim("nobody") == []
    await apply(harness, queue, backlogs)
    assert await harness.store.operations.depth() == 0


async def test_a_claim_that_ran_out_is_taken_over_and_its_first_worker_applies_nothing(harness: Harness) -> None:
    queue = await harness.queue()
    new = await enqueue(harness, queue, ["once"])
    first = await harness.store.operations.claim("dies")
    assert await status(harness, queue, new) == "processing"
    harness.clock.advance(TIMEOUT_SECONDS - 1)
    second = await harness.open_second()
    assert await second.operations.claim("early") == []
    harness.clock.advance(1)
    taken_over = await second.operations.claim("heir")
    assert await apply(harness, queue, first) == [Lost()]
    assert isinstance((await apply(harness, queue, taken_over, store=second))[0], Stored)
    assert await apply(harness, queue, first) == [Lost()]
    found = await harness.store.operations.get(queue.tenant, new.id)
    assert found is not None
    assert (found.status, found.worker, found.result) == ("completed", "heir", b'"applied"')
    assert await harness.drain(queue) == ["once"]


async def test_what_a_lost_claim_took_is_given_back_by_its_token_and_nothing_else_is(harness: Harness) -> None:
    queue = await harness.queue()
    for partition in ("a", "b"):
        await enqueue(harness, queue, [partition], partition=partition)
    lost, other = uuid4(), uuid4()
    operations = harness.store.operations
    [first] = await operations.claim("worker", backlogs=1, token=lost)
    assert len(await operations.claim("worker", token=other)) == 1
    assert await operations.release(lost) == 1
    assert await operations.release(lost) == 0
    [again] = await operations.claim("heir")
    assert again.claim.partition == first.claim.partition
    assert await apply(harness, queue, [first]) == [Lost()]
    assert isinstance((await apply(harness, queue, [again]))[0], Stored)


async def test_workers_that_both_believe_to_hold_a_lane_apply_it_once(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    await enqueue(harness, queue, ["once"])
    second = await harness.open_second()
    first = await harness.store.operations.claim("slow")
    harness.clock.advance(TIMEOUT_SECONDS)
    heir = await second.operations.claim("heir")
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.partition(partition.id)) as arrived:
        late = tasks.create_task(apply(harness, queue, first))
        await arrived(late)
        right = tasks.create_task(apply(harness, queue, heir, store=second))
        await arrived(late, right)
    assert late.result() == [Lost()]
    assert isinstance(right.result()[0], Stored)
    assert await harness.drain(queue) == ["once"]


async def test_an_effect_and_its_completion_are_one_step(harness: Harness) -> None:
    """The effect is written and stopped before the commit: no other transaction sees it."""
    queue = await harness.queue()
    group, partition = await harness.group(queue), await harness.partition(queue)
    new = await enqueue(harness, queue, ["out"])
    claimed = await harness.store.operations.claim("worker")
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.cursor(partition.id, group.id)) as arrived:
        applying = tasks.create_task(apply(harness, queue, claimed))
        await arrived(applying)
        assert await harness.store.messages.read(partition.id, 0, 1) == []
        assert await status(harness, queue, new) == "processing"
    assert await status(harness, queue, new) == "completed"
    assert await harness.drain(queue, group) == ["out"]


async def test_enqueuing_an_operation_again_enqueues_it_once(harness: Harness) -> None:
    queue = await harness.queue(max_size=5)
    new = await push_operation(harness, queue, ["a", "b"])
    for _ in range(3):
        [result] = await harness.store.operations.enqueue([new])
        assert isinstance(result, Enqueued)
        assert result.position == 1
    assert await harness.store.operations.depth() == 1
    assert await harness.store.queues.depth(queue.id) == 2
    await work_off(harness, queue)
    [result] = await harness.store.operations.enqueue([new])
    assert isinstance(result, Enqueued)
    assert await harness.store.operations.depth() == 0, "it is over, and a repeat does not begin it anew"
    assert await harness.drain(queue) == ["a", "b"]


async def test_an_operation_with_a_stored_id_applies_nothing_until_it_is_left_out(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["first"], ids=["x"])
    new = await enqueue(harness, queue, ["again", "fresh"], ids=["x", "y"])
    [backlog] = await harness.store.operations.claim("worker")
    work = application(queue, backlog)
    [result] = await harness.store.operations.apply([work])
    assert isinstance(result, Duplicates)
    assert [one.index for one in result.found] == [0]
    assert await status(harness, queue, new) == "processing"
    assert await harness.try_push(queue, ["over"]) == OperationsAhead(), "the lane stays closed meanwhile"
    part = work.slice
    assert part is not None
    for column in (part.fragments, part.transaction_ids, part.keys, part.id_times, part.given):
        del column[0]
    assert isinstance((await harness.store.operations.apply([work]))[0], Stored)
    assert await harness.drain(queue) == ["first", "fresh"]


async def test_what_waited_long_is_known_when_it_comes_again(harness: Harness) -> None:
    queue = await harness.queue()
    given = harness.mint()
    await enqueue(harness, queue, ["once"], ids=[given])
    harness.clock.advance(300)
    await work_off(harness, queue)
    assert isinstance(await harness.try_push(queue, ["twice"], ids=[given]), Duplicates)


async def test_a_postponed_lane_is_ready_after_the_delay(harness: Harness) -> None:
    queue = await harness.queue()
    new = await enqueue(harness, queue, ["a"])
    [backlog] = await harness.store.operations.claim("worker")
    assert await harness.store.operations.postpone([backlog.claim], delay_ms=2000, error="the store was away") == 1
    assert await status(harness, queue, new) == "pending"
    assert await apply(harness, queue, [backlog]) == [Lost()]
    assert await harness.store.operations.claim("worker") == []
    harness.clock.advance(2)
    await work_off(harness, queue)
    found = await harness.store.operations.get(queue.tenant, new.id)
    assert found is not None
    assert (found.status, found.retries) == ("completed", 0), "a store that was away is no fault of the operation"


async def test_an_operation_whose_queue_was_deleted_fails_alone(harness: Harness) -> None:
    queue, other = await harness.queue(), await harness.queue()
    poison = await enqueue(harness, queue, ["lost?"])
    await enqueue(harness, other, ["fine"])
    await harness.store.queues.delete(queue.tenant, queue.name)
    for attempt in range(4):
        backlogs = {backlog.queue_id: backlog for backlog in await harness.store.operations.claim("worker")}
        backlog = backlogs[queue.id]
        [result] = await apply(harness, queue, [backlog])
        assert result == Gone()
        if other.id in backlogs:
            assert isinstance((await apply(harness, other, [backlogs[other.id]]))[0], Stored)
        failed = await harness.store.operations.fail(
            backlog.claim, [backlog.operations[0].sequence], "the queue is gone", delay_ms=1000
        )
        assert failed == (attempt == 3)
        harness.clock.advance(1)
    found = await harness.store.operations.get(queue.tenant, poison.id)
    assert found is not None
    assert (found.status, found.error, found.retries) == ("failed", "the queue is gone", 4)
    assert len(read_push(found.payload).fragments) == 1, "it is kept whole"
    assert await harness.store.operations.claim("worker") == []
    assert await harness.store.operations.depth() == 0
    assert await harness.drain(other) == ["fine"]


async def test_a_lane_goes_on_after_an_operation_that_failed(harness: Harness) -> None:
    queue = await harness.queue()
    poison = await enqueue(harness, queue, ["poison"])
    await enqueue(harness, queue, ["next"])
    for _ in range(4):
        [backlog] = await harness.store.operations.claim("worker")
        await harness.store.operations.fail(backlog.claim, [backlog.operations[0].sequence], "no", delay_ms=0)
    assert await status(harness, queue, poison) == "failed"
    assert await harness.try_push(queue, ["late"]) == OperationsAhead(), "one is open still"
    await work_off(harness, queue)
    assert isinstance(await harness.try_push(queue, ["late"]), Stored)
    assert await harness.drain(queue) == ["next", "late"]


async def test_a_transaction_that_meets_an_open_operation_applies_nothing(harness: Harness) -> None:
    source, target = await harness.queue("source"), await harness.queue("target")
    await harness.push(source, ["in"])
    taken = await harness.pop(source)
    await enqueue(harness, target, ["waits"])
    partition = await harness.partition(target)
    _, pushed = await harness.store.messages.transact(
        [harness.ordered_ack(taken, 1)], [harness.slice(target, partition, ["out"])]
    )
    assert pushed == [OperationsAhead()]
    assert (await harness.lane(taken.group)).committed == 0
    await work_off(harness, target)
    acked, pushed = await harness.store.messages.transact(
        [harness.ordered_ack(taken, 1)], [harness.slice(target, partition, ["out"])]
    )
    assert acked[0].state == "ok"
    assert await harness.drain(target) == ["waits", "out"]


async def test_operations_for_what_is_gone_are_refused(harness: Harness) -> None:
    queue = await harness.queue()
    new = await push_operation(harness, queue, ["a"])
    await harness.configure(queue, max_size=1)
    assert await harness.store.operations.enqueue([new]) == [Gone()], "its caller does not know of the limit"
    await harness.store.queues.delete(queue.tenant, queue.name)
    assert await harness.store.operations.enqueue([new]) == [Gone()]
    assert await harness.store.operations.depth() == 0


async def test_pushes_that_were_accepted_do_not_overtake_one_that_finds_the_queue_full(harness: Harness) -> None:
    """The pushes come from a journal, several of a partition at once, and were answered 202 in this order."""
    queue = await harness.queue(max_size=5)
    accepted = [
        await push_operation(harness, queue, payloads, partition=partition)
        for partition, payloads in [("a", [1, 2, 3]), ("a", [4, 5, 6]), ("a", [7]), ("b", [8]), ("a", [9])]
    ]
    for new in accepted:
        new.created_at = harness.clock()
    results = await harness.store.operations.enqueue(accepted)
    assert [type(result) for result in results] == [Enqueued, Full, Full, Enqueued, Full]
    again = await harness.store.operations.enqueue(accepted)
    assert [type(result) for result in again] == [Enqueued, Full, Full, Enqueued, Full]


async def test_a_push_that_is_refused_for_a_full_queue_refuses_no_smaller_one(harness: Harness) -> None:
    queue = await harness.queue(max_size=5)
    new = [await push_operation(harness, queue, payloads) for payloads in ([1, 2, 3], [4, 5, 6], [7])]
    results = await harness.store.operations.enqueue(new)
    assert [type(result) for result in results] == [Enqueued, Full, Enqueued]
