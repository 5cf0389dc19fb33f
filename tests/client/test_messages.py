"""Pop, ack, leases and typed messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from fairlane import AckItem, Client, InvalidRequest, LeaseLost, Message, PushItem, Subscription
from fairlane.errors import CommandFailed, NotFound, Unavailable
from fairlane.model.outcome import AckStatus
from fairlane.runtime.clock import wall_clock


class Order(msgspec.Struct):
    total: int
    due: date | None = None


async def push_all(client: Client, queue: str, values: Sequence[Any], **more: Any) -> None:
    await client.push_many([PushItem(queue=queue, payload=msgspec.json.encode(value), **more) for value in values])


async def test_an_empty_queue_gives_an_empty_batch(client: Client, queue: str) -> None:
    batch = await client.pop(queue)
    assert not batch
    assert batch.lease == ""


async def test_messages_come_as_the_type_that_was_asked_for(client: Client, queue: str) -> None:
    await client.push(queue, Order(42, date(2026, 1, 31)))
    [message] = await client.pop(queue, type=Order)
    assert message.data == Order(42, date(2026, 1, 31))
    assert bytes(message.raw) == b'{"total":42,"due":"2026-01-31"}'


async def test_a_message_that_does_not_fit_troubles_nobody_else(client: Client, queue: str) -> None:
    await push_all(client, queue, [{"total": 1}, {"total": "two"}, {"total": 3}])
    good, bad, fine = await client.pop(queue, type=Order, batch=3)
    with pytest.raises(InvalidRequest, match=r"does not fit: Expected `int`, got `str` - at `\$\.total`"):
        _ = bad.data
    assert (good.data, fine.data) == (Order(1), Order(3))


async def test_a_message_may_be_of_one_of_several_types(client: Client, queue: str) -> None:
    await push_all(client, queue, [1, "two"])
    assert [message.data for message in await client.pop(queue, type=int | str, batch=2)] == [1, "two"]


async def test_a_type_that_cannot_be_decoded_is_refused(client: Client, queue: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be decoded"):
        await client.pop(queue, type=dict[int | float | bytes, set[complex]] | list[int] | tuple[int])


async def test_a_message_says_where_it_comes_from_and_when(client: Client, queue: str) -> None:
    before = wall_clock()
    await client.push(queue, 1, partition="p")
    [message] = await client.pop(queue, group="g")
    assert before - 1_000_000 < message.created_at < wall_clock() + 1_000_000
    assert (message.group, message.partition) == ("g", "p")
    assert repr(message) == f"Message({message.id!r}, queue={queue!r}, partition='p')"


async def test_a_pop_waits_for_the_first_message(client: Client, queue: str) -> None:
    waiting = asyncio.create_task(client.pop(queue, wait=20))
    await asyncio.sleep(0.1)
    await client.push(queue, "here")
    async with asyncio.timeout(15):
        [message] = await waiting
    assert message.data == "here"


async def test_a_pop_that_waits_in_vain_comes_back_empty(client: Client, queue: str) -> None:
    async with asyncio.timeout(15):
        assert not await client.pop(queue, wait=0.1)


async def test_what_is_acked_does_not_come_again(client: Client, queue: str) -> None:
    await push_all(client, queue, [1, 2, 3])
    batch = await client.pop(queue, batch=3)
    outcomes = await client.ack(batch)
    assert [outcome.success for outcome in outcomes] == [True] * 3
    assert outcomes[-1].lease_released
    assert not await client.pop(queue)


async def test_what_failed_comes_again_and_ends_as_a_dead_letter(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=1)
    await client.push(queue, 1)
    [first] = await client.nack(await client.pop(queue), error="once")
    [second] = await client.nack(await client.pop(queue), error="twice")
    assert (first.dead_lettered, second.dead_lettered) == (False, True)
    assert not await client.pop(queue)


async def test_a_nack_may_say_when_the_message_comes_again(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    await client.nack(await client.pop(queue), delay_ms=300)
    assert not await client.pop(queue)
    assert await client.pop(queue, wait=5)


async def test_different_things_can_be_said_of_the_messages_of_a_batch(client: Client, queue: str) -> None:
    await push_all(client, queue, [1, 2, 3])
    batch = await client.pop(queue, batch=3)
    statuses: tuple[AckStatus, ...] = ("completed", "dlq", "retry")
    outcomes = await client.ack_many(
        [
            AckItem(
                transaction_id=message.transaction_id, partition=message.partition_id, lease=message.lease, status=s
            )
            for message, s in zip(batch, statuses, strict=True)
        ]
    )
    assert [outcome.success for outcome in outcomes] == [True] * 3
    assert [outcome.dead_lettered for outcome in outcomes] == [False, True, False]
    assert [message.data for message in await client.pop(queue, batch=3)] == [3]


@pytest.mark.parametrize("verb", ["ack", "nack"])
async def test_an_ack_under_a_lease_that_ended_is_raised_or_is_an_outcome(
    client: Client, queue: str, verb: str
) -> None:
    await client.push(queue, 1)
    batch = await client.pop(queue)
    assert await client.release(batch) == 1
    with pytest.raises(LeaseLost, match="the lease of 1 of 1 messages ended"):
        await getattr(client, verb)(batch)
    [outcome] = await getattr(client, verb)(batch, check=False)
    assert (outcome.success, outcome.code) == (False, "lease_lost")


async def test_an_ack_of_several_lanes_of_which_one_lease_ended_says_so_and_finishes_the_others(
    client: Client, queue: str
) -> None:
    for partition in "ab":
        await client.push_many([PushItem(queue=queue, payload=b"1", partition=partition) for _ in range(2)])
    first, second = [await client.pop(queue, batch=2, partition=partition) for partition in "ab"]
    await client.release(first)
    with pytest.raises(LeaseLost, match="the lease of 2 of 4 messages ended"):
        await client.ack([*first, *second])
    assert len(await client.pop(queue, batch=10, partitions=2)) == 2


async def test_a_result_is_kept_with_the_ack(client: Client, queue: str) -> None:
    await push_all(client, queue, [1, 2])
    batch = await client.pop(queue, batch=2)
    await client.ack(batch[0], result={"sum": 3})
    [again] = await client.ack(batch[0])
    assert again.noop
    assert again.result is not None
    assert msgspec.json.decode(again.result) == {"sum": 3}


async def test_a_batch_knows_how_long_its_lease_is_and_is_renewed_for_as_long(client: Client, queue: str) -> None:
    await client.queues.configure(queue, lease_seconds=40)
    await client.push(queue, 1)
    batch = await client.pop(queue)
    assert batch.lease_seconds == 40
    await client.release(batch)
    batch = await client.pop(queue, lease_seconds=5)
    assert batch.lease_seconds == 5
    before = (await client.queues.leases(queue))[0].expires_at
    renewed = await client.renew(batch)
    assert renewed.expires_at is not None
    assert before <= renewed.expires_at < before + 30_000_000, "not for a minute"


async def test_a_lease_is_renewed_and_then_released(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    batch = await client.pop(queue, lease_seconds=10)
    renewed = await client.renew(batch, 600)
    assert renewed.renewed == 1
    assert renewed.expires_at is not None
    assert renewed.expires_at > wall_clock() + 500_000_000
    assert await client.release(batch) == 1
    assert (await client.renew(batch.lease)).renewed == 0
    assert len(await client.pop(queue)) == 1


async def test_with_auto_ack_nothing_is_left_to_ack(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    batch = await client.pop(queue, auto_ack=True)
    assert batch.lease == ""
    assert not await client.pop(queue)


async def test_a_group_begins_where_its_subscription_says(client: Client, queue: str) -> None:
    await client.push(queue, "old")
    [old] = await client.pop(queue, group="everything")
    assert not await client.pop(queue, group="news", subscription=Subscription("new"))
    await client.push(queue, "new")
    assert [m.data for m in await client.pop(queue, group="news", batch=5)] == ["new"]
    since = Subscription("time", old.created_at)
    assert [m.data for m in await client.pop(queue, group="since", batch=5, subscription=since)] == ["old", "new"]


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"batch": 10**6}, {"wait": -1}, {"wait": 10**6}, {"lease_seconds": 0}, {"group": ""}]
)
async def test_a_pop_that_makes_no_sense_is_refused(client: Client, queue: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await client.pop(queue, **options)


async def test_an_ack_is_about_messages_of_one_group(client: Client, queue: str) -> None:
    await client.push(queue, 1)
    batches = [await client.pop(queue, group=group) for group in ("a", "b")]
    with pytest.raises(InvalidRequest, match="one group"):
        await client.ack([batches[0][0], batches[1][0]])
    with pytest.raises(InvalidRequest, match="messages that a pop returned"):
        await client.ack(["not a message"])  # type: ignore[list-item]
    assert await client.ack([]) == []


async def test_acks_and_pushes_of_a_transaction_happen_together(client: Client, queue: str) -> None:
    await client.push(queue, 20)
    batch = await client.pop(queue, type=int)
    async with client.transaction() as transaction:
        transaction.ack(batch)
        transaction.push(f"{queue}-out", batch[0].data + 1, partition="p")
    acked, pushed = transaction.outcomes
    assert getattr(acked, "success", None) is True
    assert getattr(pushed, "status", None) == "queued"
    [message] = await client.pop(f"{queue}-out")
    assert (message.data, message.partition) == (21, "p")


async def test_a_transaction_schedules_messages(client: Client, queue: str) -> None:
    await client.push(queue, 20)
    batch = await client.pop(queue)
    at = datetime(2040, 1, 31, 12, tzinfo=UTC)
    async with client.transaction() as transaction:
        transaction.ack(batch)
        transaction.push(queue, 1, delay_ms=timedelta(days=3))
        transaction.push(queue, 2, deliver_at=at, transaction_id="at")
    _, first, second = transaction.outcomes
    assert [getattr(one, "status", None) for one in (first, second)] == ["scheduled", "scheduled"]
    assert getattr(second, "deliver_at", None) == at.timestamp() * 1_000_000
    assert [one.transaction_id for one in (await client.scheduled.page(queue)).messages][1:] == ["at"]
    assert not await client.pop(queue)


async def test_a_transaction_whose_block_raises_is_not_sent(client: Client, queue: str) -> None:
    async def broken() -> None:
        async with client.transaction() as transaction:
            transaction.push(queue, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await broken()
    assert not await client.pop(queue)


async def test_a_transaction_of_nothing_is_none(client: Client) -> None:
    async with client.transaction() as transaction:
        pass
    assert transaction.outcomes == []


def read(message: Message[Order]) -> int:
    return message.data.total


async def test_the_type_of_a_message_is_known_to_type_checkers(client: Client, queue: str) -> None:
    await client.push(queue, Order(7))
    assert [read(message) for message in await client.pop(queue, type=Order)] == [7]


async def test_a_result_is_waited_for(client: Client, queue: str) -> None:
    pushed = await client.push(queue, 1, partition="lane")
    waiting = asyncio.create_task(client.result(queue, pushed.transaction_id, partition="lane", type=Order))
    await client.ack(await client.pop(queue, wait=30), result=Order(7))
    assert await waiting == Order(7)
    assert await client.result(queue, pushed.transaction_id, partition="lane") == {"total": 7, "due": None}


async def test_a_result_that_does_not_come_is_an_error_that_says_why(client: Client, queue: str) -> None:
    await client.queues.configure(queue, retry_limit=0)
    bad, slow = await client.push(queue, 0), await client.push(queue, 1)
    await client.nack(await client.pop(queue), error="broken")
    with pytest.raises(CommandFailed, match="is a dead letter: broken"):
        await client.result(queue, bad.transaction_id)
    with pytest.raises(Unavailable, match="is still pending"):
        await client.result(queue, slow.transaction_id, timeout=0)
    with pytest.raises(NotFound):
        await client.result(queue, "unknown", timeout=0)
