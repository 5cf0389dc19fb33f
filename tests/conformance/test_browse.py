"""Browsing: paging through messages, deleting, dead-lettering by hand, clearing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairlane.errors import NotFound
from fairlane.model.group import Group, Seek, Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.message import PushItem
from fairlane.model.queue import Partition, Queue
from fairlane.model.segment import pack
from fairlane.store.contract.browse import ListPosition, StoredHead, Upto
from fairlane.store.contract.values import DeadFilter, Duplicates, Full, Stored, ToDeadLetter
from tests.conformance.backends import Row
from tests.conformance.harness import Harness

FAR = 2**60


async def filled(harness: Harness, count: int, **options: Any) -> tuple[Queue, Group, PartitionId]:
    """Create a queue with messages 0, 1, ... up to `count` in one partition, and the group of its queue mode."""
    queue = await harness.queue(**options)
    group = await harness.group(queue)
    if count:
        await harness.push(queue, list(range(count)))
    return queue, group, (await harness.partition(queue)).id


async def waiting(harness: Harness, group: Group) -> int:
    lane = await harness.lane(group)
    return lane.head - max(lane.committed, lane.leased_until or 0) - lane.skipped


async def back(harness: Harness, *partitions: Partition, limit: int = 100, since: int = 0) -> list[StoredHead]:
    where = [Upto(partition.id, FAR) for partition in partitions]
    return await harness.store.browse.newest(where, since=since, limit=limit)


# Paging


async def test_messages_are_read_backward_with_their_ids(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    trace_id = "0198a3f0-0000-7000-8000-00000000000A"
    item = PushItem(queue=queue.name, payload=b"1", trace_id=trace_id, type="t")
    awkward = 'an "id" with \\ and \U0001f680 and \x1f' * 8
    message_id = harness.mint()
    slice_ = harness.slice(queue, partition, [0], ids=[awkward])
    slice_.fragments = [pack(message_id, awkward, item)]
    await harness.store.messages.push([slice_])
    first_at = harness.clock()
    harness.clock.advance(1)
    await harness.push(queue, ["x"], ids=["plain"])
    newer, older = await back(harness, partition)
    assert (newer.at, newer.transaction_id, newer.trace_id) == ((harness.clock(), partition.id, 1), "plain", None)
    assert older == StoredHead(ListPosition(first_at, partition.id, 0), message_id, awkward, trace_id)


async def test_browsing_backward_ends_at_its_limit_and_begins_below_its_bounds(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    times = []
    for step in range(4):
        times.append(harness.clock.advance(1))
        await harness.push(queue, [3 * step, 3 * step + 1, 3 * step + 2])
    everything = [head.at.position for head in await back(harness, partition)]
    assert everything == list(range(11, -1, -1))

    async def read(until: int = FAR, position: int = FAR, limit: int = 100, since: int = 0) -> list[int]:
        found = await harness.store.browse.newest([Upto(partition.id, until, position)], since=since, limit=limit)
        return [head.at.position for head in found]

    assert await read(limit=4) == [11, 10, 9, 8]
    assert await read(until=times[2]) == [5, 4, 3, 2, 1, 0]
    assert await read(until=times[2] + 1, position=8, limit=3) == [7, 6, 5]
    assert await read(since=times[3]) == [11, 10, 9]
    assert await read(position=0) == []


async def test_each_partition_is_read_for_itself_in_the_order_asked(harness: Harness) -> None:
    queue = await harness.queue()
    one, two, empty = await harness.store.queues.ensure_partitions(queue.id, ["one", "two", "empty"])
    await harness.push(queue, [1, 2, 3], partition="one")
    await harness.push(queue, [1, 2], partition="two")
    gone = Upto(PartitionId(0, 2**40), FAR)
    found = await harness.store.browse.newest(
        [Upto(two.id, FAR), gone, Upto(empty.id, FAR), Upto(one.id, FAR)], limit=2
    )
    assert [head.at[1:] for head in found] == [
        (two.id, 1),
        (two.id, 0),
        (one.id, 2),
        (one.id, 1),
    ]


async def test_partitions_come_latest_write_first_and_in_pages(harness: Harness) -> None:
    queue, other = await harness.queue(), await harness.queue()
    names = [f"p{n}" for n in range(7)]
    for name in names:
        if name != "p3":
            harness.clock.advance(1)
        await harness.push(queue, [1], partition=name)
    await harness.partition(queue, "never written to")
    harness.clock.advance(1)
    await harness.push(other, [1], partition="p0")
    browse = harness.store.browse
    everything = await browse.active([queue.id])
    assert sorted(entry.name for entry in everything) == names
    keys = [(entry.last_at, entry.id) for entry in everything]
    assert keys == sorted(keys, reverse=True)
    paged = []
    before = None
    while page := await browse.active([queue.id], before=before, limit=2):
        paged += page
        before = (page[-1].last_at, page[-1].id)
    assert paged == everything
    recent = await browse.active([queue.id], since=keys[1][0])
    assert [entry.name for entry in recent] == ["p6", "p5"]
    both = await browse.active([queue.id, other.id], name="p0")
    assert [entry.queue_id for entry in both] == [other.id, queue.id]


# Deleting


async def test_a_deleted_message_is_stepped_over(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 6)
    for position in (0, 2, 3):
        assert await harness.store.browse.delete(partition, position)
    assert await waiting(harness, group) == 3
    assert await harness.drain(queue, group) == [1, 4, 5]
    assert await waiting(harness, group) == 0
    assert not await harness.pop(queue, group)


async def test_a_batch_ends_before_a_deleted_message_and_goes_on_behind_it(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 6)
    await harness.store.browse.delete(partition, 2)
    taken = await harness.pop(queue, group)
    assert taken.data == [0, 1]
    await harness.ack(taken)
    taken = await harness.pop(queue, group)
    assert taken.data == [3, 4, 5]


async def test_a_lane_whose_last_messages_are_deleted_is_empty(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    await harness.ack(await harness.pop(queue, group, batch=1))
    for position in (2, 1):
        await harness.store.browse.delete(partition, position)
    assert await harness.next_ready_at(group.id) is None
    assert not await harness.pop(queue, group)
    await harness.push(queue, ["next"])
    assert await harness.drain(queue, group) == ["next"]


async def test_deleting_twice_or_what_is_not_there_says_so(harness: Harness) -> None:
    _, _, partition = await filled(harness, 2)
    browse = harness.store.browse
    assert await browse.delete(partition, 1)
    assert not await browse.delete(partition, 1)
    assert not await browse.delete(partition, 2)
    assert not await browse.delete(PartitionId(0, 2**40), 0)


async def test_a_deleted_message_is_not_found_or_listed(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    await harness.push(queue, [1, 2, 3], ids=["a", "b", "c"])
    await harness.store.browse.delete(partition.id, 1)
    assert await harness.store.messages.find(partition.id, "b") is None
    assert [head.transaction_id for head in await back(harness, partition)] == ["c", "a"]


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "kept"])
async def test_a_deleted_id_may_be_pushed_anew(harness: Harness, fresh: bool) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    name = harness.mint() if fresh else "an id"
    await harness.push(queue, ["old"], ids=[name])
    await harness.store.browse.delete(partition.id, 0)
    await harness.push(queue, ["new"], ids=[name])
    again = await harness.try_push(queue, ["newer"], ids=[name])
    assert isinstance(again, Duplicates)
    assert [found.position for found in again.found] == [1]
    assert await harness.store.messages.find(partition.id, name) == 1
    assert await harness.drain(queue) == ["new"]


async def test_deletion_holds_for_every_group_also_for_later_ones(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 4)
    await harness.ack(await harness.pop(queue, group))
    await harness.store.browse.delete(partition, 1)
    late = await harness.group(queue, "late", Subscription())
    assert await harness.drain(queue, late) == [0, 2, 3]
    await harness.store.groups.seek(group.id, Seek("beginning"))
    assert await harness.drain(queue, group) == [0, 2, 3]


async def test_who_holds_a_deleted_message_may_still_ack_it(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    taken = await harness.pop(queue, group)
    await harness.store.browse.delete(partition, 1)
    acked = await harness.ack(taken)
    assert (acked.state, acked.after, acked.released) == ("ok", 3, True)
    assert not await harness.pop(queue, group)


async def test_a_deleted_message_does_not_come_again_after_a_failure(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3, retry_limit=0)
    taken = await harness.pop(queue, group)
    await harness.store.browse.delete(partition, 0)
    await harness.nack(taken, 0)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0
    assert await harness.drain(queue, group) == [1, 2]


async def test_a_deleted_message_does_not_come_again_after_a_lost_lease(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3, lease_seconds=5)
    await harness.pop(queue, group)
    await harness.store.browse.delete(partition, 0)
    harness.clock.advance(5)
    assert await harness.drain(queue, group) == [1, 2]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_a_deleted_message_is_not_dead_lettered_by_its_holder(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2)
    taken = await harness.pop(queue, group)
    await harness.store.browse.delete(partition, 0)
    await harness.apply(harness.ordered_ack(taken, 2, dead_letters=[ToDeadLetter(0, "mine")]))
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0
    assert (await harness.lane(group)).dead == 0


async def test_deleting_the_message_a_lane_sleeps_for_wakes_the_lane(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2, retry_delay_ms=60_000)
    await harness.nack(await harness.pop(queue, group))
    assert not await harness.pop(queue, group)
    await harness.store.browse.delete(partition, 0)
    taken = await harness.pop(queue, group)
    assert taken.data == [1]
    assert taken.lane.attempts == 0


async def test_deletion_takes_the_dead_letter_along(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2, retry_limit=0)
    await harness.nack(await harness.pop(queue, group))
    await harness.store.browse.delete(partition, 0)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_deletion_makes_room_exactly_once(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3, max_size=3)
    other = await harness.group(queue, "other")
    browse, depth = harness.store.browse, harness.store.queues.depth
    await browse.delete(partition, 1)
    assert await depth(queue.id) == 2
    await harness.push(queue, [3])
    assert isinstance(await harness.try_push(queue, [4]), Full)
    assert await harness.drain(queue, group) == [0, 2, 3]
    assert await depth(queue.id) == 3
    assert await harness.drain(queue, other) == [0, 2, 3]
    assert await depth(queue.id) == 0
    await browse.delete(partition, 0)
    assert await depth(queue.id) == 0
    await harness.configure(queue)
    await harness.configure(queue, max_size=3)
    assert await depth(queue.id) == 0


async def test_depth_leaves_deleted_messages_out_also_without_a_limit(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    await harness.push(queue, [0, 1, 2])
    await harness.store.browse.delete(partition.id, 1)
    assert await harness.store.queues.depth(queue.id) == 2
    group = await harness.group(queue)
    await harness.ack(await harness.pop(queue, group))
    assert await harness.store.queues.depth(queue.id) == 1
    await harness.configure(queue, max_size=10)
    assert await harness.store.queues.depth(queue.id) == 1


async def test_a_finished_message_may_be_deleted_and_changes_no_depth(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3, max_size=10)
    await harness.ack(await harness.pop(queue, group, batch=2))
    assert await harness.store.browse.delete(partition, 0)
    assert await harness.store.queues.depth(queue.id) == 1
    assert await harness.drain(queue, group) == [2]
    assert await harness.store.queues.depth(queue.id) == 0


async def test_auto_ack_steps_over_deleted_messages(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 4, max_size=10)
    await harness.store.browse.delete(partition, 1)
    seen = []
    while taken := await harness.pop(queue, group, auto_ack=True):
        seen += taken.data
    assert seen == [0, 2, 3]
    assert await harness.store.queues.depth(queue.id) == 0


async def test_a_pop_and_a_deletion_at_once_agree(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2)
    async with harness.hold(Row.partition(partition)) as arrived:
        deleting = asyncio.create_task(harness.store.browse.delete(partition, 0))
        await arrived(deleting)
        popping = asyncio.create_task(harness.pop(queue, group, batch=1))
        await arrived(deleting, popping)
    assert await deleting
    taken = await popping
    if taken and taken.data == [0]:
        await harness.ack(taken)  # it was leased first
    elif taken:
        assert taken.data == [1]
        await harness.ack(taken)
    assert 0 not in await harness.drain(queue, group)


# Dead-lettering by hand


async def test_a_message_is_dead_lettered_ahead_of_the_cursor(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 4)
    assert await harness.store.browse.dead_letter(partition, group.id, 2, "by hand") == "dead"
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.position, letter.error, letter.attempts, letter.group) == (2, "by hand", 1, group.name)
    assert msgspec.json.decode(letter.message + b"}")["data"] == 2
    assert await waiting(harness, group) == 3
    assert (await harness.lane(group)).dead == 1
    assert await harness.drain(queue, group) == [0, 1, 3]
    assert (await harness.lane(group)).dead == 1


async def test_a_message_at_the_cursor_is_dead_lettered_and_the_lane_goes_on(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2, retry_delay_ms=60_000)
    await harness.nack(await harness.pop(queue, group), error="it failed")
    assert await harness.store.browse.dead_letter(partition, group.id, 0, "by hand") == "dead"
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.error, letter.attempts) == ("by hand", 1)
    lane = await harness.lane(group)
    assert (lane.committed, lane.attempts) == (1, 0)
    assert await harness.drain(queue, group) == [1]


async def test_what_is_finished_or_dead_is_not_dead_lettered_again(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    browse = harness.store.browse
    await harness.ack(await harness.pop(queue, group, batch=1))
    assert await browse.dead_letter(partition, group.id, 0, "late") == "finished"
    assert await browse.dead_letter(partition, group.id, 2, "once") == "dead"
    assert await browse.dead_letter(partition, group.id, 2, "twice") == "finished"
    assert await browse.dead_letter(partition, group.id, 9, "nothing there") == "gone"
    assert await browse.dead_letter(partition, group.id + 999, 1, "nobody") == "gone"
    await browse.delete(partition, 1)
    assert await browse.dead_letter(partition, group.id, 1, "deleted") == "gone"
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.error == "once"


async def test_only_the_group_named_gives_up(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    other = await harness.group(queue, "other")
    await harness.store.browse.dead_letter(partition, group.id, 1, "by hand")
    assert await harness.drain(queue, group) == [0, 2]
    assert await harness.drain(queue, other) == [0, 1, 2]


async def test_a_seek_brings_back_what_was_dead_lettered_by_hand(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    await harness.store.browse.dead_letter(partition, group.id, 1, "by hand")
    await harness.drain(queue, group)
    await harness.store.groups.seek(group.id, Seek("beginning"))
    assert await harness.drain(queue, group) == [0, 1, 2]


async def test_who_holds_what_is_dead_lettered_by_hand_may_still_ack_or_fail_it(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3, retry_limit=0)
    taken = await harness.pop(queue, group)
    assert await harness.store.browse.dead_letter(partition, group.id, 0, "by hand") == "dead"
    acked = await harness.nack(taken, 0)
    assert (acked.state, acked.dead) == ("ok", False)
    assert (await harness.lane(group)).dead == 1
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.error == "by hand"
    assert await harness.drain(queue, group) == [1, 2]


async def test_a_message_dead_lettered_by_hand_is_replayed(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 2)
    await harness.store.browse.dead_letter(partition, group.id, 1, "by hand")
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 1
    assert await harness.drain(queue, group) == [0, 1]


async def test_depth_is_exact_once_the_cursor_has_passed_a_message_dead_lettered_by_hand(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3, max_size=3)
    await harness.store.browse.dead_letter(partition, group.id, 1, "by hand")
    assert await harness.store.queues.depth(queue.id) == 3
    await harness.drain(queue, group)
    assert await harness.store.queues.depth(queue.id) == 0
    await harness.push(queue, [1, 2, 3])
    await harness.store.browse.dead_letter(partition, group.id, 3, "at the cursor")
    assert await harness.store.queues.depth(queue.id) == 2


# Clearing


async def test_a_partition_of_another_cell_is_unknown(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    elsewhere = PartitionId(200, partition.number)
    assert str(elsewhere) == f"200-{partition.number}"
    assert await harness.store.browse.clear(queue.id, partition=elsewhere) == 0
    assert not await harness.store.browse.delete(elsewhere, 0)
    assert await harness.store.messages.read(elsewhere, 0, 3) == []
    assert not await harness.pop(queue, group, partition=elsewhere)
    taken = await harness.pop(queue, group)
    assert await harness.store.messages.release(taken.lease, partition=elsewhere) == 0
    ack = harness.ordered_ack(taken, 3)
    ack.partition = elsewhere
    assert (await harness.apply(ack)).state == "gone"
    assert (await harness.ack(taken)).state == "ok"


async def test_a_cleared_queue_holds_nothing_and_goes_on(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    other = await harness.group(queue, "other")
    await harness.push(queue, [1, 2], partition="second")
    await harness.store.browse.delete(partition, 0)
    taken = await harness.pop(queue, group, partition=partition)
    assert await harness.store.browse.clear(queue.id) == 4
    assert (await harness.ack(taken)).state == "lost"
    for one in (group, other):
        assert not await harness.pop(queue, one)
        assert await harness.next_ready_at(one.id) is None
    assert await harness.store.queues.depth(queue.id) == 0
    assert await harness.store.browse.active([queue.id]) == []
    assert await harness.store.messages.read(partition, 0, 10) == []
    state = (await harness.store.statistics.partitions(queue.id))[0]
    assert (state.start, state.head) == (3, 3)
    assert (await harness.push(queue, ["next"])).first == 3
    assert await harness.drain(queue, other) == ["next"]
    late = await harness.group(queue, "late")
    assert await harness.drain(queue, late) == ["next"]
    assert await harness.store.browse.clear(queue.id) == 1


async def test_one_partition_is_cleared_alone(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3, max_size=10)
    await harness.push(queue, ["stays"], partition="second")
    assert await harness.store.browse.clear(queue.id, partition=partition) == 3
    assert await harness.store.queues.depth(queue.id) == 1
    assert await harness.drain(queue, group) == ["stays"]


async def test_a_clear_keeps_dead_letters_and_forgets_failures(harness: Harness) -> None:
    queue, group, _ = await filled(harness, 3, retry_limit=0, retry_delay_ms=1000)
    await harness.nack(await harness.pop(queue, group, batch=1))
    await harness.store.browse.clear(queue.id)
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.position == 0
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 1
    assert await harness.drain(queue, group) == [0]


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "kept"])
async def test_ids_may_be_pushed_anew_after_a_clear(harness: Harness, fresh: bool) -> None:
    queue, group, partition = await filled(harness, 0)
    names = [harness.mint() if fresh else f"id {n}" for n in range(3)]
    await harness.push(queue, [1, 2, 3], ids=names)
    await harness.store.browse.clear(queue.id)
    assert await harness.store.messages.find(partition, names[1]) is None
    assert isinstance(await harness.try_push(queue, [4, 5, 6], ids=names), Stored)
    assert isinstance(await harness.try_push(queue, [7], ids=names[:1]), Duplicates)
    assert await harness.drain(queue, group) == [4, 5, 6]


async def test_a_queue_that_is_gone_cannot_be_cleared(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.store.queues.delete(queue.tenant, queue.name)
    with pytest.raises(NotFound):
        await harness.store.browse.clear(queue.id)


async def test_the_rows_of_a_cleared_queue_are_gone(harness: Harness) -> None:
    queue, _, partition = await filled(harness, 0)
    for number in range(30):
        await harness.push(queue, [number])
    await harness.store.browse.clear(queue.id)
    for table in ("segments", "trims"):
        [(count,)] = await harness.backend.sql(
            f"SELECT count(*) FROM fairlane.{table} WHERE partition_id = $1", partition.id
        )
        assert count == 0, table


async def test_a_deleted_queue_takes_its_exceptions_along(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 3)
    await harness.store.browse.delete(partition, 1)
    await harness.store.browse.dead_letter(partition, group.id, 2, "by hand")
    await harness.store.queues.delete(queue.tenant, queue.name)
    [(count,)] = await harness.backend.sql("SELECT count(*) FROM fairlane.skips WHERE partition_id = $1", partition.id)
    assert count == 0


async def test_every_message_is_finished_waiting_dead_or_deleted(harness: Harness) -> None:
    queue, group, partition = await filled(harness, 40, retry_limit=1, lease_seconds=5)
    deleted = {5, 6, 7, 20, 39}
    for position in sorted(deleted):
        await harness.store.browse.delete(partition, position)
    by_hand = {11, 30}
    for position in sorted(by_hand):
        assert await harness.store.browse.dead_letter(partition, group.id, position, "by hand") == "dead"
    finished: set[int] = set()
    step = 0
    while taken := await harness.pop(queue, group, batch=4):
        step += 1
        assert not set(taken.positions) & (deleted | by_hand)
        lane = taken.lane
        if step % 3 == 0:
            acked = await harness.nack(taken, lane.first + step % (lane.upto - lane.first), upto=0)
            finished |= set(taken.positions) & set(range(acked.before, acked.after - acked.dead))
        elif step % 5 == 0:
            harness.clock.advance(5)
        else:
            await harness.ack(taken)
            finished |= set(taken.positions)
    dead = {letter.position for letter in await harness.store.dead_letters.page(queue.id, DeadFilter())}
    assert by_hand <= dead
    assert finished | dead | deleted == set(range(40))
    assert len(finished) + len(dead) + len(deleted) == 40
