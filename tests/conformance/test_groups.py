"""Consumer groups: where each starts, that groups do not affect each other, and what a deletion leaves."""

from __future__ import annotations

import pytest

from fairlane.errors import NotFound
from fairlane.model.group import Subscription
from fairlane.model.names import DEFAULT_TENANT
from fairlane.store.contract.values import DeadFilter, LaneAck, PopCall, PopClaim
from tests.conformance.harness import Harness

# Partitions of a queue whose groups get their cursors in several steps of STEP.
MANY, STEP = 40, 7


async def test_every_group_sees_every_message_in_the_same_order(harness: Harness) -> None:
    queue = await harness.queue()
    groups = [await harness.group(queue, name) for name in ("one", "two", "three")]
    for number in range(5):
        await harness.push(queue, [number])
    for group in groups:
        assert await harness.drain(queue, group) == [0, 1, 2, 3, 4]


async def test_a_slow_or_failing_group_does_not_delay_another(harness: Harness) -> None:
    queue = await harness.queue(retry_delay_ms=60_000)
    slow, failing, quick = [await harness.group(queue, name) for name in ("slow", "failing", "quick")]
    await harness.push(queue, [0, 1])
    await harness.pop(queue, slow)
    await harness.nack(await harness.pop(queue, failing))
    assert await harness.drain(queue, quick) == [0, 1]


async def test_a_group_begins_with_all_history_unless_told_otherwise(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["old"])
    group = await harness.group(queue, "late")
    assert group.subscription == Subscription("all")
    await harness.push(queue, ["new"])
    assert await harness.drain(queue, group) == ["old", "new"]


async def test_a_new_group_begins_at_the_heads_of_its_first_pop(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["old a"], partition="a")
    await harness.push(queue, ["old b"], partition="b")
    group = await harness.group(queue, "fresh", Subscription("new"))
    assert not await harness.pop(queue, group)
    await harness.push(queue, ["new a"], partition="a")
    await harness.push(queue, ["new c"], partition="c")
    assert sorted(await harness.drain(queue, group)) == ["new a", "new c"]


async def test_a_new_group_on_an_empty_queue_misses_nothing_that_comes(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue, "fresh", Subscription("new"))
    assert not await harness.pop(queue, group)
    await harness.push(queue, [0])
    await harness.push(queue, [1], partition="b")
    again = await harness.group(queue, "fresh", Subscription("new"))
    assert again.id == group.id
    assert sorted(await harness.drain(queue, again)) == [0, 1]


async def test_a_group_from_a_time_begins_with_the_first_message_at_or_after_it(harness: Harness) -> None:
    queue = await harness.queue()
    times = []
    for number in range(4):
        times.append((await harness.push(queue, [number])).created_at)
        harness.clock.advance(10)

    async def seen_from(name: str, at: int) -> list[int]:
        group = await harness.group(queue, name, Subscription("time", at))
        return await harness.drain(queue, group)

    assert await seen_from("exactly", times[2]) == [2, 3]
    assert await seen_from("just after", times[2] + 1) == [3]
    assert await seen_from("before all", 0) == [0, 1, 2, 3]
    assert await seen_from("after all", times[3] + 1) == []
    far = await harness.group(queue, "future", Subscription("time", harness.clock() + 3_600_000_000))
    await harness.push(queue, ["now"])
    assert await harness.drain(queue, far) == ["now"], "a start in the future is the present"


async def test_a_group_keeps_its_first_decision(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, ["old"])
    group = await harness.group(queue, "g", Subscription("new"))
    for later in (Subscription("all"), Subscription("time", 0), Subscription("new")):
        again = await harness.store.groups.subscribe(queue.id, "g", later)
        assert (again.id, again.subscription) == (group.id, Subscription("new"))
    assert not await harness.pop(queue, group)
    await harness.push(queue, ["x"])
    assert await harness.drain(queue, group) == ["x"]


async def test_a_group_of_a_queue_that_is_gone_cannot_begin(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.store.queues.delete(DEFAULT_TENANT, queue.name)
    with pytest.raises(NotFound):
        await harness.store.groups.subscribe(queue.id, "g", Subscription())
    assert await harness.store.groups.get(queue.id, "g") is None


async def test_groups_are_found_and_listed(harness: Harness) -> None:
    queue = await harness.queue()
    assert await harness.store.groups.all(queue.id) == []
    one = await harness.group(queue, "one", Subscription("time", 123_456))
    two = await harness.group(queue, "two")
    assert await harness.store.groups.get(queue.id, "one") == one
    assert await harness.store.groups.get(queue.id, "three") is None
    assert {group.name for group in await harness.store.groups.all(queue.id)} == {"one", "two"}
    assert (one.subscription.from_at, one.created_at, one.queue_id) == (123_456, harness.clock(), queue.id)
    assert not one.seeding
    other = await harness.group(await harness.queue(), "one")
    assert len({one.id, two.id, other.id}) == 3


async def test_a_partition_born_later_has_a_reader_in_every_group(harness: Harness) -> None:
    queue = await harness.queue()
    groups = [await harness.group(queue, name) for name in ("one", "two")]
    await harness.push(queue, ["x"], partition="late")
    for group in groups:
        assert [lane.name for lane in await harness.store.groups.lanes(group.id)] == ["late"]
        assert await harness.drain(queue, group) == ["x"]


async def test_a_group_born_later_has_a_reader_in_every_partition(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.backend.seed_in_steps_of(monkeypatch, STEP)
    queue = await harness.queue()
    names = [f"{n:04}" for n in range(MANY)]
    born = await harness.store.queues.ensure_partitions(queue.id, names)
    await harness.store.messages.push([harness.slice(queue, one, [1]) for one in born])
    group = await harness.group(queue, "late")
    found = await harness.store.groups.get(queue.id, "late")
    assert found is not None
    assert not found.seeding
    lanes = await harness.store.groups.lanes(group.id, limit=MANY + 1)
    assert [lane.name for lane in lanes] == names
    assert all(lane.ready_at is not None for lane in lanes)


async def test_a_group_that_is_seeded_in_steps_begins_everywhere_at_one_moment(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.backend.seed_in_steps_of(monkeypatch, STEP)
    queue = await harness.queue()
    born = await harness.store.queues.ensure_partitions(queue.id, [f"{n:04}" for n in range(MANY)])
    await harness.store.messages.push([harness.slice(queue, one, ["old"]) for one in born])
    harness.clock.advance(1)
    group = await harness.store.groups.subscribe(queue.id, "fresh", Subscription("new"))
    assert group.seeding, "more partitions than one step makes cursors for"
    harness.clock.advance(1)
    await harness.store.messages.push([harness.slice(queue, one, ["new"]) for one in born])
    await harness.push(queue, ["new"], partition="born while seeding")
    seen = 0
    more = True
    while more:
        more = await harness.store.groups.seed(group.id)
        result = await harness.store.messages.pop(
            PopCall(
                queue_id=queue.id,
                group_id=group.id,
                claims=[PopClaim(harness.token(), 10_000, 10_000)],
                auto_ack=True,
            )
        )
        for lane in result.lanes[0]:
            assert lane.upto - lane.first == 1
            assert lane.first == (0 if lane.name == "born while seeding" else 1)
            seen += 1
    assert seen == MANY + 1


async def test_lanes_show_what_waits(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    await harness.push(queue, [0, 1, 2, 3], partition="a")
    await harness.push(queue, [0], partition="b")
    a = await harness.partition(queue, "a")
    taken = await harness.pop(queue, group, batch=3, partition=a.id)
    await harness.ack(taken, 1)
    lane, other = await harness.store.groups.lanes(group.id)
    assert (lane.name, lane.start, lane.head, lane.committed, lane.leased_until) == ("a", 0, 4, 1, 3)
    assert (other.name, other.head, other.committed, other.leased_until) == ("b", 1, 0, None)
    assert await harness.store.groups.lanes(group.id, partition=a.id) == [lane]
    assert await harness.store.groups.lanes(group.id, after="a") == [other]
    assert await harness.store.groups.lanes(group.id, limit=1) == [lane]
    assert await harness.store.groups.lanes(group.id, after="b") == []


async def test_the_next_ready_time_is_that_of_the_earliest_lane(harness: Harness) -> None:
    queue = await harness.queue(lease_seconds=30)
    group = await harness.group(queue)
    next_ready_at = harness.next_ready_at
    assert await next_ready_at(group.id) is None
    await harness.push(queue, [0], partition="a")
    assert await next_ready_at(group.id) == harness.clock()
    taken = await harness.pop(queue, group)
    assert await next_ready_at(group.id) == harness.clock() + 30_000_000
    harness.clock.advance(1)
    await harness.push(queue, [0], partition="b")
    assert await next_ready_at(group.id) == harness.clock()
    await harness.drain(queue, group)
    await harness.ack(taken)
    assert await next_ready_at(group.id) is None


async def test_a_deleted_group_is_forgotten_with_its_cursors_leases_and_dead_letters(
    harness: Harness,
) -> None:
    queue = await harness.queue(retry_limit=0)
    group, other = await harness.group(queue, "doomed"), await harness.group(queue, "other")
    await harness.push(queue, ["bad", "held"], partition="a")
    await harness.push(queue, ["x"], partition="b")
    a = await harness.partition(queue, "a")
    for each in (group, other):
        await harness.nack(await harness.pop(queue, each, batch=1, partition=a.id))
    taken = await harness.pop(queue, group, partition=a.id)
    assert await harness.store.groups.delete(group.id) == 2
    assert await harness.store.groups.delete(group.id) == 0
    assert await harness.store.groups.get(queue.id, "doomed") is None
    assert await harness.store.groups.lanes(group.id) == []
    assert (await harness.ack(taken)).state == "gone"
    assert (await harness.renew(taken.lease, seconds=60)).renewed == 0
    bare = LaneAck(partition=a.id, group_id=group.id, token=None, done=[(0, 2)])
    assert (await harness.apply(bare)).state == "gone"
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.group == "other"


async def test_a_group_made_again_under_its_name_begins_afresh(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue, "g")
    await harness.push(queue, ["a"])
    await harness.drain(queue, group)
    await harness.store.groups.delete(group.id)
    again = await harness.group(queue, "g")
    assert again.id != group.id
    assert await harness.drain(queue, again) == ["a"]


async def test_deleting_a_group_that_seeds_ends_its_seeding(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.backend.seed_in_steps_of(monkeypatch, STEP)
    queue = await harness.queue()
    await harness.store.queues.ensure_partitions(queue.id, [f"{n:04}" for n in range(MANY)])
    group = await harness.store.groups.subscribe(queue.id, "g", Subscription())
    assert group.seeding
    await harness.store.groups.delete(group.id)
    assert not await harness.store.groups.seed(group.id)
    assert await harness.store.groups.lanes(group.id) == []
