"""Queues, groups, stored messages and dead letters through the client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from fairlane import Client, InvalidRequest, NotFound, PushItem, Seek, Subscription
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckItem
from fairlane.model.queue import QueueOptions
from fairlane.runtime.clock import wall_clock
from fairlane.wire.queues import OPTION_NAMES, options_out


async def dead_letter(client: Client, queue: str, count: int, *, group: str = QUEUE_MODE) -> None:
    await client.queues.configure(queue, retry_limit=0)
    for n in range(count):
        await client.push(queue, {"n": n})
        await client.nack(await client.pop(queue, group=group), error=f"broken {n}")


async def test_a_queue_is_configured_and_the_options_in_force_are_returned(client: Client, queue: str) -> None:
    options = await client.queues.configure(queue, namespace="shop", lease_seconds=10, retry_delay_ms=50, max_size=7)
    assert options == QueueOptions(lease_seconds=10, retry_delay_ms=50, max_size=7)
    assert await client.queues.configure(queue) == QueueOptions()


@pytest.mark.parametrize("options", [{"speed": 9}, {"lease_seconds": 0}, {"ordering": "random"}])
async def test_options_that_no_queue_has_are_refused(client: Client, queue: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await client.queues.configure(queue, **options)


def test_every_option_has_a_name_of_its_own_on_the_wire() -> None:
    names = QueueOptions.__struct_fields__
    assert tuple(OPTION_NAMES) == names
    assert len(set(OPTION_NAMES.values())) == len(names)
    assert options_out(QueueOptions()) == {OPTION_NAMES[name]: getattr(QueueOptions(), name) for name in names}


async def test_queues_are_listed_with_what_they_hold(client: Client, queue: str) -> None:
    await client.push_many([PushItem(queue=queue, payload=b"1", partition=f"p{n}") for n in range(3)])
    await client.ack(await client.pop(queue))
    await client.pop(queue)
    [listed] = [one for one in await client.queues.all() if one.name == queue]
    assert abs(listed.created_at - wall_clock()) < 60_000_000
    detail = await client.queues.show(queue)
    assert [partition.name for partition in detail.partitions] == ["p0", "p1", "p2"]
    totals = detail.totals
    assert (totals.total, totals.pending, totals.processing, totals.completed) == (3, 1, 1, 1)
    assert detail.options["leaseTime"] == 300


async def test_partitions_come_in_pages(client: Client, queue: str) -> None:
    await client.push_many([PushItem(queue=queue, payload=b"1", partition=f"p{n}") for n in range(5)])
    first = await client.queues.show(queue, limit=3)
    assert first.next == "p2"
    second = await client.queues.show(queue, limit=3, after=first.next)
    assert [partition.name for partition in second.partitions] == ["p3", "p4"]
    assert second.next is None


async def test_a_deleted_queue_is_gone(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    assert await client.queues.delete(queue)
    assert not await client.queues.delete(queue)
    with pytest.raises(NotFound):
        await client.queues.show(queue)


async def test_groups_are_listed_by_queue(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    await client.push(queue, 2)
    await client.ack(await client.pop(queue, group="a"))
    await client.pop(queue, group="b", subscription=Subscription("new"))
    groups = {group.name: group for group in await client.groups.all(queue)}
    assert set(groups) == {"a", "b"}
    assert (groups["a"].queue, groups["a"].partitions_with_lag, groups["b"].partitions_with_lag) == (queue, 1, 0)
    assert len(await client.groups.all()) >= 2


async def test_a_group_is_sent_elsewhere(client: Client, queue: str) -> None:
    await client.push_many([PushItem(queue=queue, payload=b"%d" % n, partition=f"p{n % 2}") for n in range(6)])

    async def seen() -> set[int]:
        batch = await client.pop(queue, group="g", batch=10, partitions=10, auto_ack=True)
        return {message.data for message in batch}

    first = await client.pop(queue, group="g", batch=10, partitions=10)
    assert await client.groups.seek(queue, "g", "end") == 2
    assert await client.groups.seek(queue, "g", datetime.now(UTC)) == 2
    assert await seen() == set()
    assert await client.groups.seek(queue, "g", Seek("beginning")) == 2
    assert await seen() == {0, 1, 2, 3, 4, 5}
    assert await client.groups.seek(queue, "g", Seek("time", first[0].created_at)) == 2
    assert await seen() == {0, 1, 2, 3, 4, 5}
    assert await client.groups.seek(queue, "g", Seek("position", 2), partition="p1") == 1
    assert await seen() == {5}
    with pytest.raises(NotFound):
        await client.groups.seek(queue, "nobody", Seek("end"))


async def test_a_deleted_group_begins_anew(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    await client.ack(await client.pop(queue, group="g"))
    assert await client.groups.delete(queue, "g") == 1
    assert await client.groups.all(queue) == []
    assert len(await client.pop(queue, group="g")) == 1


async def test_stored_messages_are_looked_at_without_taking_them(client: Client, queue: str) -> None:
    await client.push(queue, {"n": 0}, partition="a", type="order", headers={"k": "v"})
    for n in range(1, 5):
        await client.push(queue, {"n": n}, partition="b")
    page = await client.messages.page(queue, limit=3)
    assert len(page.messages) == 3
    rest = await client.messages.page(queue, limit=3, before=page.next)
    heads = [*page.messages, *rest.messages]
    assert rest.next is None
    whole = [await client.messages.get(head.partition_id, head.transaction_id) for head in heads]
    assert [message.data["n"] for message in whole] == [4, 3, 2, 1, 0]
    assert (whole[4].type, whole[4].headers, whole[4].partition) == ("order", {"k": "v"}, "a")
    assert len((await client.messages.page(queue, partition="a")).messages) == 1
    assert (await client.messages.page(queue, since=wall_clock() + 60_000_000)).messages == []
    assert len(await client.pop(queue, batch=9, partitions=9)) == 5
    with pytest.raises(NotFound):
        await client.messages.get(heads[0].partition_id, "nobody's")


async def test_dead_letters_are_kept_whole_with_their_error(client: Client, queue: str) -> None:
    await dead_letter(client, queue, 3, group="g")
    letters = await client.dead_letters.page(queue)
    assert [(letter.data, letter.error, letter.group) for letter in letters] == [
        ({"n": n}, f"broken {n}", "g") for n in (2, 1, 0)
    ]
    assert letters[0].attempts == 1
    assert letters[0].failed_at is not None
    assert len(await client.dead_letters.page(queue, limit=2)) == 2
    assert await client.dead_letters.page(queue, group="other") == []
    assert await client.dead_letters.page("nobody's") == []


async def test_a_dead_letter_is_replayed_once(client: Client, queue: str) -> None:
    await dead_letter(client, queue, 2)
    newest, oldest = await client.dead_letters.page(queue)
    [(id, message_id)] = await client.dead_letters.replay(queue, ids=[oldest.id])
    assert id == oldest.id
    [message] = await client.pop(queue)
    assert (message.id, message.data) == (message_id, {"n": 0})
    assert await client.dead_letters.replay(queue, ids=[oldest.id]) == []
    assert [id for id, _ in await client.dead_letters.replay(queue)] == [newest.id]


async def test_all_errors_of_dead_letters_are_counted(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    await client.push_many([PushItem(queue=queue, payload=b"1", partition=f"p{n}") for n in range(130)])
    batch = await client.pop(queue, batch=130, partitions=130)
    items = [
        AckItem(
            transaction_id=one.transaction_id,
            partition=one.partition_id,
            status="dlq",
            lease=one.lease,
            error=f"broken {n}",
        )
        for n, one in enumerate(batch)
    ]
    await client.ack_many(items, queue=queue)
    assert len(await client.dead_letters.errors(queue)) == 130


async def test_purged_dead_letters_are_gone(client: Client, queue: str) -> None:
    await dead_letter(client, queue, 3)
    letters = await client.dead_letters.page(queue)
    assert await client.dead_letters.purge(queue, ids=[letters[0].id]) == 1
    assert await client.dead_letters.purge(queue, group="other") == 0
    assert await client.dead_letters.purge(queue) == 2
    assert await client.dead_letters.page(queue) == []


async def test_naming_no_dead_letters_does_not_mean_all(client: Client, queue: str) -> None:
    await dead_letter(client, queue, 1)
    for verb in (client.dead_letters.purge, client.dead_letters.replay):
        with pytest.raises(InvalidRequest, match="at least one"):
            await verb(queue, ids=[])
    assert len(await client.dead_letters.page(queue)) == 1


async def test_a_queue_is_paused_and_resumed(client: Client, queue: str) -> None:
    await client.push(queue, 1, partition="p")
    await client.pauses.pause(queue)
    assert (await client.pauses.all(queue)).paused_at is not None
    assert not await client.pop(queue)
    assert await client.pauses.resume(queue)
    assert not await client.pauses.resume(queue)
    assert await client.pop(queue)
    with pytest.raises(NotFound):
        await client.pauses.pause("nobody's")


async def test_a_blocked_lane_is_explained_and_resumed(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0, on_exhausted="block")
    await client.push(queue, 1, partition="p")
    await client.nack(await client.pop(queue), error="poison")
    explained = await client.pauses.explain(queue, "p")
    assert (explained.reason, explained.error, explained.waiting) == ("blocked", "poison", 1)
    assert await client.pauses.resume_lanes(queue) == 1
    assert (await client.pauses.explain(queue, "p")).reason == "ready"


async def test_a_message_is_scheduled_rescheduled_and_cancelled(client: Client, queue: str) -> None:
    at = wall_clock() + 3_600_000_000
    outcome = await client.push(queue, 1, transaction_id="it", deliver_at=at)
    assert (outcome.status, outcome.deliver_at) == ("scheduled", at)
    [listed] = (await client.scheduled.page(queue)).messages
    assert (listed.transaction_id, listed.deliver_at) == ("it", at)
    assert await client.scheduled.reschedule(queue, "it", deliver_at=at + 1) == at + 1
    assert await client.scheduled.cancel(queue, "it")
    assert not await client.scheduled.cancel(queue, "it")
    assert await client.scheduled.reschedule(queue, "it", delay_ms=5) is None
    [many] = await client.push_many([PushItem(queue=queue, payload=b"2", delay_ms=200)])
    assert many.status == "scheduled"
    assert [delivery.data for delivery in await client.pop(queue, wait=20)] == [2]
    with pytest.raises(InvalidRequest):
        await client.push(queue, 1, deliver_at=at, delay_ms=5)


async def test_messages_are_found_by_their_trace_across_queues_and_by_their_id(client: Client, queue: str) -> None:
    trace = str(uuid4())
    for number, name in enumerate((queue, f"{queue}-second")):
        await client.push(name, number, transaction_id=f"n{number}", trace_id=trace)
        await client.push(name, number, transaction_id=f"other{number}")
    found = await client.messages.page(trace_id=trace)
    assert {message.transaction_id for message in found.messages} == {"n0", "n1"}
    [one] = (await client.messages.page(transaction_id="other1")).messages
    assert one.queue == f"{queue}-second"


async def test_urgent_messages_come_first(client: Client, queue: str) -> None:
    await client.queues.configure(queue, ordering="unordered")
    await client.push(queue, "later")
    await client.push(queue, "urgent", priority=9)
    with pytest.raises(InvalidRequest, match="priority"):
        await client.push(queue, "more than urgent", priority=10)
    [message] = await client.pop(queue)
    assert message.data == "urgent"


async def test_a_mistyped_option_is_answered_with_the_one_that_was_meant(client: Client, queue: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown queue option 'retrylimit'; did you mean 'retry_limit'"):
        await client.queues.configure(queue, retrylimit=5)
    with pytest.raises(InvalidRequest, match="unknown queue option 'xyz'; known are ordering, lease_seconds"):
        await client.queues.configure(queue, xyz=5)


async def test_a_page_is_an_iterable_of_its_rows(client: Client, queue: str) -> None:
    await client.push(queue, 1, transaction_id="now")
    await client.push(queue, 2, transaction_id="later", delay_ms=60_000)
    assert [one.transaction_id for one in await client.messages.page(queue)] == ["now"]
    assert [one.transaction_id for one in await client.scheduled.page(queue)] == ["later"]
