"""Operations apart from their order: space in limited queues, acks, counters, retry and discard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from fairlane.model.operation import Operation
from fairlane.model.queue import Queue
from fairlane.store.contract.operations import Application, Enqueued, NewOperation
from fairlane.store.contract.values import AckResult, Full, Gone, Stored
from tests.conformance.harness import Harness, Taken
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


async def ack_operation(harness: Harness, queue: Queue, taken: Taken) -> NewOperation:
    new = await push_operation(harness, queue, [])
    new.type, new.payload = "ACK_BATCH", b"{}"
    new.group, new.group_id = taken.group.name, taken.group.id
    return new


async def give_up_on_the_first(harness: Harness) -> None:
    for _ in range(4):
        [backlog] = await harness.store.operations.claim("worker")
        await harness.store.operations.fail(backlog.claim, [backlog.operations[0].sequence], "no", delay_ms=0)


async def test_what_waits_takes_its_place_in_the_queue(harness: Harness) -> None:
    queue = await harness.queue(max_size=4)
    await harness.push(queue, [0])
    _, enqueued = await try_enqueue(harness, queue, [1, 2], partition="a")
    assert enqueued == Enqueued(1, 3, 4)
    assert (await try_enqueue(harness, queue, [3, 4], partition="b"))[1] == Full(3, 4)
    assert (await harness.push(queue, [3], partition="b")).depth == 4
    assert await harness.try_push(queue, [4], partition="b") == Full(4, 4)
    assert (await try_enqueue(harness, queue, [4], partition="b"))[1] == Full(4, 4)
    await work_off(harness, queue)
    assert await harness.store.queues.depth(queue.id) == 4, "it moved from pending to stored"
    assert sorted(await harness.drain(queue)) == [0, 1, 2, 3]
    assert await harness.store.queues.depth(queue.id) == 0


async def test_a_place_is_given_back_by_what_is_not_stored(harness: Harness) -> None:
    queue = await harness.queue(max_size=4)
    group = await harness.group(queue)
    await harness.push(queue, [0], ids=["x"])
    await enqueue(harness, queue, [0, 1], ids=["x", "y"])
    assert await harness.store.queues.depth(queue.id) == 3
    [backlog] = await harness.store.operations.claim("worker")
    work = application(queue, backlog)
    await harness.store.operations.apply([work])
    assert await harness.store.queues.depth(queue.id) == 3, "nothing was applied"
    assert work.slice is not None
    for column in ("fragments", "transaction_ids", "keys", "id_times", "given"):
        del getattr(work.slice, column)[0]
    await harness.store.operations.apply([work])
    assert await harness.store.queues.depth(queue.id) == 2
    dropped = await enqueue(harness, queue, [2])
    await enqueue(harness, queue, [3])
    assert await harness.store.queues.depth(queue.id) == 4
    assert await harness.store.operations.discard(queue.tenant, dropped.id)
    assert await harness.store.queues.depth(queue.id) == 3
    await give_up_on_the_first(harness)
    assert await harness.store.queues.depth(queue.id) == 2
    assert await harness.drain(queue, group) == [0, 1]


async def test_places_are_counted_when_the_depth_is_counted_anew(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [0])
    await enqueue(harness, queue, [1, 2], partition="a")
    assert await harness.store.queues.depth(queue.id) == 3
    limited = await harness.configure(queue, max_size=4)
    assert await harness.store.queues.depth(queue.id) == 3
    await harness.group(queue)
    assert await harness.store.queues.depth(queue.id) == 3
    assert (await try_enqueue(harness, limited, [3, 4]))[1] == Full(3, 4)
    await work_off(harness, limited)
    assert await harness.store.queues.depth(queue.id) == 3
    await harness.drain(limited)
    assert await harness.store.queues.depth(queue.id) == 0


async def test_an_accepted_push_that_meets_a_lowered_limit_waits_for_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=5)
    await harness.push(queue, [0, 1, 2])
    new = await enqueue(harness, queue, [3, 4])
    lower = await harness.configure(queue, max_size=2)
    [backlog] = await harness.store.operations.claim("worker")
    assert isinstance((await apply(harness, lower, [backlog]))[0], Full)
    assert await harness.store.queues.depth(queue.id) == 5
    assert await status(harness, queue, new) == "processing"
    await harness.drain(lower)
    assert isinstance((await apply(harness, lower, [backlog]))[0], Stored)
    assert await harness.store.queues.depth(queue.id) == 2


async def test_an_ack_has_a_lane_of_its_own_and_goes_first(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["a", "b"])
    taken = await harness.pop(queue)
    await enqueue(harness, queue, ["c"])
    operation = await ack_operation(harness, queue, taken)
    assert await harness.store.operations.enqueue([operation]) == [Enqueued(1)]
    acks, pushes = await harness.store.operations.claim("worker")
    assert [backlog.operations[0].type for backlog in (acks, pushes)] == ["ACK_BATCH", "PUSH"]
    ack = harness.ordered_ack(taken, 2)
    sequences = [acks.operations[0].sequence]
    work = Application(acks.claim, sequences, 0, lambda result: [repr(result).encode()], ack=ack)
    [acked] = await harness.store.operations.apply([work])
    assert isinstance(acked, AckResult)
    assert (acked.state, acked.after) == ("ok", 2)
    found = await harness.store.operations.get(queue.tenant, operation.id)
    assert found is not None
    assert (found.status, found.result) == ("completed", repr(acked).encode())
    assert isinstance((await apply(harness, queue, [pushes]))[0], Stored)
    assert await harness.drain(queue) == ["c"]


async def test_an_ack_whose_lease_ended_is_left_to_its_caller(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=5)
    await harness.push(queue, ["a"])
    taken = await harness.pop(queue)
    ack = await ack_operation(harness, queue, taken)
    await harness.store.operations.enqueue([ack])
    harness.clock.advance(6)
    assert (await harness.pop(queue)).data == ["a"]
    [backlog] = await harness.store.operations.claim("worker")
    sequences = [backlog.operations[0].sequence]
    lost = Application(backlog.claim, sequences, 0, lambda _: [b"?"], ack=harness.ordered_ack(taken, 1))
    [acked] = await harness.store.operations.apply([lost])
    assert isinstance(acked, AckResult)
    assert acked.state == "lost"
    assert await status(harness, queue, ack) == "processing"
    await harness.store.operations.apply([Application(backlog.claim, sequences, 0, lambda _: [b'"lost"'])])
    assert await status(harness, queue, ack) == "completed"
    assert await harness.store.operations.depth() == 0


async def test_a_failed_operation_is_tried_again_at_the_end_of_its_lane(harness: Harness) -> None:
    queue = await harness.queue()
    new = await enqueue(harness, queue, ["again"])
    await enqueue(harness, queue, ["other"])
    operations = harness.store.operations
    assert await operations.retry(queue.tenant, new.id, new) is None, "it waits already"
    await give_up_on_the_first(harness)
    assert await operations.retry("somebody else", new.id, new) is None
    assert await operations.retry(queue.tenant, new.id, new) == Enqueued(2)
    assert await operations.retry(queue.tenant, new.id, new) is None
    await work_off(harness, queue)
    assert await harness.drain(queue) == ["other", "again"]


async def test_a_retry_into_a_queue_that_is_gone_changes_nothing(harness: Harness) -> None:
    queue = await harness.queue()
    new = await enqueue(harness, queue, ["again"])
    await give_up_on_the_first(harness)
    await harness.store.queues.delete(queue.tenant, queue.name)
    assert await harness.store.operations.retry(queue.tenant, new.id, new) == Gone()
    assert await status(harness, queue, new) == "failed"
    anew = await harness.configure(queue)
    moved = await push_operation(harness, anew, ["again"])
    moved.id = new.id
    assert await harness.store.operations.retry(queue.tenant, new.id, moved) == Enqueued(1)
    await work_off(harness, anew)
    assert await harness.drain(anew) == ["again"]


async def test_a_discarded_operation_is_never_applied_and_holds_nobody_up(harness: Harness) -> None:
    queue = await harness.queue()
    news = [await enqueue(harness, queue, [n]) for n in range(3)]
    operations = harness.store.operations
    assert await operations.discard(queue.tenant, news[1].id)
    assert not await operations.discard(queue.tenant, news[1].id)
    assert not await operations.discard("somebody else", news[2].id)
    assert await operations.depth() == 2
    [backlog] = await operations.claim("worker")
    assert not await operations.discard(queue.tenant, news[0].id), "somebody works on it"
    assert isinstance((await apply(harness, queue, [backlog]))[0], Stored)
    assert await status(harness, queue, news[1]) == "discarded"
    last = await enqueue(harness, queue, [3])
    assert await operations.discard(queue.tenant, last.id)
    assert isinstance(await harness.try_push(queue, [4]), Stored), "the last one that waited is gone"
    assert await harness.drain(queue) == [0, 2, 4]


async def test_an_operation_that_was_accepted_elsewhere_has_its_id_and_the_time_of_its_acceptance(
    harness: Harness,
) -> None:
    queue = await harness.queue()
    operations, now = harness.store.operations, await harness.store.now()
    accepted = []
    for number, created_at in enumerate((now - 3_000_000, now + 3_000_000)):
        new = await push_operation(harness, queue, [number])
        new.created_at = created_at
        accepted.append(new)
    for _ in range(2):
        assert [type(result) for result in await operations.enqueue(accepted)] == [Enqueued] * 2
    found = [await operations.get(queue.tenant, one.id) for one in accepted]
    assert [one.created_at for one in found if one] == [now - 3_000_000, now], "nothing is accepted in the future"
    await work_off(harness, queue)
    assert [type(result) for result in await operations.enqueue(accepted)] == [Enqueued] * 2
    assert await operations.depth() == 0, "an id that is there changes nothing, also when it is applied"
    assert await harness.drain(queue) == [0, 1]


async def test_operations_are_counted_and_looked_up(harness: Harness) -> None:
    queue = await harness.queue()
    tenant, operations = queue.tenant, harness.store.operations
    done = await enqueue(harness, queue, [0])
    harness.clock.advance(2)
    await work_off(harness, queue)
    for n in range(3):
        await enqueue(harness, queue, [n, n], partition="deep")
    await enqueue(harness, queue, [9], partition="shallow")
    assert await operations.depth() == 4
    backlogs = await operations.backlogs(tenant)
    assert [(backlog.queue, backlog.partition, backlog.open) for backlog in backlogs] == [
        (queue.name, "deep", 3),
        (queue.name, "shallow", 1),
    ]
    assert len(await operations.backlogs(tenant, limit=1)) == 1
    assert await operations.backlogs("somebody else") == []
    counts = {count.status: count for count in await operations.counts(tenant)}
    assert counts["pending"].count >= 4
    assert (counts["pending"].type, counts["pending"].priority) == ("PUSH", 5)
    assert counts["completed"].latency_seconds is not None
    found = await operations.get(tenant, done.id)
    assert isinstance(found, Operation)
    assert (found.processed_at or 0) - found.created_at == 2_000_000
    assert (found.payload, found.messages, found.queue, found.sequence) == (b"", 1, queue.name, 0)
    assert await operations.get("somebody else", done.id) is None
    assert await operations.get(tenant, UUID(harness.mint())) is None


async def test_operations_are_listed_by_status_and_queue_page_by_page(harness: Harness) -> None:
    queue, other = await harness.queue(), await harness.queue()
    operations, tenant = harness.store.operations, queue.tenant
    dead = await enqueue(harness, queue, ["dead"])
    await give_up_on_the_first(harness)
    done = await enqueue(harness, queue, ["done"])
    await work_off(harness, queue)
    dropped = await enqueue(harness, queue, ["dropped"])
    await operations.discard(tenant, dropped.id)
    pending = [await enqueue(harness, queue, [n], partition=f"p{n % 3}") for n in range(7)]
    [backlog] = await operations.claim("worker", backlogs=1)
    elsewhere = await enqueue(harness, other, [0])
    begun = {one.id for one in backlog.operations}

    async def ids(**where: Any) -> list[UUID]:
        return [one.id for one in await operations.page(tenant, queue=queue.name, **where)]

    assert await ids(status="failed") == [dead.id]
    assert await ids(status="completed") == [done.id]
    assert await ids(status="discarded") == [dropped.id]
    assert await ids(status="processing") == sorted(begun)
    assert await ids(status="pending") == sorted(one.id for one in pending if one.id not in begun)
    every = sorted([dead.id, done.id, dropped.id, *(one.id for one in pending)])
    seen: list[UUID] = []
    while page := await ids(after=seen[-1] if seen else UUID(int=0), limit=3):
        assert len(page) <= 3
        seen += page
    assert seen == every
    later = await enqueue(harness, queue, ["later"])
    await operations.discard(tenant, later.id)
    newest = sorted([later.id, dropped.id], reverse=True)
    assert [one.id for one in await operations.newest(tenant, "discarded", queue=queue.name)] == newest
    [second] = await operations.newest(tenant, "discarded", queue=queue.name, before=newest[0], limit=1)
    assert second.id == newest[1]
    assert await operations.newest("somebody else", "discarded") == []
    just_before = UUID(int=elsewhere.id.int - 1)
    assert (await operations.page(tenant, after=just_before, limit=1))[0].id == elsewhere.id, "of any queue"
    assert await operations.page("somebody else", queue=queue.name) == []
    [shown] = await operations.page(tenant, status="failed", queue=queue.name)
    assert (shown.payload, shown.error, shown.messages, shown.retries) == (b"", "no", 1, 4)
    assert shown.failed_at is not None


async def test_failed_operations_are_counted_and_removed_after_a_time_of_their_own(harness: Harness) -> None:
    queue = await harness.queue()
    operations, tenant = harness.store.operations, queue.tenant
    before = await operations.failed(tenant)
    failed = []
    for n in range(2):
        failed.append(await enqueue(harness, queue, [n]))
        await give_up_on_the_first(harness)
        harness.clock.advance(100)
    pending = await enqueue(harness, queue, [2])
    assert await operations.failed(tenant) == before + 2
    assert await operations.failed("somebody else") == 0
    harness.clock.advance(3600)
    await operations.clean(older_than_seconds=3600)
    assert await operations.failed(tenant) == before + 2, "unless told how long they are kept, for ever"
    while await operations.clean(older_than_seconds=3600, failed_seconds=3750, limit=1):
        pass
    found = [await operations.get(tenant, new.id) for new in (*failed, pending)]
    assert [one.status if one else None for one in found] == [None, "failed", "pending"]


async def test_who_retries_or_discards_leaves_the_times_that_tell_of_it(harness: Harness) -> None:
    queue = await harness.queue()
    operations, tenant = harness.store.operations, queue.tenant
    retried, discarded = [await enqueue(harness, queue, [n]) for n in range(2)]
    for _ in range(2):
        await give_up_on_the_first(harness)
    accepted = await operations.get(tenant, retried.id)
    assert accepted is not None
    harness.clock.advance(60)
    now = await harness.store.now()
    await operations.retry(tenant, retried.id, retried)
    again = await operations.get(tenant, retried.id)
    assert again is not None
    assert (again.status, again.created_at, again.retries) == ("pending", accepted.created_at, 0)
    assert await operations.discard(tenant, discarded.id)
    over = await operations.get(tenant, discarded.id)
    assert over is not None
    assert (over.status, over.processed_at) == ("discarded", now)
    assert over.failed_at is not None
    assert over.error == "no"


async def test_completed_operations_are_removed_after_their_time_and_others_are_not(harness: Harness) -> None:
    queue = await harness.queue()
    operations = harness.store.operations
    done, dropped = await enqueue(harness, queue, [0]), await enqueue(harness, queue, [1])
    await operations.discard(queue.tenant, dropped.id)
    await work_off(harness, queue)
    failed = await enqueue(harness, queue, [2])
    await give_up_on_the_first(harness)
    pending = await enqueue(harness, queue, [3])
    harness.clock.advance(3599)
    await operations.clean(older_than_seconds=3600)
    assert await operations.get(queue.tenant, done.id) is not None
    harness.clock.advance(2)
    while await operations.clean(older_than_seconds=3600, limit=1):
        pass
    found = [await operations.get(queue.tenant, new.id) for new in (done, dropped, failed, pending)]
    assert [one.status if one else None for one in found] == [None, None, "failed", "pending"]


@pytest.mark.parametrize("claimed", [False, True])
async def test_operations_of_a_time_when_the_clock_was_ahead_are_claimed_when_it_is_right(
    harness: Harness, claimed: bool
) -> None:
    queue = await harness.queue()
    harness.clock.advance(600)
    await enqueue(harness, queue, ["ahead"])
    if claimed:
        await harness.store.operations.claim("dies")
    harness.clock.advance(-600)
    taken = await harness.store.operations.claim("heir")
    assert isinstance((await apply(harness, queue, taken))[0], Stored)
