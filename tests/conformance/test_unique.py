"""Unique messages: no other message of the queue with the same key is stored while one waits, or waits or runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.transaction import Transaction
from fairlane.errors import InvalidRequest, QueueFull, StoreUnavailable, TransactionRefused
from fairlane.model.group import Seek
from fairlane.model.message import PushItem
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import PushOutcome
from fairlane.wire.schedules import ScheduleOptions
from tests.conformance.harness import Harness
from tests.conformance.test_encryption import OLD, opened
from tests.conformance.test_retention import run as run_retention
from tests.lost_answers import APPLIED, fails

ORDERINGS = ("per_key", "unordered")


class Jobs:
    """A queue of unique messages."""

    def __init__(self, harness: Harness, broker: Broker | None = None) -> None:
        self.harness = harness
        self.broker = broker or harness.broker
        self.queue = harness.name("jobs")

    async def push(self, unique: Any = "while_waiting", data: Any = "same", **options: Any) -> PushOutcome:
        return await self.broker.push(self.queue, data, unique=unique, **options)

    async def pop(self, group: str | None = None, **options: Any) -> Any:
        options.setdefault("batch", 1)
        return await self.broker.pop(self.queue, group=group or QUEUE_MODE, **options)

    async def stored(self) -> list[Any]:
        """Return what is left of the queue, and finish it."""
        return [message.data for message in await self.pop(batch=100, partitions=100, auto_ack=True)]

    async def beside(self, base: str, **options: Any) -> str:
        """Create another queue in the cell of this one."""
        name = self.harness.name(base)
        await self.broker.queues.configure(name, cell=f"same-as {self.queue}", **options)
        return name

    async def append_due(self) -> None:
        """Wait until no message is scheduled. The broker may append them, too."""
        while (await self.broker.scheduled.page(self.queue)).messages:
            await self.harness.store.scheduled.append_due()


async def jobs_of(harness: Harness, ordering: str = "per_key", **options: Any) -> Jobs:
    jobs = Jobs(harness)
    await jobs.broker.queues.configure(jobs.queue, ordering=ordering, **options)
    return jobs


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_is_not_stored_while_another_waits(harness: Harness, ordering: str) -> None:
    jobs = await jobs_of(harness, ordering)
    first = await jobs.push()
    again = await jobs.push()
    assert (first.status, again.status) == ("queued", "duplicate")
    assert (again.message_id, again.transaction_id) == (first.message_id, first.transaction_id)
    assert (again.partition, again.position) == (first.partition, first.position)
    assert (await jobs.push(data="other")).status == "queued"
    assert (await jobs.push(type="other")).status == "queued"
    assert (await jobs.broker.push(jobs.queue, "same")).status == "queued"
    assert await jobs.stored() == ["same", "other", "same", "same"]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_that_runs_excludes_others_only_while_running(harness: Harness, ordering: str) -> None:
    jobs = await jobs_of(harness, ordering)
    first = await jobs.push("while_running")
    [message] = await jobs.pop()
    assert (await jobs.push("while_running")).transaction_id == first.transaction_id
    second = await jobs.push("while_waiting")
    assert second.status == "queued"
    assert (await jobs.push("while_waiting")).transaction_id == second.transaction_id
    await jobs.broker.ack(message)
    [message] = await jobs.pop()
    assert (await jobs.push("while_running")).status == "duplicate"
    await jobs.broker.ack(message)
    assert (await jobs.push("while_running")).status == "queued"


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_that_failed_waits_again(harness: Harness, ordering: str) -> None:
    jobs = await jobs_of(harness, ordering, retry_limit=1)
    first = await jobs.push()
    [message] = await jobs.pop()
    await jobs.broker.nack(message)
    assert (await jobs.push()).transaction_id == first.transaction_id
    [message] = await jobs.pop()
    await jobs.broker.nack(message)  # a dead letter
    assert (await jobs.push()).status == "queued"


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_whose_lease_expired_waits_again(harness: Harness, ordering: str) -> None:
    jobs = await jobs_of(harness, ordering, lease_seconds=10)
    first = await jobs.push()
    await jobs.pop()
    harness.clock.advance(11)
    assert (await jobs.push()).transaction_id == first.transaction_id


@pytest.mark.parametrize(
    ("ordering", "end"),
    [*((one, end) for one in ORDERINGS for end in ("cancel", "delete", "clear", "seek")), ("per_key", "expire")],
)
async def test_a_message_that_nobody_gets_excludes_nothing(harness: Harness, ordering: str, end: str) -> None:
    expiry: dict[str, Any] = {"ttl_seconds": 60, "on_expiry": "drop"} if end == "expire" else {}
    jobs = await jobs_of(harness, ordering, **expiry)
    broker, first = jobs.broker, await jobs.push("while_running")
    assert first.partition is not None
    if end == "cancel":
        await broker.cancel(jobs.queue, first.transaction_id)
    elif end == "delete":
        await broker.messages.delete(str(first.partition), first.transaction_id)
    elif end == "clear":
        await broker.queues.clear(jobs.queue)
    elif end == "seek":
        assert not await jobs.pop(partition="elsewhere")
        await broker.groups.seek(jobs.queue, QUEUE_MODE, Seek("end"))
    else:
        harness.clock.advance(61)
        assert not await jobs.pop()
    second = await jobs.push("while_running")
    assert (second.status, second.message_id != first.message_id) == ("queued", True)


async def test_a_message_that_retention_deleted_excludes_nothing(harness: Harness) -> None:
    jobs = await jobs_of(harness, retention_enabled=True, retention_seconds=60)
    await jobs.push()
    harness.clock.advance(61)
    await run_retention(harness)
    assert (await jobs.push()).status == "queued"


async def test_a_message_that_was_sought_back_waits_again(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    first = await jobs.push()
    await jobs.stored()
    await jobs.broker.groups.seek(jobs.queue, QUEUE_MODE, Seek("beginning"))
    assert (await jobs.push()).transaction_id == first.transaction_id


async def test_the_first_group_that_begins_lets_the_next_message_in(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    for group in ("mail", "audit"):
        assert not await jobs.pop(group)
    first = await jobs.push()
    assert (await jobs.push()).transaction_id == first.transaction_id
    [message] = await jobs.pop("mail")
    second = await jobs.push()
    assert second.status == "queued"
    await jobs.broker.ack(message)
    assert (await jobs.push()).transaction_id == second.transaction_id


async def test_a_key_counts_for_the_whole_queue_whatever_the_payload(harness: Harness) -> None:
    jobs = await jobs_of(harness, "unordered")
    first = await jobs.push(data=1, unique_key="shop 7", partition="a")
    for options in ({"partition": "b"}, {"partition": "a", "priority": 9}, {"type": "t"}):
        again = await jobs.push(data=2, unique_key="shop 7", **options)
        assert (again.status, again.transaction_id, again.partition) == (
            "duplicate",
            first.transaction_id,
            first.partition,
        )
    assert (await jobs.push(data=1, unique_key="shop 8")).status == "queued"
    other = Jobs(harness)
    assert (await other.push(data=1, unique_key="shop 7")).status == "queued"


async def test_messages_of_one_call_with_one_key_are_stored_once(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    items = [
        PushItem.of(jobs.queue, n, unique="while_waiting", unique_key=key, partition=partition)
        for n, (key, partition) in enumerate([("a", "x"), ("b", "y"), ("a", "y"), ("a", "x"), ("b", "x")])
    ]
    outcomes = await jobs.broker.push_many([*items, PushItem.of(jobs.queue, 5)])
    assert [one.status for one in outcomes] == ["queued", "queued", "duplicate", "duplicate", "duplicate", "queued"]
    assert [one.transaction_id for one in outcomes[2:5]] == [outcomes[n].transaction_id for n in (0, 0, 1)]
    assert sorted(await jobs.stored()) == [0, 1, 5]


async def test_one_of_many_concurrent_pushes_is_stored(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    other = await harness.second_broker()
    brokers = [jobs.broker, other] * 8
    pushes = [
        broker.push(jobs.queue, n, unique="while_waiting", unique_key="one", partition=f"lane {n % 5}")
        for n, broker in enumerate(brokers)
    ]
    outcomes = await asyncio.gather(*pushes)
    [stored] = [one for one in outcomes if one.status == "queued"]
    assert {one.transaction_id for one in outcomes} == {stored.transaction_id}
    assert len(await jobs.stored()) == 1


async def test_a_scheduled_message_waits(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    first = await jobs.push(delay_ms=60_000)
    again = await jobs.push()
    assert (first.status, again.status, again.deliver_at) == ("scheduled", "duplicate", first.deliver_at)
    assert (again.transaction_id, again.message_id) == (first.transaction_id, first.message_id)
    assert (await jobs.push(delay_ms=5)).transaction_id == first.transaction_id
    harness.clock.advance(61)
    await jobs.append_due()
    placed = await jobs.push()
    assert (placed.status, placed.transaction_id, placed.position) == ("duplicate", first.transaction_id, 0)
    [message] = await jobs.pop()
    assert (await jobs.push("while_running")).transaction_id == first.transaction_id
    await jobs.broker.ack(message)
    assert (await jobs.push("while_running")).status == "queued"


async def test_a_scheduled_message_that_was_cancelled_or_is_finished_excludes_nothing(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    first = await jobs.push(delay_ms=60_000)
    await jobs.broker.cancel(jobs.queue, first.transaction_id)
    second = await jobs.push(delay_ms=60_000)
    assert second.status == "scheduled"
    harness.clock.advance(61)
    await jobs.append_due()
    assert await jobs.stored() == ["same"]
    assert (await jobs.push()).status == "queued"


async def test_a_transaction_leaves_out_messages_that_another_excludes(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    source = await jobs.beside("source")
    await jobs.broker.push(source, 1)
    [message] = await jobs.broker.pop(source)
    first = await jobs.push()
    transaction = Transaction()
    transaction.push(jobs.queue, "same", unique="while_waiting")
    transaction.push(jobs.queue, "plain")
    transaction.push(jobs.queue, "later", unique="while_waiting", delay_ms=1000)
    transaction.ack(message)
    outcomes: list[Any] = await jobs.broker.transact(transaction.steps)
    assert [one.status for one in outcomes[:3]] == ["duplicate", "queued", "scheduled"]
    assert outcomes[0].transaction_id == first.transaction_id
    assert outcomes[3].success
    assert await jobs.stored() == ["same", "plain"]


async def test_a_refused_transaction_takes_no_key(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    full = await jobs.beside("full", max_size=1)
    await jobs.broker.push(full, 1)
    transaction = Transaction()
    transaction.push(jobs.queue, "same", unique="while_running")
    transaction.push(full, 2)
    with pytest.raises(TransactionRefused):
        await jobs.broker.transact(transaction.steps)
    assert (await jobs.push("while_running")).status == "queued"


async def test_a_full_queue_refuses_unique_messages_one_by_one(harness: Harness) -> None:
    jobs = await jobs_of(harness, max_size=2)
    items = [PushItem.of(jobs.queue, n, unique="while_waiting") for n in range(3)]
    outcomes = await jobs.broker.push_many(items)
    assert [one.status for one in outcomes] == ["queued", "queued", "refused"]
    assert isinstance(outcomes[2].error, QueueFull)
    assert (await jobs.push(data=1)).status == "duplicate"
    with pytest.raises(QueueFull):
        await jobs.push(data=2)


async def test_a_lost_answer_is_repeated_without_a_second_message(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    fails(harness.store.unique_keys, "commit", APPLIED)
    outcome = await jobs.push()
    assert outcome.status == "queued"
    assert (await jobs.push()).message_id == outcome.message_id
    fails(harness.store.unique_keys, "commit", APPLIED)
    assert (await jobs.push(data="later", delay_ms=1000)).status == "scheduled"
    assert await jobs.stored() == ["same"]


async def test_a_known_transaction_id_is_a_duplicate_of_its_own_message(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    first = await jobs.push(transaction_id="once")
    await jobs.stored()
    again = await jobs.push(transaction_id="once")
    assert (again.status, again.message_id) == ("duplicate", first.message_id)
    assert await jobs.stored() == []


async def test_a_part_of_a_fan_in_stands_for_the_message_that_excludes_it(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    then = await jobs.beside("then")
    await jobs.push()
    unique = {"unique": "while_waiting"}
    id = await jobs.broker.fan_in([(jobs.queue, "same", unique), (jobs.queue, "new", unique)], (then, 1))
    batch = await jobs.pop(batch=10)
    assert [message.data for message in batch] == ["same", "new"]
    await jobs.broker.ack(batch)
    [end] = await jobs.broker.pop(then, wait=30)
    assert (end.transaction_id, end.data["total"], end.data["failed"]) == (id, 2, 0)
    await jobs.push(data="later", delay_ms=60_000)
    with pytest.raises(TransactionRefused, match="is scheduled"):
        await jobs.broker.fan_in([(jobs.queue, "later", unique)], (then, 1))
    with pytest.raises(InvalidRequest, match="leave out unique"):
        await jobs.broker.fan_in([(jobs.queue, 1)], (then, 1, unique))


async def test_a_tick_of_a_schedule_is_left_out_while_another_one_waits(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    broker = jobs.broker
    await broker._engine.scheduler_loop.stop()
    options = ScheduleOptions(queue=jobs.queue, every_seconds=60, unique="while_running", missed="all")
    name = harness.name("sync")
    assert (await broker.schedules.define(name, options)).unique == "while_running"
    for _ in range(3):
        harness.clock.advance(60)
        await broker._engine.ticks.push_due()
    assert len(await broker.schedules.all()) == 1
    [message] = await jobs.pop(batch=10)
    harness.clock.advance(60)
    await broker._engine.ticks.push_due()
    assert not await jobs.pop(batch=10)
    await broker.ack(message)
    harness.clock.advance(60)
    await broker._engine.ticks.push_due()
    assert len(await jobs.stored()) == 1


async def test_a_unique_message_is_never_deferred(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    jobs.broker._engine.write_router.health.up = False
    with pytest.raises(StoreUnavailable, match="without unique"):
        await jobs.push()
    jobs.broker._engine.write_router.health.up = True
    assert (await jobs.push()).status == "queued"


async def test_an_encrypted_queue_needs_a_key_that_may_be_known(harness: Harness) -> None:
    await opened(harness, OLD)
    jobs = await jobs_of(harness, encryption_enabled=True)
    with pytest.raises(InvalidRequest, match="give a uniqueKey"):
        await jobs.push(data={"pin": 1})
    first = await jobs.push(data={"pin": 1}, unique_key="card 7")
    again = await jobs.push(data={"pin": 2}, unique_key="card 7")
    assert again.message_id == first.message_id


async def test_keys_of_finished_messages_are_forgotten(harness: Harness) -> None:
    jobs = await jobs_of(harness)
    for n in range(30):
        await jobs.push(data=n)
    await jobs.stored()
    for n in range(30, 35):
        await jobs.push(data=n)
    [[count]] = await harness.backend.sql(
        "SELECT count(*) FROM fairlane.unique_keys u JOIN fairlane.queues q ON q.id = u.queue_id WHERE q.name = $1",
        jobs.queue,
    )
    assert count == 5


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"unique": "sometimes"}, "must be while_waiting or while_running"),
        ({"unique": True}, "must be while_waiting or while_running"),
        ({"unique_key": "k"}, "give unique as well"),
        ({"unique": "while_waiting", "unique_key": ""}, "uniqueKey"),
        ({"unique": "while_waiting", "unique_key": "k" * 300}, "uniqueKey"),
    ],
)
async def test_what_cannot_be_unique_is_refused(harness: Harness, options: dict[str, Any], error: str) -> None:
    jobs = await jobs_of(harness)
    with pytest.raises(InvalidRequest, match=error):
        await jobs.broker.push(jobs.queue, 1, **options)
    assert await jobs.stored() == []
