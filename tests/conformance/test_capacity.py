"""Capacity: `max_size` is exact, whatever is acked, skipped, replayed or pushed."""

from __future__ import annotations

import pytest

from fairlane.model.group import Seek, Subscription
from fairlane.model.names import COMMANDS, QUEUE_MODE
from fairlane.model.queue import Queue
from fairlane.store.contract.values import DeadFilter, Duplicates, Full, Gone, LaneAck, Stored
from tests.conformance.harness import Harness
from tests.conformance.test_declared import map_to_command

LOOK = Subscription(look=True)


async def room(harness: Harness, queue: Queue) -> int:
    """Return how many more messages fit, by pushing until the queue is full."""
    fitted = 0
    while isinstance(result := await harness.try_push(queue, ["probe"], partition="probe"), Stored):
        fitted += 1
        assert result.depth == await harness.store.queues.depth(queue.id)
    assert isinstance(result, Full)
    assert (result.depth, result.capacity) == (queue.options.max_size, queue.options.max_size)
    return fitted


async def test_a_queue_takes_what_fits_and_not_one_more(harness: Harness) -> None:
    queue = await harness.queue(max_size=3)
    stored = [await harness.push(queue, [n], partition=f"p{n}") for n in range(3)]
    assert [(one.depth, one.capacity) for one in stored] == [(1, 3), (2, 3), (3, 3)]
    for partition in ("p0", "new"):
        assert await harness.try_push(queue, [9], partition=partition) == Full(3, 3)
    assert await harness.store.queues.depth(queue.id) == 3
    assert sorted(await harness.drain(queue)) == [0, 1, 2]


async def test_a_slice_that_does_not_fit_is_refused_whole(harness: Harness) -> None:
    queue = await harness.queue(max_size=5)
    await harness.push(queue, [1, 2, 3])
    assert await harness.try_push(queue, [4, 5, 6]) == Full(3, 5)
    assert (await harness.push(queue, [4, 5])).first == 3


async def test_slices_of_one_call_for_one_queue_fit_together_or_none_is_stored(harness: Harness) -> None:
    queue, other = await harness.queue(max_size=7), await harness.queue(max_size=2)
    partitions = await harness.store.queues.ensure_partitions(queue.id, list("abcdefgh"))
    slices = [harness.slice(queue, partition, [partition.name]) for partition in partitions]
    apart = harness.slice(other, await harness.partition(other), [0, 1])
    results = await harness.store.messages.push([*slices, apart])
    assert results[:-1] == [Full(0, 7)] * 8
    assert isinstance(results[-1], Stored)
    assert await harness.store.queues.depth(queue.id) == 0
    results = await harness.store.messages.push(slices[1:])
    assert all(isinstance(result, Stored) for result in results)
    assert {result.depth for result in results if isinstance(result, Stored)} == {7}
    assert sorted(await harness.drain(queue)) == list("bcdefgh")


async def test_a_full_queue_refuses_no_other(harness: Harness) -> None:
    full, free, limited = await harness.queue(max_size=1), await harness.queue(), await harness.queue(max_size=9)
    await harness.push(full, [0])
    slices = [harness.slice(queue, await harness.partition(queue), [1]) for queue in (free, full, limited)]
    results = await harness.store.messages.push(slices)
    assert [type(result) for result in results] == [Stored, Full, Stored]


async def test_a_queue_without_a_limit_reports_none(harness: Harness) -> None:
    queue = await harness.queue()
    stored = await harness.push(queue, [0])
    assert (stored.depth, stored.capacity) == (None, None)


async def test_what_every_group_finished_makes_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=4)
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, [0, 1, 2, 3])
    await harness.ack(await harness.pop(queue, one), 3)
    assert await harness.try_push(queue, [4]) == Full(4, 4), "the slowest group counts"
    await harness.ack(await harness.pop(queue, two, batch=2))
    assert await harness.store.queues.depth(queue.id) == 2
    assert await room(harness, queue) == 2


async def test_a_duplicate_is_known_though_the_queue_is_full(harness: Harness) -> None:
    queue = await harness.queue(max_size=1)
    await harness.push(queue, [0], ids=["x"])
    assert isinstance(await harness.try_push(queue, [0], ids=["x"]), Duplicates)
    assert await harness.store.queues.depth(queue.id) == 1


async def test_a_duplicate_takes_no_place(harness: Harness) -> None:
    queue = await harness.queue(max_size=3)
    await harness.push(queue, [0], ids=["x"])
    for _ in range(5):
        assert isinstance(await harness.try_push(queue, [0], ids=["x"]), Duplicates)
    assert await room(harness, queue) == 2


async def test_leased_messages_still_take_their_place(harness: Harness) -> None:
    queue = await harness.queue(max_size=2)
    await harness.push(queue, [0, 1])
    taken = await harness.pop(queue)
    assert await harness.try_push(queue, [2]) == Full(2, 2)
    await harness.store.messages.release(taken.lease)
    assert await harness.try_push(queue, [2]) == Full(2, 2)


async def test_auto_acked_messages_make_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=3)
    await harness.group(queue)
    await harness.push(queue, [0, 1, 2])
    await harness.pop(queue, batch=2, auto_ack=True)
    assert await room(harness, queue) == 2


async def test_dead_messages_make_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=2, retry_limit=0, lease_seconds=5)
    await harness.group(queue)
    await harness.push(queue, [0, 1])
    assert (await harness.nack(await harness.pop(queue))).dead
    assert await harness.store.queues.depth(queue.id) == 1
    await harness.pop(queue)
    harness.clock.advance(5)
    assert not await harness.pop(queue), "given up on, because its lease was lost"
    assert await room(harness, queue) == 2


async def test_an_ack_without_a_lease_makes_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=2)
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [0, 1])
    await harness.pop(queue, group)
    await harness.apply(LaneAck(partition=partition.id, group_id=group.id, token=None, done=[(0, 1)]))
    assert await room(harness, queue) == 1


async def test_a_seek_takes_and_gives_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=4)
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2, 3])
    await harness.store.groups.seek(group.id, Seek("end"))
    assert await harness.store.queues.depth(queue.id) == 0
    await harness.store.groups.seek(group.id, Seek("position", 1))
    assert await harness.store.queues.depth(queue.id) == 3
    assert await room(harness, queue) == 1


async def test_a_new_group_that_reads_history_takes_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=3)
    await harness.group(queue, "first")
    await harness.push(queue, [0, 1, 2])
    first = await harness.store.groups.get(queue.id, "first")
    assert first is not None
    await harness.drain(queue, first)
    assert await harness.store.queues.depth(queue.id) == 0
    await harness.group(queue, "fresh", Subscription("new"))
    assert await harness.store.queues.depth(queue.id) == 0
    await harness.group(queue, "all")
    assert await harness.store.queues.depth(queue.id) == 3
    assert await room(harness, queue) == 0


async def test_the_first_group_may_give_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=2)
    await harness.push(queue, [0, 1])
    await harness.group(queue, "fresh", Subscription("new"))
    assert await harness.store.queues.depth(queue.id) == 0
    assert await room(harness, queue) == 2


async def test_a_deleted_group_gives_its_room_back(harness: Harness) -> None:
    queue = await harness.queue(max_size=3)
    slow, quick = await harness.group(queue, "slow"), await harness.group(queue, "quick")
    await harness.push(queue, [0, 1, 2])
    await harness.drain(queue, quick)
    assert await harness.store.queues.depth(queue.id) == 3
    await harness.store.groups.delete(slow.id)
    assert await harness.store.queues.depth(queue.id) == 0
    await harness.store.groups.delete(quick.id)
    assert await harness.store.queues.depth(queue.id) == 3, "without a group all that is retained counts"


async def test_a_limit_set_later_counts_what_is_there(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.group(queue)
    await harness.push(queue, [0, 1, 2], partition="a")
    await harness.push(queue, [3, 4], partition="b")
    await harness.ack(await harness.pop(queue, batch=1))
    limited = await harness.configure(queue, max_size=6)
    assert await harness.store.queues.depth(queue.id) == 4
    assert await room(harness, limited) == 2


async def test_a_limit_set_below_the_depth_refuses_until_there_is_room(harness: Harness) -> None:
    queue = await harness.queue(max_size=5)
    await harness.push(queue, [0, 1, 2, 3])
    lower = await harness.configure(queue, max_size=2)
    assert await harness.try_push(lower, [4]) == Full(4, 2)
    taken = await harness.pop(lower)
    await harness.ack(taken, 2)
    assert await harness.try_push(lower, [4]) == Full(2, 2)
    await harness.ack(taken, 3)
    assert await room(harness, lower) == 1


async def test_a_limit_taken_away_and_set_again_counts_anew(harness: Harness) -> None:
    queue = await harness.queue(max_size=2)
    await harness.push(queue, [0, 1])
    free = await harness.configure(queue)
    await harness.push(free, [2, 3, 4])
    await harness.ack(await harness.pop(free, batch=1))
    assert await harness.store.queues.depth(queue.id) == 4
    limited = await harness.configure(queue, max_size=6)
    assert await harness.store.queues.depth(queue.id) == 4
    assert await room(harness, limited) == 2


async def test_a_caller_that_does_not_know_of_a_limit_is_told_to_look_again(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.configure(queue, max_size=1)
    assert await harness.try_push(queue, [0, 1]) == Gone()
    assert await harness.store.queues.depth(queue.id) == 0


async def test_a_caller_that_knows_an_old_limit_is_held_to_the_present_one(harness: Harness) -> None:
    queue = await harness.queue(max_size=100)
    await harness.configure(queue, max_size=1)
    result = await harness.try_push(queue, [0, 1])
    assert result in (Full(0, 1), Gone())
    assert await harness.store.queues.depth(queue.id) == 0


async def test_depth_is_counted_without_a_limit_too(harness: Harness) -> None:
    queue = await harness.queue()
    assert await harness.store.queues.depth(queue.id) == 0
    await harness.push(queue, [0, 1, 2], partition="a")
    await harness.push(queue, [3], partition="b")
    assert await harness.store.queues.depth(queue.id) == 4
    one, _two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.drain(queue, one)
    assert await harness.store.queues.depth(queue.id) == 4
    await harness.group(queue, "fresh", Subscription("new"))
    assert await harness.store.queues.depth(queue.id) == 4


async def test_a_replayed_letter_takes_a_place(harness: Harness) -> None:
    queue = await harness.queue(max_size=2, retry_limit=0)
    await harness.push(queue, [0])
    await harness.nack(await harness.pop(queue))
    await harness.store.dead_letters.replay(queue.id, DeadFilter())
    assert await harness.store.queues.depth(queue.id) == 1
    assert await room(harness, queue) == 1


async def depth(harness: Harness, queue: Queue) -> int:
    """Return the depth that the store keeps, and check it against a count."""
    kept = await harness.store.queues.depth(queue.id)
    [counted] = await harness.store.statistics.queues([queue.id])
    assert counted.unfinished == kept
    return kept


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_look_takes_no_place_beside_consumers(harness: Harness, ordering: str) -> None:
    queue = await harness.queue(max_size=4, ordering=ordering, retry_limit=0)
    broker = harness.broker
    look, _ = await harness.group(queue, "me", LOOK), await harness.group(queue, "billing")

    async def consume() -> None:
        while taken := await broker.pop(queue.name, group="billing", batch=10):
            await broker.ack(taken)

    await harness.push(queue, [0, 1, 2, 3])
    await broker.ack(await broker.pop(queue.name, group="me", subscription=LOOK))
    assert await depth(harness, queue) == 4, "it gives none either"
    await consume()
    assert await depth(harness, queue) == 0
    held = await broker.pop(queue.name, group="me", subscription=LOOK)
    assert await depth(harness, queue) == 0
    await broker.nack(held)
    assert await depth(harness, queue) == 0
    await harness.push(queue, [4, 5, 6, 7])
    await harness.store.groups.seek(look.id, Seek("end"))
    assert await harness.try_push(queue, [8]) == Full(4, 4)
    assert await harness.store.browse.delete((await harness.partition(queue)).id, 5)
    assert await depth(harness, queue) == 3
    await consume()
    await harness.store.groups.seek(look.id, Seek("beginning"))
    assert await depth(harness, queue) == 0
    assert await room(harness, queue) == 4


async def test_looks_that_are_alone_take_places_like_anybody(harness: Harness) -> None:
    queue = await harness.queue(max_size=2)
    look = await harness.group(queue, "me", LOOK)
    await harness.push(queue, [0, 1])
    assert await harness.try_push(queue, [2]) == Full(2, 2)
    await harness.drain(queue, look)
    assert await depth(harness, queue) == 0
    await harness.push(queue, [2, 3])
    consumer = await harness.group(queue, "billing")
    assert await depth(harness, queue) == 4, "from now on the consumer's count, which begins at the beginning"
    await harness.drain(queue, consumer)
    assert await depth(harness, queue) == 0
    await harness.store.groups.delete(consumer.id)
    assert await depth(harness, queue) == 2


async def test_a_look_is_a_consumers_from_its_first_pop_on(harness: Harness) -> None:
    queue = await harness.queue(max_size=3)
    await harness.group(queue, "me", LOOK)
    consumer = await harness.group(queue, "billing")
    await harness.push(queue, [0, 1, 2])
    await harness.drain(queue, consumer)
    assert (await harness.group(queue, "me", LOOK)).subscription == LOOK
    assert await depth(harness, queue) == 0
    taken_over = await harness.group(queue, "me")
    assert taken_over.subscription == Subscription()
    assert await depth(harness, queue) == 3
    assert (await harness.group(queue, "me", LOOK)).subscription == Subscription(), "a later look changes nothing"
    await harness.drain(queue, taken_over)
    assert await depth(harness, queue) == 0


@pytest.mark.parametrize("names", [(QUEUE_MODE, COMMANDS), (COMMANDS, QUEUE_MODE)])
async def test_where_messages_become_commands_a_pop_without_a_group_takes_no_place(
    harness: Harness, names: tuple[str, str]
) -> None:
    queue = await harness.queue(max_size=2)
    await map_to_command(harness, queue)
    groups = {name: await harness.group(queue, name) for name in names}
    await harness.push(queue, [0, 1])
    await harness.drain(queue, groups[COMMANDS])
    assert await depth(harness, queue) == 0
    await harness.group(queue, "audit")
    assert await depth(harness, queue) == 2, "other groups count as ever"
    await harness.store.groups.delete(groups[COMMANDS].id)
    assert await depth(harness, queue) == 2


async def test_a_pop_that_looks_makes_no_group_that_fills_the_queue(harness: Harness) -> None:
    queue = await harness.queue(max_size=1)
    broker = harness.broker
    await broker.pop(queue.name, subscription=LOOK)
    for n in range(3):
        await broker.push(queue.name, n)
        assert len(await broker.pop(queue.name, group="billing", auto_ack=True)) == 1
    await broker.pop(queue.name)
    assert await depth(harness, queue) == 3, "a consumer pops for it now"
