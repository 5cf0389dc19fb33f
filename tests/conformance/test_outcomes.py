"""Calls of many callers are merged and each gets its own outcomes: a bad item never fails its neighbours."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.transact import AckStep
from fairlane.errors import AlreadyApplied, InvalidRequest, QueueFull, TransactionRefused
from fairlane.model.group import Subscription
from fairlane.model.message import Message, PushItem
from fairlane.model.outcome import AckItem
from tests.conformance.backends import Row
from tests.conformance.harness import Harness

# Different UUIDs with the same tail, by which they are looked up.
TWINS = ("11111111-1111-4111-8111-00000000abcd", "22222222-2222-4222-8111-00000000abcd")


def items(queue: str, *ids: str | None, partition: str = "Default") -> list[PushItem]:
    return [PushItem(queue=queue, payload=b"1", partition=partition, transaction_id=one) for one in ids]


async def forward(broker: Broker, delivery: Message[Any], queue: str, *, times: int = 1) -> None:
    """Push the result of a message and ack the message, like a consumer."""
    async with broker.transaction() as transaction:
        transaction.push(queue, "out")
        transaction.ack(delivery)
        assert 1 / times


async def test_a_push_is_answered_with_where_its_message_is(harness: Harness) -> None:
    queue = harness.name("orders")
    first = await harness.broker.push(queue, {"n": 1}, partition="p", transaction_id="mine")
    second = await harness.broker.push(queue, {"n": 2}, partition="p", type="t", headers={"h": "v"})
    assert (first.status, first.transaction_id, first.position) == ("queued", "mine", 0)
    assert (second.status, second.position) == ("queued", 1)
    assert second.transaction_id == second.message_id, "an id of its own when none was given"
    one, two = await harness.broker.pop(queue, batch=2)
    assert (one.id, one.transaction_id, one.partition_id) == (first.message_id, "mine", first.partition)
    assert (one.queue, one.partition, one.group) == (queue, "p", "__QUEUE_MODE__")
    assert (two.id, two.position, two.data, two.type, two.headers) == (
        second.message_id,
        1,
        {"n": 2},
        "t",
        {"h": "v"},
    )
    assert one.created_at == harness.clock()


async def test_a_repeated_push_names_the_first_message(harness: Harness) -> None:
    queue = harness.name("orders")
    first = await harness.broker.push(queue, 1, transaction_id="x")
    again = await harness.broker.push(queue, 2, transaction_id="x")
    assert (again.status, again.message_id, again.position) == ("duplicate", first.message_id, 0)
    assert again.partition == first.partition


async def test_within_one_call_the_first_wins(harness: Harness) -> None:
    queue = harness.name("orders")
    outcomes = await harness.broker.push_many(items(queue, "a", "b", "a", None, "a"))
    assert [one.status for one in outcomes] == ["queued", "queued", "duplicate", "queued", "duplicate"]
    assert len({outcomes[index].message_id for index in (0, 2, 4)}) == 1
    assert [one.position for one in outcomes] == [0, 1, 0, 2, 0]


async def test_duplicates_are_left_out_and_the_rest_is_stored(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.push_many(items(queue, "a", "b"))
    outcomes = await harness.broker.push_many(items(queue, "x", "b", "y", "a", "z"))
    assert [one.status for one in outcomes] == ["queued", "duplicate", "queued", "duplicate", "queued"]
    assert [one.position for one in outcomes] == [2, 1, 3, 0, 4]
    assert [one.transaction_id for one in await harness.broker.pop(queue, batch=9)] == list("abxyz")


async def test_what_was_stored_beside_duplicates_is_known_when_it_comes_again(harness: Harness) -> None:
    queue = harness.name("orders")
    fresh = harness.mint()
    await harness.broker.push_many(items(queue, "c", fresh))
    stored = await harness.broker.push_many(items(queue, "x", "c", fresh, "y", harness.mint()))
    assert [one.status for one in stored] == ["queued", "duplicate", "duplicate", "queued", "queued"]
    for outcome in stored:
        again = await harness.broker.push(queue, 1, transaction_id=outcome.transaction_id)
        assert (again.status, again.message_id) == ("duplicate", outcome.message_id)
    assert len(await harness.broker.pop(queue, batch=9)) == 5


@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
async def test_ids_that_share_a_key_are_different_messages(harness: Harness, together: bool) -> None:
    queue = harness.name("orders")
    if together:
        outcomes = await harness.broker.push_many(items(queue, *TWINS))
    else:
        outcomes = [await harness.broker.push(queue, one, transaction_id=one) for one in TWINS]
    assert [one.status for one in outcomes] == ["queued", "queued"]
    for outcome in (*outcomes, *outcomes[::-1]):
        again = await harness.broker.push(queue, 0, transaction_id=outcome.transaction_id)
        assert (again.status, again.message_id) == ("duplicate", outcome.message_id)
    batch = await harness.broker.pop(queue, batch=9)
    assert [one.transaction_id for one in batch] == list(TWINS)
    assert [one.success for one in await harness.broker.ack(batch[::-1])] == [True, True]


async def test_a_hundred_callers_are_each_answered(harness: Harness) -> None:
    queue = harness.name("orders")
    outcomes = await asyncio.gather(
        *(harness.broker.push(queue, n, partition=f"p{n % 3}", transaction_id=str(n)) for n in range(100))
    )
    assert [one.transaction_id for one in outcomes] == [str(n) for n in range(100)]
    assert Counter(one.status for one in outcomes) == {"queued": 100}
    assert len({(one.partition, one.position) for one in outcomes}) == 100
    batch = await harness.broker.pop(queue, batch=100, partitions=3)
    stored = {(one.partition_id, one.position): one.data for one in batch}
    assert stored == {(one.partition, one.position): n for n, one in enumerate(outcomes)}


async def test_one_caller_sees_its_own_pushes_in_order(harness: Harness) -> None:
    queue = harness.name("orders")

    async def produce(name: str) -> None:
        for n in range(10):
            await harness.broker.push(queue, [name, n])

    await asyncio.gather(*(produce(name) for name in "abcde"))
    seen = [one.data for one in await harness.broker.pop(queue, batch=50)]
    for name in "abcde":
        assert [n for who, n in seen if who == name] == list(range(10))


async def test_eight_callers_with_one_id_store_one_message(harness: Harness) -> None:
    other = await harness.second_broker()
    queue = harness.name("orders")
    outcomes = await asyncio.gather(
        *(broker.push(queue, 1, transaction_id="one") for broker in (harness.broker, other) for _ in range(4))
    )
    assert Counter(one.status for one in outcomes) == {"queued": 1, "duplicate": 7}
    assert len({one.message_id for one in outcomes}) == 1


async def test_a_full_queue_refuses_with_depth_capacity_and_a_time_to_wait(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue, max_size=2)
    stored = await harness.broker.push(queue, 1)
    assert (stored.depth, stored.capacity) == (1, 2)
    outcomes = await harness.broker.push_many(items(queue, None, None, partition="b"))
    assert [one.status for one in outcomes] == ["refused", "refused"]
    error = outcomes[0].error
    assert isinstance(error, QueueFull)
    assert (error.depth, error.capacity, error.code) == (1, 2, "QUEUE_FULL")
    assert error.retry_after > 0
    await harness.broker.push(queue, 2)
    with pytest.raises(QueueFull):
        await harness.broker.push(queue, 3)
    assert await harness.broker.queues.depth(queue) == 2


async def test_a_later_call_that_would_fit_does_not_pass_an_earlier_one_of_its_partition(harness: Harness) -> None:
    queue = harness.name("orders")
    made = await harness.broker.queues.configure(queue, max_size=4)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.queue(made.id)) as arrived:
        first = tasks.create_task(harness.broker.push_many(items(queue, None)))
        await arrived(first)
        rest = [
            tasks.create_task(harness.broker.push_many(items(queue, *[None] * count, partition=partition)))
            for count, partition in ((5, "a"), (1, "a"), (2, "b"))
        ]
        await asyncio.sleep(0)
    statuses = [{one.status for one in task.result()} for task in (first, *rest)]
    assert statuses == [{"queued"}, {"refused"}, {"refused"}, {"queued"}]


async def test_a_call_that_does_not_fit_refuses_no_other_caller(harness: Harness) -> None:
    queue = harness.name("orders")
    made = await harness.broker.queues.configure(queue, max_size=4)
    async with asyncio.TaskGroup() as tasks, harness.hold(Row.queue(made.id)) as arrived:
        first = tasks.create_task(harness.broker.push_many(items(queue, None)))
        await arrived(first)
        rest = [
            tasks.create_task(harness.broker.push_many(items(queue, *[None] * count, partition=str(count))))
            for count in (9, 1, 2)
        ]
        await asyncio.sleep(0)
    statuses = [{one.status for one in task.result()} for task in (first, *rest)]
    assert statuses == [{"queued"}, {"refused"}, {"queued"}, {"queued"}]
    assert await harness.broker.queues.depth(queue) == 4


async def test_a_caller_with_a_bad_partition_fails_alone(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue, ordering="fifo")
    pushes = [harness.broker.push(queue, n, partition="x" if n == 4 else "Default") for n in range(9)]
    outcomes = await asyncio.gather(*pushes, return_exceptions=True)
    assert [isinstance(one, InvalidRequest) for one in outcomes] == [n == 4 for n in range(9)]
    assert len(await harness.broker.pop(queue, batch=10)) == 8


async def test_pops_of_many_consumers_share_no_lane(harness: Harness) -> None:
    queue = harness.name("orders")
    for n in range(20):
        await harness.broker.push(queue, n, partition=str(n))
    batches = await asyncio.gather(*(harness.broker.pop(queue, partitions=2, batch=2) for _ in range(15)))
    seen = [one.data for batch in batches for one in batch]
    assert sorted(seen) == list(range(20))
    assert len({batch.lease for batch in batches if batch}) == len([batch for batch in batches if batch])


async def test_groups_decide_where_they_begin_at_their_first_pop(harness: Harness) -> None:
    queue = harness.name("orders")
    fresh = Subscription("new")
    assert not await harness.broker.pop(queue, group="g", subscription=fresh), "a queue nobody made yet"
    await harness.broker.push(queue, "after the first pop")
    assert not await harness.broker.pop(queue, group="later", subscription=fresh)
    for group, expected in (("g", ["after the first pop"]), ("later", []), ("history", ["after the first pop"])):
        assert [one.data for one in await harness.broker.pop(queue, group=group)] == expected


async def test_a_transaction_commits_acks_and_pushes_together(harness: Harness) -> None:
    source, target = harness.name("source"), harness.name("target")
    await harness.broker.push(source, 1)
    [delivery] = await harness.broker.pop(source)
    async with harness.broker.transaction() as transaction:
        transaction.ack(delivery, result="done")
        transaction.push(target, "out", transaction_id="out")
        assert not await harness.broker.pop(target)
    assert [one.data for one in await harness.broker.pop(target)] == ["out"]
    assert (await harness.broker.renew(delivery.lease)).renewed == 0


async def test_a_refused_transaction_applies_nothing_and_names_the_step(harness: Harness) -> None:
    source, target = harness.name("source"), harness.name("target")
    for n in range(2):
        await harness.broker.push(source, n, transaction_id=str(n))
    first, second = await harness.broker.pop(source, batch=2)
    known, unknown = (
        AckStep(AckItem(transaction_id=one, partition=first.partition_id, lease=first.lease), first.group)
        for one in (second.transaction_id, "never")
    )
    with pytest.raises(TransactionRefused, match="rolled back") as refused:
        await harness.broker.transact([*items(target, "out"), known, unknown])
    assert refused.value.index == 2
    assert not await harness.broker.pop(target)
    await harness.broker.release(first.lease)
    assert [one.data for one in await harness.broker.pop(source, batch=2)] == [0, 1]


async def test_a_transaction_with_a_lost_lease_is_refused(harness: Harness) -> None:
    source, target = harness.name("source"), harness.name("target")
    await harness.broker.queues.configure(source, lease_seconds=5)
    await harness.broker.push(source, 1)
    [delivery] = await harness.broker.pop(source)
    harness.clock.advance(5)
    with pytest.raises(TransactionRefused) as refused:
        await forward(harness.broker, delivery, target)
    assert refused.value.index == 1
    assert not await harness.broker.pop(target)


async def test_a_transaction_that_does_not_fit_is_refused(harness: Harness) -> None:
    source, target = harness.name("source"), harness.name("target")
    await harness.broker.queues.configure(target, max_size=1)
    await harness.broker.push(source, 1)
    await harness.broker.push(target, "there")
    [delivery] = await harness.broker.pop(source)
    with pytest.raises(TransactionRefused) as refused:
        await forward(harness.broker, delivery, target)
    assert refused.value.index == 0
    assert await harness.broker.queues.depth(target) == 1
    assert (await harness.broker.renew(delivery.lease)).renewed == 1


async def test_a_known_id_inside_a_transaction_is_an_idempotent_success(harness: Harness) -> None:
    source, target = harness.name("source"), harness.name("target")
    await harness.broker.push(source, 1)
    there = await harness.broker.push(target, "there", transaction_id="x")
    [delivery] = await harness.broker.pop(source)
    async with harness.broker.transaction() as transaction:
        transaction.ack(delivery)
        transaction.push(target, "again", transaction_id="x")
        transaction.push(target, "new", transaction_id="y")
    assert [one.data for one in await harness.broker.pop(target, batch=9)] == ["there", "new"]
    pushed = transaction.outcomes[1]
    assert getattr(pushed, "message_id", None) == there.message_id
    assert (await harness.broker.renew(delivery.lease)).renewed == 0


async def test_a_whole_transaction_may_be_repeated(harness: Harness) -> None:
    """The answer of the first call was lost."""
    source, target = harness.name("source"), harness.name("target")
    await harness.broker.push(source, 1)
    [delivery] = await harness.broker.pop(source)
    for _ in range(3):
        async with harness.broker.transaction() as transaction:
            transaction.ack(delivery)
            transaction.push(target, "out", transaction_id="out")
    assert [one.data for one in await harness.broker.pop(target, batch=9)] == ["out"]


async def test_a_transaction_that_comes_again_without_ids_is_told_that_it_was_applied(harness: Harness) -> None:
    source, target = harness.name("source"), harness.name("target")
    for n in range(2):
        await harness.broker.push(source, n)
    first, second = await harness.broker.pop(source, batch=2)
    for delivery in (first, second):  # the lease lives on after the first, and ends with the second
        await forward(harness.broker, delivery, target)
        for _ in range(2):
            with pytest.raises(AlreadyApplied, match="an earlier attempt applied") as refused:
                await forward(harness.broker, delivery, target)
            assert refused.value.index == 0
    assert [one.data for one in await harness.broker.pop(target, batch=9)] == ["out", "out"]


async def test_transactions_at_once_come_in_one_order_in_all_partitions(harness: Harness) -> None:
    """Transactions are serializable: no two of them appear in a different order in different partitions."""
    brokers = [harness.broker, await harness.second_broker()]
    queues = [harness.name("one"), harness.name("two")]

    async def push(broker: Broker, number: int) -> None:
        async with broker.transaction(isolation="serializable") as transaction:
            for queue in queues if number % 2 else reversed(queues):
                transaction.push(queue, number)

    for first in range(0, 40, 8):
        await asyncio.gather(*(push(brokers[number % 2], number) for number in range(first, first + 8)))
    one, two = [[message.data for message in await harness.broker.pop(queue, batch=100)] for queue in queues]
    assert one == two
    assert sorted(one) == list(range(40))


async def test_a_transaction_may_ask_for_an_isolation_level(harness: Harness) -> None:
    queue = harness.name("orders")
    levels: list[Any] = ["read committed", "repeatable read", "serializable"]
    for level in levels:
        async with harness.broker.transaction(isolation=level) as transaction:
            transaction.push(queue, level)
    assert [message.data for message in await harness.broker.pop(queue, batch=9)] == levels
    unknown: Any = "serializable; DROP TABLE x"
    with pytest.raises(InvalidRequest, match="must be one of serializable, repeatable read, read committed"):
        async with harness.broker.transaction(isolation=unknown):
            raise AssertionError("the block is not begun")


async def test_a_failure_inside_a_transaction_is_a_failed_attempt(harness: Harness) -> None:
    source = harness.name("source")
    await harness.broker.queues.configure(source, retry_limit=1)
    await harness.broker.push(source, 1)
    for attempts in range(2):
        [delivery] = await harness.broker.pop(source)
        assert delivery.failed_attempts == attempts
        async with harness.broker.transaction() as transaction:
            transaction.ack(delivery, "failed", error="no")
    [letter] = await harness.broker.dead_letters.page(source)
    assert letter.error == "no"
    assert not await harness.broker.pop(source)


async def test_a_block_that_raises_commits_nothing(harness: Harness) -> None:
    source, target = harness.name("source"), harness.name("target")
    await harness.broker.push(source, 1)
    [delivery] = await harness.broker.pop(source)
    with pytest.raises(ZeroDivisionError):
        await forward(harness.broker, delivery, target, times=0)
    assert not await harness.broker.pop(target)
    assert (await harness.broker.renew(delivery.lease)).renewed == 1


async def test_an_empty_transaction_is_nothing(harness: Harness) -> None:
    async with harness.broker.transaction() as transaction:
        pass
    assert transaction.outcomes == []


async def test_dead_letters_are_replayed_and_purged_by_queue_name(harness: Harness) -> None:
    queue = harness.name("orders")
    await harness.broker.queues.configure(queue, retry_limit=0)
    await harness.broker.push(queue, "bad")
    await harness.broker.nack(await harness.broker.pop(queue))
    [(_, message_id)] = await harness.broker.dead_letters.replay(queue)
    [again] = await harness.broker.pop(queue)
    assert (again.id, again.data) == (message_id, "bad")
    assert await harness.broker.dead_letters.purge(queue) == 1
    assert await harness.broker.dead_letters.page(queue) == []
