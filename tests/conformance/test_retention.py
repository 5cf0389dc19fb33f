"""Retention: deletes what a rule covers, in bounded steps, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.errors import LeaseLost
from fairlane.model.group import Seek
from fairlane.model.queue import Queue
from fairlane.model.retention import RETENTION, Expired
from fairlane.model.stats import PartitionStats
from fairlane.store.contract.values import DeadFilter, Gone, LaneAck
from tests.conformance.harness import Harness

DAY = 86_400


async def run(harness: Harness) -> list[Expired]:
    """Run one pass of the retention service. Returns its deletions in the queues of this test."""
    token = await harness.store.leadership.lead(RETENTION, seconds=DAY, early=True)
    assert token is not None
    expired: list[Expired] = []
    more = True
    while more:
        step = await harness.store.retention.step(token)
        expired += step.expired
        more = step.more
    await harness.store.leadership.release(RETENTION, token, seconds=0)
    return expired


def total(expired: list[Expired], queue: Queue, rule: str) -> int:
    return sum(one.messages for one in expired if one.queue_id == queue.id and one.rule == rule)


async def bounds(harness: Harness, queue: Queue) -> PartitionStats:
    [state] = await harness.store.statistics.partitions(queue.id)
    return state


async def segments(harness: Harness, queue: Queue, name: str = "Default") -> int:
    """Count the rows of the log."""
    partition = await harness.partition(queue, name)
    [row] = await harness.backend.sql("SELECT count(*) FROM fairlane.segments WHERE partition_id = $1", partition.id.id)
    return int(row[0])


async def test_without_a_rule_nothing_ever_goes(harness: Harness) -> None:
    plain = await harness.queue()
    turned_off = await harness.queue(retention_seconds=1, completed_retention_seconds=1)
    no_seconds = await harness.queue(retention_enabled=True)
    for queue in (plain, turned_off, no_seconds):
        await harness.push(queue, [1, 2])
        await harness.drain(queue)
        await harness.push(queue, [3])
    harness.clock.advance(400 * DAY)
    await run(harness)
    for queue in (plain, turned_off, no_seconds):
        state = await bounds(harness, queue)
        assert (state.start, state.head) == (0, 3)
        assert await harness.drain(queue) == [3]


async def test_messages_older_than_the_rule_go_read_or_not(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    group = await harness.group(queue)
    await harness.push(queue, ["old", "older"])
    harness.clock.advance(30)
    await harness.push(queue, ["young"])
    harness.clock.advance(29)
    assert total(await run(harness), queue, "retention") == 0
    harness.clock.advance(1)
    assert total(await run(harness), queue, "retention") == 2
    assert (await bounds(harness, queue)).start == 2
    assert await segments(harness, queue) == 1
    assert await harness.drain(queue, group) == ["young"]
    harness.clock.advance(60)
    assert total(await run(harness), queue, "retention") == 1
    assert await segments(harness, queue) == 0


async def test_completed_messages_go_and_a_group_that_lags_is_never_robbed(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, completed_retention_seconds=60)
    fast, slow = await harness.group(queue, "fast"), await harness.group(queue, "slow")
    await harness.push(queue, [1, 2, 3])
    await harness.drain(queue, fast)
    await harness.ack(await harness.pop(queue, slow, batch=1))
    harness.clock.advance(30 * DAY)
    expired = await run(harness)
    assert total(expired, queue, "completed") == 1
    assert sum(one.unread for one in expired if one.queue_id == queue.id) == 0
    assert (await bounds(harness, queue)).start == 1
    assert await harness.drain(queue, slow) == [2, 3]
    harness.clock.advance(10 * DAY)  # the longer it waits, the less often it is checked
    assert total(await run(harness), queue, "completed") == 2


async def test_completed_messages_stay_for_their_time(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, completed_retention_seconds=60)
    group = await harness.group(queue)
    await harness.push(queue, [1])
    await harness.drain(queue, group)
    harness.clock.advance(59)
    assert total(await run(harness), queue, "completed") == 0
    await harness.store.groups.seek(group.id, Seek("beginning"))
    assert await harness.drain(queue, group) == [1]
    harness.clock.advance(1)
    assert total(await run(harness), queue, "completed") == 1


async def test_a_queue_that_nobody_reads_completes_nothing(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, completed_retention_seconds=1)
    await harness.push(queue, [1])
    harness.clock.advance(DAY)
    assert total(await run(harness), queue, "completed") == 0
    assert await harness.drain(queue) == [1]


async def test_a_leased_message_does_not_go_and_its_holder_may_finish_it(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60, lease_seconds=600)
    group = await harness.group(queue)
    await harness.push(queue, [1, 2, 3, 4])
    await harness.ack(await harness.pop(queue, group, batch=1))
    taken = await harness.pop(queue, group, batch=2)
    harness.clock.advance(120)
    assert total(await run(harness), queue, "retention") == 1
    assert (await harness.ack(taken)).state == "ok"
    harness.clock.advance(120)
    assert total(await run(harness), queue, "retention") == 3
    assert not await harness.pop(queue, group)


async def test_a_lease_that_ran_out_protects_nothing(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60, lease_seconds=10)
    group = await harness.group(queue)
    await harness.push(queue, [1, 2])
    taken = await harness.pop(queue, group, batch=2)
    harness.clock.advance(120)
    assert total(await run(harness), queue, "retention") == 2
    assert (await harness.ack(taken)).state == "lost"
    assert not await harness.pop(queue, group)
    await harness.push(queue, [3])
    assert await harness.drain(queue, group) == [3]


async def test_a_lane_that_sleeps_on_a_message_that_expired_goes_on_behind_it(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    group = await harness.group(queue)
    await harness.push(queue, ["poison"])
    await harness.nack(await harness.pop(queue, group), delay_ms=10 * DAY * 1000)
    harness.clock.advance(59)
    await harness.push(queue, ["next"])
    harness.clock.advance(1)
    assert total(await run(harness), queue, "retention") == 1
    taken = await harness.pop(queue, group)
    assert taken.data == ["next"]
    assert taken.lane.attempts == 0


async def test_what_expired_unread_is_told_apart(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    fast, slow = await harness.group(queue, "fast"), await harness.group(queue, "slow")
    await harness.push(queue, list(range(10)))
    await harness.drain(queue, fast)
    await harness.ack(await harness.pop(queue, slow, batch=4))
    harness.clock.advance(60)
    [gone] = [one for one in await run(harness) if one.queue_id == queue.id]
    assert (gone.rule, gone.messages, gone.unread) == ("retention", 10, 6)
    assert [(await harness.lane(group)).expired for group in (fast, slow)] == [0, 6]


async def test_depth_follows_what_expires(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60, max_size=5)
    nobody_reads = await harness.queue(retention_enabled=True, retention_seconds=60, max_size=5)
    group = await harness.group(queue)
    await harness.push(queue, [1, 2, 3])
    await harness.push(nobody_reads, [1, 2, 3])
    await harness.store.browse.delete((await harness.partition(queue)).id, 1)
    await harness.ack(await harness.pop(queue, group, batch=1))
    harness.clock.advance(30)
    await harness.push(queue, [4, 5])
    await harness.push(nobody_reads, [4, 5])
    assert await harness.store.queues.depth(queue.id) == 3
    harness.clock.advance(30)
    expired = await run(harness)
    assert (total(expired, queue, "retention"), total(expired, nobody_reads, "retention")) == (2, 3)
    assert await harness.store.queues.depth(queue.id) == 2
    assert await harness.store.queues.depth(nobody_reads.id) == 2
    await harness.configure(queue, max_size=0)
    assert await harness.store.queues.depth(queue.id) == 2, "counted and kept agree"


async def test_a_rule_given_to_a_queue_that_is_full_of_messages_covers_them(harness: Harness) -> None:
    queue = await harness.queue()
    for name in "abc":
        await harness.push(queue, [1, 2], partition=name)
    harness.clock.advance(DAY)
    await run(harness)
    await harness.configure(queue, retention_enabled=True, retention_seconds=2 * DAY)
    assert total(await run(harness), queue, "retention") == 0
    await harness.configure(queue, retention_enabled=True, retention_seconds=60)
    assert total(await run(harness), queue, "retention") == 6


async def test_a_rule_that_is_taken_back_deletes_nothing_more(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    await harness.push(queue, [1])
    await run(harness)
    await harness.configure(queue, retention_seconds=60)
    harness.clock.advance(DAY)
    assert total(await run(harness), queue, "retention") == 0
    await harness.push(queue, [2])
    await harness.configure(queue, retention_enabled=True, retention_seconds=60)
    assert total(await run(harness), queue, "retention") == 1


async def test_a_lane_that_was_empty_is_covered_again_by_its_next_message(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    for number in range(3):
        await harness.push(queue, [number])
        harness.clock.advance(60)
        assert total(await run(harness), queue, "retention") == 1


async def test_one_step_is_bounded_and_a_pass_goes_on_until_all_is_done(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    names = [f"p{number}" for number in range(120)]
    partitions = await harness.store.queues.ensure_partitions(queue.id, names)
    await harness.store.messages.push([harness.slice(queue, one, [1, 2]) for one in partitions])
    harness.clock.advance(60)
    token = await harness.store.leadership.lead(RETENTION, seconds=60, early=True)
    assert token is not None
    steps = 0
    gone = 0
    while True:
        step = await harness.store.retention.step(token, limit=16)
        steps += 1
        gone += total(step.expired, queue, "retention")
        if not step.more:
            break
    assert gone == 240
    assert steps > 1
    await harness.store.leadership.release(RETENTION, token, seconds=0)


async def test_only_the_leader_may_delete(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    await harness.push(queue, [1])
    harness.clock.advance(60)
    leadership = harness.store.leadership
    old = await leadership.lead(RETENTION, seconds=60, early=True)
    assert old is not None
    assert await (await harness.open_second()).leadership.lead(RETENTION, seconds=60, early=True) is None
    harness.clock.advance(60)
    new = await leadership.lead(RETENTION, seconds=60, early=True)
    assert new is not None
    assert new > old
    with pytest.raises(LeaseLost):
        await harness.store.retention.step(old)
    assert not await leadership.keep(RETENTION, old, seconds=60)
    await leadership.release(RETENTION, old, seconds=3600)
    assert await leadership.keep(RETENTION, new, seconds=60)
    assert total((await harness.store.retention.step(new)).expired, queue, "retention") == 1
    await leadership.release(RETENTION, new, seconds=0)
    with pytest.raises(LeaseLost):
        await harness.store.retention.step(new)


async def test_a_service_rests_for_all_brokers_unless_somebody_asks(harness: Harness) -> None:
    name = harness.name("service")
    leadership, second = harness.store.leadership, (await harness.open_second()).leadership
    token = await leadership.lead(name, seconds=60)
    assert token is not None
    await leadership.release(name, token, seconds=300)
    assert await second.lead(name, seconds=60) is None
    early = await second.lead(name, seconds=60, early=True)
    assert early is not None
    assert early > token
    await second.release(name, early, seconds=300)
    harness.clock.advance(300)
    assert await leadership.lead(name, seconds=60) is not None


async def test_what_went_is_kept_as_history(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    began = harness.clock()
    await harness.push(queue, [1, 2, 3])
    harness.clock.advance(60)
    await run(harness)
    await harness.push(queue, [4])
    harness.clock.advance(600)
    await run(harness)
    history = await harness.store.retention.history([queue.id], since=began, until=harness.clock())
    assert [(one.rule, one.messages, one.unread) for one in history] == [("retention", 3, 3), ("retention", 1, 1)]
    assert history[0].at <= history[1].at
    assert await harness.store.retention.history([queue.id], since=harness.clock() + 60_000_000, until=2**53) == []
    harness.clock.advance(100 * DAY)
    await run(harness)
    left = await harness.store.retention.history([queue.id], since=0, until=2**53)
    assert [one for one in left if one.rule == "retention"] == []


async def test_dead_letters_go_by_a_rule_of_their_own_and_outlive_the_log_without_one(harness: Harness) -> None:
    kept = await harness.queue(retry_limit=0, retention_enabled=True, retention_seconds=60)
    ruled = await harness.queue(retry_limit=0, dead_letter_retention_seconds=100)
    for queue in (kept, ruled):
        await harness.push(queue, ["x"])
        await harness.nack(await harness.pop(queue))
    harness.clock.advance(99)
    await run(harness)
    assert await harness.store.dead_letters.count(ruled.id, DeadFilter()) == 1
    harness.clock.advance(1)
    expired = await run(harness)
    assert total(expired, ruled, "dead_letters") == 1
    assert await harness.store.dead_letters.count(ruled.id, DeadFilter()) == 0
    assert (await bounds(harness, kept)).start == 1
    [letter] = await harness.store.dead_letters.page(kept.id, DeadFilter())
    assert await harness.store.dead_letters.replay(kept.id, DeadFilter(ids=[letter.id])) != []
    assert await harness.drain(kept) == ["x"]


async def test_empty_partitions_go_after_thirty_idle_days_and_may_come_back(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60)
    group = await harness.group(queue)
    await harness.push(queue, [1], partition="used once")
    await harness.push(queue, [1], partition="used again")
    old = await harness.partition(queue, "used once")
    harness.clock.advance(15 * DAY)
    await run(harness)
    await harness.push(queue, [2], partition="used again")
    harness.clock.advance(15 * DAY)
    await run(harness)
    assert await harness.store.queues.partition(old.id) is None
    assert [state.name for state in await harness.store.statistics.partitions(queue.id)] == ["used again"]
    result = await harness.store.messages.push([harness.slice(queue, old, [2])])
    assert result == [Gone()]
    assert (await harness.push(queue, [3], partition="used once")).first == 0
    assert sorted(await harness.drain(queue, group)) == [3]


async def test_an_empty_partition_with_a_dead_letter_stays(harness: Harness) -> None:
    queue = await harness.queue(retention_enabled=True, retention_seconds=60, retry_limit=0)
    await harness.push(queue, [1])
    await harness.nack(await harness.pop(queue))
    harness.clock.advance(40 * DAY)
    await run(harness)
    harness.clock.advance(40 * DAY)
    await run(harness)
    assert len(await harness.store.statistics.partitions(queue.id)) == 1
    await harness.store.dead_letters.purge(queue.id, DeadFilter())
    harness.clock.advance(40 * DAY)
    await run(harness)
    assert await harness.store.statistics.partitions(queue.id) == []


async def test_a_cleared_partition_goes_when_nobody_uses_it_any_more(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [1], partition="cleared")
    await harness.push(queue, [1], partition="cleared and used")
    await harness.store.browse.clear(queue.id)
    await harness.push(queue, [2], partition="cleared and used")
    harness.clock.advance(30 * DAY)
    await run(harness)
    assert [state.name for state in await harness.store.statistics.partitions(queue.id)] == ["cleared and used"]
    assert await harness.drain(queue) == [2]


async def test_retention_beside_pushes_pops_seeks_and_deletes_loses_nothing_it_should_keep(harness: Harness) -> None:
    """Every message is either read or counted as expired or deleted."""
    queue = await harness.queue(retention_enabled=True, completed_retention_seconds=1, max_size=10_000)
    group = await harness.group(queue)
    names = ["a", "b", "c", "d"]
    seen: set[tuple[str, int]] = set()
    done = asyncio.Event()

    async def produce(name: str) -> None:
        for number in range(0, 60, 3):
            await harness.push(queue, [[name, number + more] for more in range(3)], partition=name)
            harness.clock.advance(1)

    async def consume() -> None:
        while len(seen) < 240:
            taken = await harness.pop(queue, group, batch=5, partitions=2)
            for lane in taken.lanes:
                ack = LaneAck(partition=lane.partition, group_id=group.id, token=taken.token, done=[(0, lane.upto)])
                [acked] = await harness.store.messages.ack([ack])
                assert acked.state == "ok"
            seen.update((name, number) for name, number in taken.data)
        done.set()

    async def retain() -> int:
        gone = 0
        while not done.is_set():
            gone += total(await run(harness), queue, "completed")
        return gone

    producers = [asyncio.create_task(produce(name)) for name in names]
    retaining = asyncio.create_task(retain())
    await asyncio.wait_for(asyncio.gather(*producers, consume()), 60)
    gone = await retaining
    harness.clock.advance(DAY)
    gone += total(await run(harness), queue, "completed")
    assert gone == 240
    assert len(seen) == 240
    assert await harness.store.queues.depth(queue.id) == 0
