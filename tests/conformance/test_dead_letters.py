"""Dead letters: complete, listed, replayed once, and purged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlane.errors import QueueFull
from fairlane.model.message import PushItem
from fairlane.model.queue import Queue
from fairlane.model.segment import pack, unpack
from fairlane.store.contract.failures import StoredLetter
from fairlane.store.contract.values import DeadFilter
from tests.conformance.harness import Harness
from tests.conformance.operation_driver import enqueue, no_operations, work_off


async def kill(harness: Harness, queue: Queue, *payloads: Any, partition: str = "Default") -> list[StoredLetter]:
    """Push each payload and let all its attempts fail, a second apart. Returns the dead letters, oldest first."""
    group = await harness.group(queue)
    lane = await harness.partition(queue, partition)
    for payload in payloads:
        harness.clock.advance(1)
        await harness.push(queue, [payload], partition=partition)
        taken = await harness.pop(queue, group, partition=lane.id)
        while not (await harness.nack(taken, error=f"{payload} failed")).dead:
            taken = await harness.pop(queue, group, partition=lane.id)
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter(partition=lane.id))
    return letters[: len(payloads)][::-1]


async def test_a_replay_into_a_lane_with_operations_becomes_one(harness: Harness) -> None:
    await no_operations(harness)
    queue = await harness.queue(retry_limit=0)
    await kill(harness, queue, "dead")
    await kill(harness, queue, "other", partition="b")
    await enqueue(harness, queue, ["waits"])
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 2
    assert await harness.store.dead_letters.replay(queue.id, DeadFilter()) == [], "each is replayed once"
    assert await harness.store.operations.depth() == 2
    assert await harness.drain(queue) == ["other"]
    await work_off(harness, queue)
    assert await harness.drain(queue) == ["waits", "dead"]
    assert await harness.store.operations.depth() == 0


async def test_a_dead_letter_holds_the_whole_message_and_its_story(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=2)
    partition = await harness.partition(queue, "p")
    item = PushItem(queue=queue.name, payload=b'{"b":1, "a":"\\u0000"}', type="t", headers={"h": "v"})
    slice_ = harness.slice(queue, partition, [0], ids=["the id"])
    slice_.fragments = [pack(harness.mint(), "the id", item)]
    group = await harness.group(queue)
    await harness.store.messages.push([slice_])
    pushed_at = harness.clock()
    failed = []
    for number in range(3):
        failed.append(harness.clock.advance(10))
        await harness.nack(await harness.pop(queue, group), error=f"failure {number}")
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.queue, letter.partition_name, letter.group) == (queue.name, "p", group.name)
    assert (letter.partition, letter.group_id, letter.position) == (partition.id, group.id, 0)
    assert (letter.error, letter.attempts) == ("failure 2", 3)
    assert (letter.message_created_at, letter.first_failed_at, letter.failed_at) == (
        pushed_at,
        failed[0],
        failed[2],
    )
    assert (letter.replayed_at, letter.replayed_as) == (None, None)
    assert letter.message == slice_.fragments[0]
    assert await harness.store.dead_letters.get(queue.id, letter.id) == letter


async def test_dead_letters_are_listed_newest_failure_first(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    for name in "abc":
        await kill(harness, queue, 1, 2, 3, partition=name)
    everything = await harness.store.dead_letters.page(queue.id, DeadFilter())
    times = [letter.failed_at for letter in everything]
    assert len(times) == 9
    assert times == sorted(times, reverse=True)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 9


async def test_dead_letters_are_paged_also_among_equal_times(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    group = await harness.group(queue)
    partitions = await harness.store.queues.ensure_partitions(queue.id, [f"p{n}" for n in range(7)])
    await harness.store.messages.push([harness.slice(queue, one, [1]) for one in partitions])
    for one in partitions:
        await harness.nack(await harness.pop(queue, group, partition=one.id))
    whole = await harness.store.dead_letters.page(queue.id, DeadFilter())
    paged: list[StoredLetter] = []
    before = None
    while page := await harness.store.dead_letters.page(queue.id, DeadFilter(), limit=2, before=before):
        assert len(page) <= 2
        paged += page
        before = (page[-1].failed_at, page[-1].id)
    assert paged == whole
    assert len(paged) == 7


async def test_dead_letters_are_chosen_by_group_partition_id_time_and_replay(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    [a1, a2] = await kill(harness, queue, 1, 2, partition="a")
    [b1] = await kill(harness, queue, 3, partition="b")
    await harness.store.dead_letters.replay(queue.id, DeadFilter(ids=[a1.id]))

    async def chosen(**where: Any) -> set[str]:
        letters = await harness.store.dead_letters.page(queue.id, DeadFilter(**where))
        assert await harness.store.dead_letters.count(queue.id, DeadFilter(**where)) == len(letters)
        return {letter.id for letter in letters}

    assert await chosen(group=a1.group) == {a1.id, a2.id, b1.id}
    assert await chosen(group="nobody") == set()
    assert await chosen(partition=b1.partition) == {b1.id}
    assert await chosen(ids=[a2.id, b1.id, "no such id", ""]) == {a2.id, b1.id}
    assert await chosen(ids=[]) == set()
    assert await chosen(failed_from=a2.failed_at) == {a2.id, b1.id}
    assert await chosen(failed_from=a2.failed_at, failed_until=a2.failed_at + 1) == {a2.id}
    assert await chosen(replayed=True) == {a1.id}
    assert await chosen(replayed=False) == {a2.id, b1.id}
    assert await chosen(partition=a1.partition, replayed=False) == {a2.id}
    assert await chosen(error="2 fail") == {a2.id}
    assert await chosen(error="failed") == {a1.id, a2.id, b1.id}
    assert await chosen(error="%") == set()


async def test_a_dead_letter_of_another_queue_is_not_found(harness: Harness) -> None:
    queue, other = await harness.queue(retry_limit=0), await harness.queue(retry_limit=0)
    [letter] = await kill(harness, queue, 1)
    assert await harness.store.dead_letters.get(other.id, letter.id) is None
    assert await harness.store.dead_letters.page(other.id, DeadFilter(ids=[letter.id])) == []
    assert await harness.store.dead_letters.purge(other.id, DeadFilter(ids=[letter.id])) == 0
    for nonsense in ("", "x", "0-1-2", "1-2-3-4-5", f"{letter.id}x", "9" * 40):
        assert await harness.store.dead_letters.get(queue.id, nonsense) is None


async def test_a_replay_appends_the_message_as_a_new_one_that_names_the_old(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    partition = await harness.partition(queue)
    item = PushItem(queue=queue.name, payload=b'{"n": 1}', type="t", headers={"h": "v"})
    slice_ = harness.slice(queue, partition, [0], ids=["the id"])
    slice_.fragments = [pack(harness.mint(), "the id", item)]
    await harness.store.messages.push([slice_])
    await harness.nack(await harness.pop(queue))
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    old = unpack(letter.message, position=0, created_at=0)

    [(letter_id, new_id)] = await harness.store.dead_letters.replay(queue.id, DeadFilter())
    assert letter_id == letter.id
    [message] = (await harness.pop(queue)).messages
    assert message.position == 1
    assert message.id == new_id != old.id
    assert message.transaction_id != "the id", "or the log would take it for a duplicate"
    assert bytes(message.raw) == b'{"n": 1}'
    assert message.type == "t"
    assert message.headers == {"h": "v", "replay-of": "the id"}
    [after] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (after.replayed_at, after.replayed_as) == (harness.clock(), new_id)


async def test_a_second_replay_replays_nothing_again(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    await kill(harness, queue, 1, 2)
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 2
    assert await harness.store.dead_letters.replay(queue.id, DeadFilter()) == []
    assert len(await harness.drain(queue)) == 2


async def test_letters_are_replayed_oldest_failure_first_and_in_steps(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    await kill(harness, queue, 1, 2, 3, 4, 5)
    steps = []
    while done := await harness.store.dead_letters.replay(queue.id, DeadFilter(), limit=2):
        steps.append(len(done))
    assert steps == [2, 2, 1]
    assert await harness.drain(queue) == [1, 2, 3, 4, 5]


async def test_letters_of_many_lanes_are_replayed_oldest_failure_first(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    letters = [(await kill(harness, queue, n, partition=f"p{n % 8}"))[0] for n in range(16)]
    done: list[str] = []
    while step := await harness.store.dead_letters.replay(queue.id, DeadFilter(), limit=5):
        done += [letter_id for letter_id, _ in step]
    assert [sorted(done[n : n + 5]) for n in (0, 5, 10)] == [
        sorted(letter.id for letter in letters[n : n + 5]) for n in (0, 5, 10)
    ]
    assert sorted(await harness.drain(queue)) == list(range(16))


async def test_only_what_is_chosen_is_replayed(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    letters = await kill(harness, queue, 1, 2, 3)
    await harness.store.dead_letters.replay(queue.id, DeadFilter(ids=[letters[1].id]))
    assert await harness.drain(queue) == [2]
    assert await harness.store.dead_letters.count(queue.id, DeadFilter(replayed=False)) == 2


async def test_a_replay_of_a_replay_names_the_first_message(harness: Harness) -> None:
    """Consumers can then recognize work that was already done, however often the message is replayed."""
    queue = await harness.queue(retry_limit=0)
    [letter] = await kill(harness, queue, "x")
    first = unpack(letter.message, position=0, created_at=0)
    await harness.store.dead_letters.replay(queue.id, DeadFilter())
    await harness.nack(await harness.pop(queue))
    await harness.store.dead_letters.replay(queue.id, DeadFilter())
    [second] = (await harness.pop(queue)).messages
    assert second.headers == {"replay-of": first.transaction_id}
    assert await harness.store.dead_letters.count(queue.id, DeadFilter(replayed=True)) == 2


async def test_a_replay_that_does_not_fit_changes_nothing(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, max_size=3)
    await kill(harness, queue, 1, 2)
    await harness.push(queue, ["waiting", "too"])
    with pytest.raises(QueueFull) as full:
        await harness.store.dead_letters.replay(queue.id, DeadFilter())
    assert (full.value.depth, full.value.capacity) == (2, 3)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter(replayed=False)) == 2
    assert await harness.drain(queue) == ["waiting", "too"]
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 2
    assert await harness.store.queues.depth(queue.id) == 2


async def test_a_replay_over_many_lanes_that_does_not_fit_changes_nothing(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, max_size=7)
    for n in range(8):
        await kill(harness, queue, n, partition=f"p{n}")
    with pytest.raises(QueueFull):
        await harness.store.dead_letters.replay(queue.id, DeadFilter())
    assert await harness.store.dead_letters.count(queue.id, DeadFilter(replayed=False)) == 8
    assert await harness.store.queues.depth(queue.id) == 0


async def test_a_replay_wakes_a_drained_lane(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    group = await harness.group(queue)
    await kill(harness, queue, "x")
    assert not await harness.pop(queue, group)
    await harness.store.dead_letters.replay(queue.id, DeadFilter())
    assert await harness.next_ready_at(group.id) is not None
    assert await harness.drain(queue, group) == ["x"]


async def test_purged_letters_are_gone_and_no_others(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    letters = await kill(harness, queue, *range(5))
    assert await harness.store.dead_letters.purge(queue.id, DeadFilter(ids=[letters[0].id])) == 1
    assert await harness.store.dead_letters.purge(queue.id, DeadFilter(ids=[letters[0].id])) == 0
    assert await harness.store.dead_letters.get(queue.id, letters[0].id) is None
    assert await harness.store.dead_letters.purge(queue.id, DeadFilter(), limit=3) == 3
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 1
    assert await harness.store.dead_letters.purge(queue.id, DeadFilter()) == 1


async def test_each_group_gives_up_for_itself(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    one, two = await harness.group(queue, "one"), await harness.group(queue, "two")
    await harness.push(queue, ["x"])
    await harness.nack(await harness.pop(queue, one))
    assert await harness.drain(queue, two) == ["x"]
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.group == "one"
    assert (await harness.lane(one)).dead == 1
    assert (await harness.lane(two)).dead == 0


async def test_every_message_is_finished_waiting_or_dead(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=1, lease_seconds=5)
    await harness.push(queue, list(range(30)))
    finished: set[int] = set()
    step = 0
    while taken := await harness.pop(queue, batch=4):
        step += 1
        lane = taken.lane
        if step % 3 == 0:
            acked = await harness.nack(taken, lane.first + step % (lane.upto - lane.first), upto=0)
            finished |= set(taken.positions) & set(range(acked.before, acked.after - acked.dead))
        elif step % 5 == 0:
            harness.clock.advance(5)
        else:
            await harness.ack(taken)
            finished |= set(taken.positions)
    letters = await harness.store.dead_letters.page(queue.id, DeadFilter())
    dead = {letter.position for letter in letters}
    assert finished | dead == set(range(30))
    assert not finished & dead
    assert all(msgspec.json.decode(letter.message + b"}")["data"] == letter.position for letter in letters)


async def test_dead_letters_are_kept_whatever_a_client_says_of_it(harness: Harness) -> None:
    flags: dict[str, Any]
    for flags in ({}, {"dlq_after_max_retries": True, "dead_letter_queue": True}, {"dead_letter_queue": False}):
        queue = await harness.queue(retry_limit=0, **flags)
        assert len(await kill(harness, queue, 1)) == 1
