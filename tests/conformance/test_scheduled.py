"""Scheduled messages: stored separately until due, appended once, and never blocking others."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId, Uuid7
from fairlane.model.message import PushItem
from fairlane.model.queue import Queue
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import NOT_DUE, Added, Appended, DeadFilter, Duplicates, Gone, ScheduledSlice
from tests.conformance.harness import Harness
from tests.lost_answers import APPLIED, fails


async def schedule(
    harness: Harness,
    queue: Queue,
    payloads: list[Any],
    *,
    seconds: float,
    ids: list[str] | None = None,
    lane: str = "p",
) -> Added | Duplicates | Gone:
    partition = await harness.partition(queue, lane)
    slice = harness.slice(queue, partition, payloads, ids)
    due_at = harness.clock() + round(seconds * 1_000_000)
    [kept] = await harness.store.scheduled.add(
        [ScheduledSlice(slice, lane, [due_at] * len(payloads), [0] * len(payloads))]
    )
    return kept


async def append_due(store: Store, limit: int = 1000) -> Appended:
    return await store.scheduled.append_due(limit=limit)


async def where(harness: Harness, queue: Queue, lane: str = "p") -> PartitionId:
    return (await harness.partition(queue, lane)).id


async def test_a_scheduled_message_is_appended_when_it_is_due_and_not_before(harness: Harness) -> None:
    queue = await harness.queue()
    kept = await schedule(harness, queue, ["later"], seconds=5)
    assert kept == Added([harness.clock() + 5_000_000])
    assert await harness.store.queues.depth(queue.id) == 0
    assert (await append_due(harness.store)).queues.get(queue.id) is None
    harness.clock.advance(4.999)
    assert (await append_due(harness.store)).queues.get(queue.id) is None
    assert not await harness.pop(queue)
    harness.clock.advance(0.001)
    assert (await append_due(harness.store)).queues[queue.id] == 1
    assert (await append_due(harness.store)).queues.get(queue.id) is None
    assert (await harness.pop(queue)).data == ["later"]


async def test_a_delay_counts_from_now_by_the_stores_clock(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue, "p")
    part = ScheduledSlice(harness.slice(queue, partition, [0]), "p", [None], [1500])
    assert await harness.store.scheduled.add([part]) == [Added([harness.clock() + 1_500_000])]


async def test_a_scheduled_message_holds_up_nothing_in_its_lane(harness: Harness) -> None:
    queue = await harness.queue()
    await schedule(harness, queue, ["later"], seconds=5)
    await harness.push(queue, ["now"], partition="p")
    assert await harness.drain(queue) == ["now"]
    harness.clock.advance(5)
    await append_due(harness.store)
    assert await harness.drain(queue) == ["later"]


async def test_due_messages_are_appended_in_the_order_they_are_due(harness: Harness) -> None:
    queue = await harness.queue()
    for seconds in (3, 1, 2):
        await schedule(harness, queue, [seconds, seconds], seconds=seconds)
    harness.clock.advance(3)
    await append_due(harness.store)
    assert await harness.drain(queue) == [1, 1, 2, 2, 3, 3]


async def test_appending_takes_bounded_steps_and_says_that_there_is_more(harness: Harness) -> None:
    queue = await harness.queue()
    await schedule(harness, queue, list(range(25)), seconds=1)
    harness.clock.advance(1)
    appended = [await append_due(harness.store, 10) for _ in range(4)]
    assert sum(one.queues.get(queue.id, 0) for one in appended) == 25
    assert all(one.count <= 10 for one in appended)
    assert sorted(await harness.drain(queue)) == list(range(25))


async def test_brokers_that_append_at_once_append_each_message_once(harness: Harness) -> None:
    queue = await harness.queue()
    for partition in ("a", "b", "c"):
        await schedule(harness, queue, list(range(50)), seconds=1, lane=partition)
    harness.clock.advance(1)
    second = await harness.open_second()
    appended: list[Appended] = []
    while sum(one.queues.get(queue.id, 0) for one in appended[-12:]) or not appended:
        appended += await asyncio.gather(*(append_due(store, 20) for store in (harness.store, second) * 6))
    assert sum(one.queues.get(queue.id, 0) for one in appended) == 150
    assert sorted(await harness.drain(queue)) == sorted(list(range(50)) * 3)


async def test_an_id_that_is_scheduled_or_stored_is_a_duplicate(harness: Harness) -> None:
    queue = await harness.queue()
    ids = ["order-1"]
    await schedule(harness, queue, ["first"], seconds=5, ids=ids)
    refused = await schedule(harness, queue, ["new", "second"], seconds=9, ids=["order-2", *ids])
    assert isinstance(refused, Duplicates)
    [again] = refused.found
    assert (again.index, again.position, again.transaction_id) == (1, NOT_DUE, "order-1")
    assert again.due_at == harness.clock() + 5_000_000
    assert isinstance(await schedule(harness, queue, ["other lane"], seconds=9, ids=ids, lane="q"), Added)
    harness.clock.advance(5)
    await append_due(harness.store)
    refused = await schedule(harness, queue, ["third"], seconds=5, ids=ids)
    assert isinstance(refused, Duplicates)
    [stored] = refused.found
    assert (stored.message_id, stored.position) == (again.message_id, 0)
    assert await harness.drain(queue) == ["first"]


async def test_an_id_that_comes_twice_in_one_call_waits_once(harness: Harness) -> None:
    broker, name = harness.broker, harness.name("twice")
    await broker.queues.configure(name, dedup_seconds=0)
    item = PushItem(queue=name, payload=b"1", transaction_id="it", delay_ms=1000)
    outcomes = await broker.push_many([item, item])
    assert [outcome.status for outcome in outcomes] == ["scheduled", "duplicate"]
    assert len((await broker.scheduled.page(name)).messages) == 1


async def test_a_message_pushed_meanwhile_under_the_same_id_comes_once(harness: Harness) -> None:
    queue = await harness.queue()
    await schedule(harness, queue, ["later", "too"], seconds=5, ids=["order-1", "order-2"])
    await harness.push(queue, ["now"], partition="p", ids=["order-1"])
    harness.clock.advance(5)
    assert (await append_due(harness.store)).queues[queue.id] == 1
    assert await harness.drain(queue) == ["now", "too"]


async def test_a_cancelled_message_never_comes(harness: Harness) -> None:
    queue = await harness.queue()
    await schedule(harness, queue, ["no", "yes"], seconds=5, ids=["no", "yes"])
    partition = await where(harness, queue)
    assert await harness.store.scheduled.cancel(partition, "no")
    assert not await harness.store.scheduled.cancel(partition, "no")
    harness.clock.advance(5)
    await append_due(harness.store)
    assert not await harness.store.scheduled.cancel(partition, "yes"), "it is too late"
    assert await harness.drain(queue) == ["yes"]


async def test_a_message_can_be_rescheduled_to_sooner_and_later(harness: Harness) -> None:
    queue = await harness.queue()
    await schedule(harness, queue, ["sooner", "later"], seconds=5, ids=["sooner", "later"])
    partition = await where(harness, queue)
    at = harness.clock()
    assert await harness.store.scheduled.reschedule(partition, "sooner", due_at=at + 1_000_000)
    assert await harness.store.scheduled.reschedule(partition, "later", due_at=at + 9_000_000)
    assert not await harness.store.scheduled.reschedule(partition, "nobody", due_at=at)
    seen = []
    for _ in range(9):
        harness.clock.advance(1)
        await append_due(harness.store)
        seen.append(await harness.drain(queue))
    assert seen == [["sooner"], [], [], [], [], [], [], [], ["later"]]


async def test_each_of_many_that_were_scheduled_together_has_its_own_time(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue, "p")
    at = harness.clock()
    times: list[int | None] = [at + (number * 7 % 10 + 1) * 1_000_000 for number in range(10)]
    part = ScheduledSlice(harness.slice(queue, partition, list(range(10))), "p", times, [0] * 10)
    assert await harness.store.scheduled.add([part]) == [Added([time for time in times if time])]
    seen = []
    for _ in range(10):
        harness.clock.advance(1)
        await append_due(harness.store)
        seen += await harness.drain(queue)
    assert seen == sorted(range(10), key=lambda number: number * 7 % 10)


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh ids", "texts"])
async def test_those_scheduled_together_are_found_cancelled_and_rescheduled_one_by_one(
    harness: Harness, fresh: bool
) -> None:
    queue = await harness.queue()
    made = Uuid7(lambda: harness.clock() // 1000)
    ids = [made() if fresh else f"id {number}" for number in range(6)]
    await schedule(harness, queue, list(range(6)), seconds=5, ids=ids)
    partition = await where(harness, queue)
    refused = await schedule(harness, queue, ["again"], seconds=5, ids=[ids[4]])
    assert isinstance(refused, Duplicates)
    assert await harness.store.scheduled.cancel(partition, ids[2])
    assert not await harness.store.scheduled.cancel(partition, ids[2])
    later = harness.clock() + 6_000_000
    assert await harness.store.scheduled.reschedule(partition, ids[0], due_at=later) == later
    assert await harness.store.scheduled.reschedule(partition, ids[0], due_at=later) == later, "it is found again"
    listed = await harness.store.scheduled.page(queue)
    assert [one.transaction_id for one in listed] == [ids[1], ids[3], ids[4], ids[5], ids[0]]
    harness.clock.advance(5)
    while not (await append_due(harness.store, 2)).queues.get(queue.id):
        continue  # messages of other tests are due as well
    assert not await harness.store.scheduled.cancel(partition, ids[1]), "it is too late"
    assert await harness.store.scheduled.cancel(partition, ids[5])
    await append_due(harness.store)
    harness.clock.advance(1)
    await append_due(harness.store)
    assert await harness.drain(queue) == [1, 3, 4, 0]
    assert await harness.store.scheduled.page(queue) == []
    assert isinstance(await schedule(harness, queue, ["anew"], seconds=5, ids=[ids[2]]), Added)


@pytest.mark.parametrize("meanwhile", ["nothing", "appended", "moved"])
@pytest.mark.parametrize("delay", [True, False], ids=["delay", "time"])
async def test_a_call_that_comes_after_its_own_repeat_keeps_nothing(
    harness: Harness, delay: bool, meanwhile: str
) -> None:
    """The broker gave up and repeated the call, and then the first bytes arrived. The broker made the ids."""
    queue = await harness.queue()
    partition = await harness.partition(queue, "p")
    slice = harness.slice(queue, partition, ["a", "b"])
    due_at = None if delay else harness.clock() + 75_000_000
    late = ScheduledSlice(slice, "p", [due_at] * 2, [3_000] * 2)
    doubted = msgspec.structs.replace(slice, given=[True, True])
    again = msgspec.structs.replace(late, slice=doubted, repeated=True)
    harness.clock.advance(42 if delay else 72)
    assert isinstance((await harness.store.scheduled.add([again]))[0], Added)
    if meanwhile == "appended":
        harness.clock.advance(3)
        await append_due(harness.store)
    if meanwhile == "moved":
        far = harness.clock() + 3600 * 1_000_000
        assert await harness.store.scheduled.reschedule(partition.id, slice.transaction_ids[0], due_at=far) == far
    waiting = await harness.store.scheduled.page(queue)
    await harness.store.scheduled.add([late])
    assert await harness.store.scheduled.page(queue) == waiting
    harness.clock.advance(3600)
    await append_due(harness.store)
    assert sorted(await harness.drain(queue)) == ["a", "b"]
    fresh = ScheduledSlice(harness.slice(queue, partition, ["c"]), "p", [None], [1])
    assert isinstance((await harness.store.scheduled.add([fresh]))[0], Added)


async def test_a_call_and_its_repeat_that_meet_keep_their_messages_once(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue, "p")
    second = await harness.open_second()
    for _ in range(5):
        slice = harness.slice(queue, partition, list(range(20)))
        late = ScheduledSlice(slice, "p", [None] * 20, [1000] * 20)
        again = msgspec.structs.replace(late, slice=msgspec.structs.replace(slice, given=[True] * 20), repeated=True)
        await asyncio.gather(harness.store.scheduled.add([late]), second.scheduled.add([again]))
    assert len(await harness.store.scheduled.page(queue, limit=1000)) == 100


async def test_a_broker_repeats_a_call_whose_answer_was_lost_and_its_messages_come_once(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("timed")
    await broker.queues.configure(queue)
    fails(harness.store.scheduled, "add", APPLIED, APPLIED)
    items = [PushItem(queue=queue, payload=b"%d" % n, partition=f"p{n}", delay_ms=60_000) for n in range(3)]
    outcomes = await broker.push_many(items)
    assert [outcome.status for outcome in outcomes] == ["scheduled"] * 3
    found = {one.transaction_id: one.deliver_at for one in (await broker.scheduled.page(queue)).messages}
    assert found == {outcome.transaction_id: outcome.deliver_at for outcome in outcomes}


async def test_what_waits_is_listed_in_the_order_it_is_due(harness: Harness) -> None:
    queue = await harness.queue()
    for seconds in (3, 1, 2):
        await schedule(harness, queue, [seconds], seconds=seconds, ids=[f"in {seconds}"], lane=f"lane {seconds}")
    first = await harness.store.scheduled.page(queue, limit=2)
    assert [(one.transaction_id, one.partition) for one in first] == [("in 1", "lane 1"), ("in 2", "lane 2")]
    after = (int(first[-1].deliver_at), first[-1].id)
    assert [one.transaction_id for one in await harness.store.scheduled.page(queue, after=after)] == ["in 3"]
    assert await harness.store.scheduled.next_in() is not None


async def test_a_full_queue_takes_what_fits_and_the_rest_when_there_is_room(harness: Harness) -> None:
    queue, other = await harness.queue(max_size=3), await harness.queue("other")
    group = await harness.group(queue)
    await schedule(harness, queue, list(range(5)), seconds=1)
    await schedule(harness, other, ["other"], seconds=1)
    harness.clock.advance(1)
    appended = await append_due(harness.store)
    assert (appended.queues[queue.id], appended.queues[other.id]) == (3, 1)
    assert await harness.store.queues.depth(queue.id) == 3
    assert await harness.drain(queue, group) == [0, 1, 2]
    harness.clock.advance(2)
    assert (await append_due(harness.store)).queues[queue.id] == 2
    assert await harness.drain(queue, group) == [3, 4]


async def test_a_duplicate_among_those_that_find_no_room_is_dropped_and_the_others_wait(harness: Harness) -> None:
    queue = await harness.queue(max_size=1)
    group = await harness.group(queue)
    await schedule(harness, queue, ["a", "twice", "b"], seconds=1, ids=["a", "twice", "b"])
    await harness.push(queue, ["first"], partition="p", ids=["twice"])
    harness.clock.advance(1)
    assert (await append_due(harness.store)).queues.get(queue.id) is None
    assert [one.transaction_id for one in await harness.store.scheduled.page(queue)] == ["a", "b"]
    seen = []
    for _ in range(3):
        seen += await harness.drain(queue, group)
        harness.clock.advance(1)
        await append_due(harness.store)
    assert seen == ["first", "a", "b"]


async def test_what_waits_for_a_deleted_queue_goes_with_it(harness: Harness) -> None:
    queue = await harness.queue()
    await schedule(harness, queue, [0], seconds=1)
    await harness.store.queues.delete(queue.tenant, queue.name)
    harness.clock.advance(1)
    assert (await append_due(harness.store)).queues.get(queue.id) is None
    assert await harness.store.scheduled.page(queue) == []
    assert isinstance(await schedule_gone(harness, queue), Gone)


async def schedule_gone(harness: Harness, queue: Queue) -> Added | Duplicates | Gone:
    other = await harness.partition(await harness.queue("there"), "p")
    slice = harness.slice(queue, other, [0])
    slice.partition = PartitionId(0, 2**40)
    [kept] = await harness.store.scheduled.add([ScheduledSlice(slice, "p", [harness.clock()], [0])])
    return kept


async def test_what_waits_survives_and_expires_by_the_time_it_came(harness: Harness) -> None:
    queue = await harness.queue(ttl_seconds=10)
    await schedule(harness, queue, ["later"], seconds=3600)
    await harness.reopen()
    harness.clock.advance(3600)
    await append_due(harness.store)
    assert await harness.drain(queue) == ["later"], "its life begins when it is due"
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


@pytest.mark.usefixtures("only_when_told")
async def test_a_broker_delivers_on_time_and_wakes_who_waits(harness: Harness) -> None:
    await harness.reopen(own_clock=True)
    broker, queue = harness.broker, harness.name("timed")
    poll = asyncio.create_task(broker.pop(queue, wait=20))
    began = time.monotonic()
    outcome = await broker.push(queue, "later", delay_ms=700, transaction_id="it")
    assert outcome.status == "scheduled"
    assert (await broker.push(queue, "again", delay_ms=700, transaction_id="it")).status == "duplicate"
    [delivery] = await poll
    took = time.monotonic() - began
    assert (delivery.data, delivery.transaction_id, delivery.id) == ("later", "it", outcome.message_id)
    assert took >= 0.65


async def test_a_broker_cancels_and_reschedules_by_id(harness: Harness) -> None:
    broker, queue = harness.broker, harness.name("timed")
    at = harness.clock()
    for name in ("a", "b"):
        await broker.push(queue, name, transaction_id=name, deliver_at=at + 60_000_000)
    assert (await broker.push(queue, "past", deliver_at=at - 1_000_000)).status == "queued"
    assert await broker.scheduled.cancel(queue, "a")
    assert await broker.scheduled.reschedule(queue, "b", deliver_at=at + 1_000_000)
    assert [one.transaction_id for one in (await broker.scheduled.page(queue)).messages] == ["b"]
    harness.clock.advance(1)
    await harness.store.scheduled.append_due(limit=10)
    assert [delivery.data for delivery in await broker.pop(queue, batch=10)] == ["past", "b"]


async def test_a_partition_whose_time_lies_ahead_lets_no_message_of_another_come_early(harness: Harness) -> None:
    """The clock stepped back after a message was stored there."""
    queue = await harness.queue()
    harness.clock.advance(1800)
    await harness.push(queue, ["ahead"])
    await harness.reopen(own_clock=True)
    broker, now = harness.broker, await harness.store.now()
    await broker.push(queue.name, "the time of the one before it")
    later = await broker.push(harness.name("timed"), "later", deliver_at=now + 900 * 1_000_000)
    assert later.status == "scheduled"


async def test_a_broker_takes_datetimes_and_texts_as_times(harness: Harness) -> None:
    name, at = harness.name("reminders"), datetime(2040, 1, 31, 12, tzinfo=UTC)
    for form in (at, at.isoformat(), 2_211_624_000_000_000):
        outcome = await harness.broker.push(name, 1, deliver_at=form)
        assert (outcome.status, outcome.deliver_at) == ("scheduled", 2_211_624_000_000_000)
    with pytest.raises(InvalidRequest, match="without a time zone"):
        await harness.broker.push(name, 1, deliver_at=at.replace(tzinfo=None))
