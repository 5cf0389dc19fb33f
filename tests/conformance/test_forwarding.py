"""Dead letters that are also pushed to another queue, and the history in their headers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairlane.model.message import PushItem
from fairlane.model.queue import Queue
from fairlane.model.segment import pack
from fairlane.store.contract.values import DeadFilter, Nack, ToDeadLetter
from tests.conformance.harness import Harness
from tests.conformance.test_dead_letters import kill
from tests.conformance.test_retention import run
from tests.conformance.test_unordered import apply_unordered, unordered_ack


async def pair(harness: Harness, *, of_target: dict[str, Any] | None = None, **options: Any) -> tuple[Queue, Queue]:
    """Return two queues; the dead letters of the first go to the second."""
    target = await harness.queue("graves", **(of_target or {}))
    return await harness.queue(dead_letter_queue=target.name, **{"retry_limit": 0, **options}), target


async def forward(harness: Harness, target: Queue) -> int:
    """Forward dead letters. Returns the number pushed."""
    return (await harness.store.dead_letters.forward()).queues.get(target.id, 0)


async def test_a_dead_letter_goes_to_the_queue_named_for_it_whole_and_once(harness: Harness) -> None:
    queue, target = await pair(harness, retry_limit=1)
    partition = await harness.partition(queue, "p")
    item = PushItem(queue=queue.name, payload=b'{"b":1, "a":"\\u0000"}', type="t", headers={"h": "v"})
    slice_ = harness.slice(queue, partition, [0], ids=["the id"])
    slice_.fragments = [pack(harness.mint(), "the id", item)]
    await harness.store.messages.push([slice_])
    group = await harness.group(queue)
    for number in range(2):
        harness.clock.advance(10)
        await harness.nack(await harness.pop(queue, group), error=f"failure {number}")
    assert await forward(harness, target) == 1
    assert await forward(harness, target) == 0
    [message] = (await harness.pop(target)).messages
    assert bytes(message.raw).startswith(b'{"original_message":{"b":1, "a":"\\u0000"},'), "the producer's bytes"
    told = msgspec.json.decode(message.raw)
    assert (told["error"], told["attempts"]) == ("failure 1", 2)
    assert told["failed_at"] > told["first_failed_at"]
    assert [one["error"] for one in told["errors"]] == ["failure 0", "failure 1"]
    assert [told["errors"][0]["at"], told["errors"][1]["at"]] == [told["first_failed_at"], told["failed_at"]]
    source = told["source"]
    assert (source["queue"], source["partition"], source["group"]) == (queue.name, "p", group.name)
    assert (source["transactionId"], source["type"], source["headers"]) == ("the id", "t", {"h": "v"})
    assert message.headers == {"h": "v", "dead-letter-of": "the id"}
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert source["deadLetterId"] == letter.id, "consuming the queue does not touch the letter, which can be replayed"
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 1


async def test_a_letter_that_waits_to_be_forwarded_outlives_the_rule_for_letters(harness: Harness) -> None:
    queue, target = await pair(harness, dead_letter_retention_seconds=5)
    await kill(harness, queue, "x")
    harness.clock.advance(6)
    await run(harness)
    assert await forward(harness, target) == 1
    await run(harness)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0, "and goes when it was"
    assert len((await harness.pop(target)).messages) == 1


async def test_forwarded_letters_keep_their_lanes_and_order_and_pass_a_full_queue(harness: Harness) -> None:
    queue, target = await pair(harness, of_target={"max_size": 2})
    for name in "ab":
        await kill(harness, queue, *(f"{name}{number}" for number in range(3)), partition=name)
    assert await forward(harness, target) == 6
    assert await harness.store.queues.depth(target.id) == 6
    for name in "ab":
        partition = await harness.partition(target, name)
        taken = await harness.pop(target, batch=10, partition=partition.id)
        assert [one["original_message"] for one in taken.data] == [f"{name}{number}" for number in range(3)]
        await harness.ack(taken)
    assert await harness.store.queues.depth(target.id) == 0


async def test_a_message_that_expires_or_is_given_up_by_hand_is_forwarded_too(harness: Harness) -> None:
    queue, target = await pair(harness, ttl_seconds=5)
    group = await harness.group(queue)
    await harness.push(queue, ["old"])
    harness.clock.advance(10)
    await harness.pop(queue, group)
    await harness.push(queue, ["unwanted"])
    partition = await harness.partition(queue)
    assert await harness.store.browse.dead_letter(partition.id, group.id, 1, "by hand") == "dead"
    await harness.store.dead_letters.forward()
    assert [one["error"] for one in (await harness.pop(target, batch=9)).data] == ["expired", "by hand"]


async def test_letters_of_unordered_queues_are_forwarded(harness: Harness) -> None:
    queue, target = await pair(harness, ordering="unordered")
    await harness.push(queue, ["x"])
    taken = await harness.pop(queue)
    await apply_unordered(harness, unordered_ack(taken, nacks=[Nack(0, True, "broken")]))
    await harness.store.dead_letters.forward()
    assert [one["error"] for one in (await harness.pop(target)).data] == ["broken"]


async def test_brokers_that_forward_at_once_append_each_letter_once(harness: Harness) -> None:
    queue, target = await pair(harness)
    await kill(harness, queue, *range(20))
    stores = [harness.store, await harness.open_second()]
    await asyncio.gather(*(stores[number % 2].dead_letters.forward(limit=7) for number in range(8)))
    await harness.store.dead_letters.forward()
    taken = await harness.pop(target, batch=100)
    assert sorted(one["original_message"] for one in taken.data) == list(range(20))


async def test_replays_that_meet_push_each_letter_once(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0)
    letters = await kill(harness, queue, *range(10))
    stores = [harness.store, await harness.open_second()]
    answers = await asyncio.gather(
        *(stores[number % 2].dead_letters.replay(queue.id, DeadFilter()) for number in range(6))
    )
    replayed = [one for answer in answers for one in answer]
    assert sorted(id for id, _ in replayed) == sorted(letter.id for letter in letters)
    taken = await harness.pop(queue, batch=100)
    assert sorted(taken.data) == list(range(10))
    recorded = {
        letter.id: letter.replayed_as for letter in await harness.store.dead_letters.page(queue.id, DeadFilter())
    }
    assert recorded == dict(replayed)


async def test_a_queue_without_a_name_for_them_keeps_its_letters_to_itself(harness: Harness) -> None:
    queue, target = await pair(harness)
    await kill(harness, queue, 1)
    await harness.store.queues.configure(
        queue.tenant, queue.name, msgspec.structs.replace(queue.options, dead_letter_queue=True), namespace="", task=""
    )
    await harness.store.dead_letters.forward()
    await kill(harness, queue, 2)
    await harness.store.dead_letters.forward()
    assert not await harness.pop(target)
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 2


async def test_a_queue_that_was_deleted_is_made_again_for_its_letters(harness: Harness) -> None:
    queue, target = await pair(harness)
    await harness.store.queues.delete(target.tenant, target.name)
    await kill(harness, queue, 1)
    await harness.store.dead_letters.forward()
    made = await harness.store.queues.get(target.tenant, target.name)
    assert made is not None
    assert [one["original_message"] for one in (await harness.pop(made)).data] == [1]


async def test_the_last_errors_of_a_message_are_kept_and_the_oldest_forgotten(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=20)
    group = await harness.group(queue)
    await harness.push(queue, ["x"])
    for number in range(13):
        harness.clock.advance(1)
        await harness.nack(await harness.pop(queue, group), error=f"failure {number}")
    harness.clock.advance(1)
    taken = await harness.pop(queue, group)
    await harness.apply(harness.ordered_ack(taken, 1, dead_letters=[ToDeadLetter(0, "enough")]))
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert letter.error == "enough"
    assert [one.error for one in letter.history] == [f"failure {number}" for number in range(4, 13)]
    assert [one.at for one in letter.history] == [letter.failed_at - 1_000_000 * ago for ago in range(9, 0, -1)]


async def test_a_lost_lease_is_part_of_the_story(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=1, lease_seconds=5)
    group = await harness.group(queue)
    await harness.push(queue, ["x"])
    await harness.nack(await harness.pop(queue, group), error="broken")
    await harness.pop(queue, group)
    harness.clock.advance(6)
    await harness.pop(queue, group)
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert (letter.error, letter.attempts) == ("Partition lease expired", 2)
    assert [one.error for one in letter.history] == ["broken"]


async def test_a_broker_forwards_by_itself_what_its_consumers_give_up(harness: Harness) -> None:
    broker = harness.broker
    queue, target = harness.name("work"), harness.name("graves")
    await broker.queues.configure(queue, retry_limit=0, dead_letter_queue=target)
    await broker.push(queue, {"n": 1})
    await broker.ack(await broker.pop(queue), "failed", error="broken")
    [told] = await broker.pop(target, wait=10)
    data = msgspec.json.decode(told.raw)
    assert (data["original_message"], data["error"]) == ({"n": 1}, "broken")
