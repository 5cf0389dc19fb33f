"""Statistics of queues, partitions and groups, computed from heads and cursors."""

from __future__ import annotations

import pytest

from fairlane.model.group import Group, Seek, Subscription
from fairlane.model.stats import LANE_STATES, GroupStats, QueueStats
from fairlane.store.contract.values import DeadFilter
from tests.conformance.harness import Harness
from tests.conformance.test_unordered import finish


async def stats(harness: Harness, queue_id: int) -> QueueStats:
    [found] = await harness.store.statistics.queues([queue_id])
    return found


async def group_stats(harness: Harness, queue_id: int, group_id: int) -> GroupStats:
    [found] = [one for one in await harness.store.statistics.groups([queue_id]) if one.group_id == group_id]
    return found


async def test_a_queue_nobody_used_has_nothing(harness: Harness) -> None:
    queue = await harness.queue()
    found = await stats(harness, queue.id)
    assert (found.partitions, found.total, found.pending, found.leased, found.dead) == (0, 0, 0, 0, 0)
    assert found.last_at is None


async def test_a_queue_without_readers_has_everything_pending(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [1, 2, 3], partition="a")
    at = harness.clock.advance(1)
    await harness.push(queue, [4], partition="b")
    found = await stats(harness, queue.id)
    assert (found.partitions, found.total, found.unfinished, found.pending) == (2, 4, 4, 4)
    assert (found.completed, found.last_at) == (0, at)


async def test_messages_are_pending_then_leased_then_completed_or_dead(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, lease_seconds=10)
    group = await harness.group(queue)
    await harness.push(queue, list(range(10)))
    taken = await harness.pop(queue, group, batch=4)
    found = await stats(harness, queue.id)
    assert (found.total, found.pending, found.leased, found.completed) == (10, 6, 4, 0)
    await harness.nack(taken, 2, upto=2)
    found = await stats(harness, queue.id)
    assert (found.total, found.pending, found.leased, found.completed, found.dead) == (10, 7, 0, 2, 1)
    await harness.pop(queue, group, batch=4)
    harness.clock.advance(11)
    found = await stats(harness, queue.id)
    assert (found.pending, found.leased) == (7, 0), "a lease that ran out holds nothing"


async def test_a_message_that_failed_and_comes_again_is_counted(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=3)
    group = await harness.group(queue)
    await harness.push(queue, [1, 2])
    await harness.nack(await harness.pop(queue, group))
    assert (await stats(harness, queue.id)).failed == 1
    await harness.drain(queue, group)
    assert (await stats(harness, queue.id)).failed == 0


async def test_the_slowest_group_decides_and_the_largest_batch_is_leased(harness: Harness) -> None:
    queue = await harness.queue()
    fast, slow = await harness.group(queue, "fast"), await harness.group(queue, "slow")
    await harness.push(queue, list(range(6)))
    await harness.ack(await harness.pop(queue, fast, batch=5))
    await harness.pop(queue, fast, batch=1)
    await harness.pop(queue, slow, batch=2)
    found = await stats(harness, queue.id)
    assert (found.unfinished, found.leased, found.pending, found.completed) == (6, 2, 4, 0)


async def test_deleted_and_cleared_messages_are_not_counted(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, list(range(5)))
    await harness.store.browse.delete(partition.id, 3)
    found = await stats(harness, queue.id)
    assert (found.total, found.unfinished) == (4, 4)
    assert (await group_stats(harness, queue.id, group.id)).lag == 4
    [one] = await harness.store.statistics.partitions(queue.id)
    assert (one.total, one.unfinished) == (4, 4)
    await harness.store.browse.clear(queue.id)
    found = await stats(harness, queue.id)
    assert (found.total, found.unfinished, found.partitions) == (0, 0, 1)


async def test_replayed_letters_are_no_longer_counted(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    await harness.push(queue, [1])
    await harness.nack(await harness.pop(queue))
    assert (await stats(harness, queue.id)).dead == 1
    await harness.store.dead_letters.replay(queue.id, DeadFilter())
    assert (await stats(harness, queue.id)).dead == 0


async def test_queues_are_answered_in_the_order_asked_without_those_that_are_gone(harness: Harness) -> None:
    one, two, gone = await harness.queue(), await harness.queue(), await harness.queue()
    await harness.push(two, [1])
    await harness.store.queues.delete(gone.tenant, gone.name)
    found = await harness.store.statistics.queues([two.id, gone.id, one.id])
    assert [(each.queue_id, each.total) for each in found] == [(two.id, 1), (one.id, 0)]


async def test_partitions_have_numbers_and_times_of_their_own(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    group = await harness.group(queue)
    made_at = harness.clock()
    names = ["a", "b/%", "c", "d"]
    for name in names:
        await harness.partition(queue, name)
    first_at = harness.clock.advance(1)
    await harness.push(queue, [1, 2, 3], partition="b/%")
    last_at = harness.clock.advance(1)
    await harness.push(queue, [4, 5], partition="b/%")
    partition = await harness.partition(queue, "b/%")
    await harness.nack(await harness.pop(queue, group, batch=1, partition=partition.id))
    await harness.pop(queue, group, batch=2, partition=partition.id)
    everything = await harness.store.statistics.partitions(queue.id)
    assert [one.name for one in everything] == names
    empty, busy = everything[0], everything[1]
    assert (empty.total, empty.oldest_at, empty.created_at) == (0, None, made_at)
    assert (busy.id, busy.start, busy.head) == (partition.id, 0, 5)
    assert (busy.total, busy.pending, busy.leased, busy.dead, busy.completed) == (5, 2, 2, 1, 0)
    assert (busy.oldest_at, busy.last_at) == (first_at, last_at)
    paged = []
    after = ""
    while page := await harness.store.statistics.partitions(queue.id, after=after, limit=3):
        paged += page
        after = page[-1].name
    assert paged == everything


async def test_a_group_lags_by_messages_and_by_time(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue, "reader")
    first_at = harness.clock.advance(1)
    await harness.push(queue, [1, 2], partition="a")
    second_at = harness.clock.advance(1)
    await harness.push(queue, [3], partition="a")
    await harness.push(queue, [4, 5], partition="b")
    found = await group_stats(harness, queue.id, group.id)
    assert (found.lanes, found.lagging, found.lag, found.finished) == (2, 2, 5, 0)
    assert found.oldest_at == first_at
    partition = await harness.partition(queue, "a")
    await harness.ack(await harness.pop(queue, group, batch=2, partition=partition.id))
    taken = await harness.pop(queue, group, batch=1, partition=partition.id)
    found = await group_stats(harness, queue.id, group.id)
    assert (found.lag, found.finished, found.oldest_at) == (3, 2, second_at)
    assert (found.leases, found.leased) == (1, 1)
    await harness.ack(taken)
    await harness.drain(queue, group)
    found = await group_stats(harness, queue.id, group.id)
    assert (found.lagging, found.lag, found.oldest_at, found.leases) == (0, 0, None, 0)


async def test_lanes_tell_since_when_they_wait(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    at = harness.clock.advance(1)
    await harness.push(queue, [1])
    harness.clock.advance(1)
    await harness.push(queue, [2])
    assert (await harness.lane(group)).oldest_at == at
    await harness.drain(queue, group)
    assert (await harness.lane(group)).oldest_at is None


async def test_lagging_lanes_come_oldest_first(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue, "reader")
    times = []
    for name in "abc":
        times.append(harness.clock.advance(10))
        await harness.push(queue, [1, 2], partition=name)
    partition = await harness.partition(queue, "a")
    await harness.pop(queue, group, batch=1, partition=partition.id)
    lagging = harness.store.statistics.lagging
    everything = await lagging([queue.id], oldest_before=harness.clock() + 1)
    assert [(one.partition_name, one.offset_lag, one.oldest_unconsumed_at) for one in everything] == [
        ("a", 2, times[0]),
        ("b", 2, times[1]),
        ("c", 2, times[2]),
    ]
    assert {(one.queue_id, one.consumer_group) for one in everything} == {(queue.id, "reader")}
    assert everything[0].partition_id == partition.id
    assert everything[0].lease_ends_at is not None
    assert everything[1].lease_ends_at is None
    assert await lagging([queue.id], oldest_before=times[1]) == everything[:1]
    assert await lagging([queue.id], oldest_before=harness.clock() + 1, limit=2) == everything[:2]


async def test_standings_tell_how_far_each_group_is(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, [1, 2, 3], partition="a")
    await harness.push(queue, [4], partition="b")
    a, b = await harness.partition(queue, "a"), await harness.partition(queue, "b")
    await harness.ack(await harness.pop(queue, one, batch=1, partition=a.id))
    await harness.pop(queue, two, batch=2, partition=a.id)
    found = {
        (standing.partition, standing.group): standing
        for standing in await harness.store.statistics.standings([b.id, a.id])
    }
    assert set(found) == {(a.id, "one"), (a.id, "two"), (b.id, "one"), (b.id, "two")}
    assert (found[a.id, "one"].committed, found[a.id, "one"].leased_until) == (1, None)
    held = found[a.id, "two"]
    assert (held.committed, held.leased_until) == (0, 2)
    assert held.lease_ends_at == harness.clock() + 30_000_000


async def test_dead_messages_are_told_apart(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    await harness.push(queue, [1, 2, 3])
    partition = await harness.partition(queue)
    await harness.nack(await harness.pop(queue))
    positions = [(partition.id, position) for position in range(3)]
    assert await harness.store.statistics.dead_among(positions) == {(partition.id, 0)}
    assert await harness.store.statistics.dead_among([]) == set()


async def test_a_group_deleted_but_for_its_subscription_begins_anew_there(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["history"])
    harness.clock.advance(1)
    new = await harness.group(queue, "new", Subscription("new"))
    everything = await harness.group(queue, "all")
    harness.clock.advance(1)
    await harness.push(queue, ["one", "two"])
    assert await harness.drain(queue, new) == ["one", "two"]
    assert await harness.drain(queue, everything) == ["history", "one", "two"]
    for group in (new, everything):
        assert await harness.store.groups.delete(group.id, keep_subscription=True) == 1
        assert (await group_stats(harness, queue.id, group.id)).lanes == 0
    again = await harness.group(queue, "new")
    assert (again.id, again.subscription.mode) == (new.id, "new")
    assert await harness.drain(queue, again) == ["one", "two"]
    assert await harness.drain(queue, await harness.group(queue, "all")) == ["history", "one", "two"]


async def test_a_changed_subscription_counts_where_a_cursor_is_still_missing(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["old"])
    at = harness.clock.advance(1)
    await harness.push(queue, ["young"])
    group = await harness.group(queue, "reader")
    assert await harness.store.groups.resubscribe(group.id, Subscription("time", at))
    assert await harness.drain(queue, group) == ["old", "young"], "its cursor was there"
    await harness.store.groups.delete(group.id, keep_subscription=True)
    group = await harness.group(queue, "reader")
    assert group.subscription == Subscription("time", at)
    assert await harness.drain(queue, group) == ["young"]
    await harness.store.groups.delete(group.id)
    assert not await harness.store.groups.resubscribe(group.id, Subscription())


async def test_a_seek_end_leaves_no_lag(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [1, 2, 3])
    await harness.store.groups.seek(group.id, Seek("end"))
    assert (await group_stats(harness, queue.id, group.id)).lag == 0
    found = await stats(harness, queue.id)
    assert (found.total, found.unfinished, found.completed) == (3, 0, 3)


async def test_live_leases_are_told_the_next_to_end_first_and_no_others(harness: Harness) -> None:
    queue, other = await harness.queue(lease_seconds=60), await harness.queue(lease_seconds=60)
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, [1, 2, 3, 4], partition="a")
    await harness.push(other, [1])
    await harness.pop(other)
    began = harness.clock()
    first = await harness.pop(queue, one, batch=3)
    harness.clock.advance(10)
    second = await harness.pop(queue, two, batch=1, lease_seconds=20)
    await harness.ack(first, upto=1)
    leases = harness.store.statistics.leases
    found = await leases([queue.id])
    assert [(lease.consumer_group, lease.first, lease.upto, lease.committed) for lease in found] == [
        ("two", 0, 1, 0),
        ("one", 0, 3, 1),
    ]
    assert [lease.lease_id for lease in found] == [second.lease, first.lease]
    assert (found[1].queue_id, found[1].partition_id, found[1].partition) == (queue.id, first.lane.partition, "a")
    assert (found[1].leased_at, found[1].expires_at) == (began, began + 60_000_000)
    assert [lease.consumer_group for lease in await leases([queue.id], ends_before=harness.clock() + 30_000_000)] == [
        "two"
    ]
    assert [lease.consumer_group for lease in await leases([queue.id], group="one")] == ["one"]
    assert [lease.consumer_group for lease in await leases([queue.id], limit=1)] == ["two"]
    assert {lease.queue_id for lease in await leases([queue.id, other.id])} == {queue.id, other.id}
    harness.clock.advance(20)
    assert [lease.consumer_group for lease in await leases([queue.id])] == ["one"], "what ran out is no lease"
    await harness.ack(first)
    assert await leases([queue.id]) == []


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_group_tells_when_somebody_took_something_last(
    harness: Harness, ordering: str, *, auto_ack: bool
) -> None:
    queue = await harness.queue(ordering=ordering, lease_seconds=10)
    group = await harness.group(queue)
    await harness.push(queue, [1, 2])
    assert (await group_stats(harness, queue.id, group.id)).taken_at is None
    at = harness.clock.advance(5)
    taken = await harness.pop(queue, group, batch=1, auto_ack=auto_ack)
    harness.clock.advance(1)
    if not auto_ack:
        await (finish(harness, taken) if ordering == "unordered" else harness.ack(taken))
    assert (await group_stats(harness, queue.id, group.id)).taken_at == at


async def states(harness: Harness, group: Group) -> dict[str, int]:
    found = await group_stats(harness, group.queue_id, group.id)
    return {state: count for state in LANE_STATES if (count := getattr(found, state))}


@pytest.mark.parametrize(("policy", "state"), [("block", "blocked"), ("park", "parked")])
async def test_lanes_that_a_message_stops_are_counted(harness: Harness, policy: str, state: str) -> None:
    queue = await harness.queue(retry_limit=0, on_exhausted=policy)
    group = await harness.group(queue)
    for name in "abc":
        await harness.push(queue, [1, 2], partition=name)
    assert await states(harness, group) == {}
    for name in "ab":
        stopped = (await harness.partition(queue, name)).id
        await harness.nack(await harness.pop(queue, group, partition=stopped))
        assert not await harness.pop(queue, group, partition=stopped)
    assert await states(harness, group) == {state: 2}
    assert await harness.store.pauses.resume_lanes(group.id) == 2
    await harness.drain(queue, group)
    assert await states(harness, group) == {}


async def test_paused_and_retrying_lanes_are_counted(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=3)
    group = await harness.group(queue)
    for name in "abc":
        await harness.push(queue, [1, 2], partition=name)
    paused, failing = (await harness.partition(queue, "a")).id, (await harness.partition(queue, "b")).id
    await harness.store.pauses.pause(queue.id, partition=paused)
    await harness.nack(await harness.pop(queue, group, partition=failing))
    assert await states(harness, group) == {"paused": 1, "retrying": 1}
    await harness.store.pauses.resume(queue.id, partition=paused)
    await harness.drain(queue, group)
    assert await states(harness, group) == {}


async def test_a_lane_of_an_unordered_queue_is_retrying_while_one_of_its_messages_is(harness: Harness) -> None:
    queue = await harness.queue(ordering="unordered", retry_limit=5, lease_seconds=10)
    group = await harness.group(queue)
    await harness.push(queue, [1])
    assert await harness.pop(queue, group)
    harness.clock.advance(11)
    again = await harness.pop(queue, group)
    assert await states(harness, group) == {"retrying": 1}
    await finish(harness, again)
    assert await states(harness, group) == {}


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_lanes_that_lose_their_lease_again_and_again_are_counted(harness: Harness, ordering: str) -> None:
    queue = await harness.queue(ordering=ordering, lease_seconds=10, retry_limit=5)
    group = await harness.group(queue)
    await harness.push(queue, [1])
    for expected in (0, 0, 1):
        assert await harness.pop(queue, group)
        assert (await group_stats(harness, queue.id, group.id)).losing == expected
        harness.clock.advance(11)
    taken = await harness.pop(queue, group)
    await (finish(harness, taken) if ordering == "unordered" else harness.ack(taken))
    assert (await group_stats(harness, queue.id, group.id)).losing == 0
