"""Fan-ins: the callback is pushed once, after the last of its parts has ended, however that was."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.services import fan_in_callbacks
from fairlane.broker.services.fan_in_callbacks import FanInCallbacks
from fairlane.broker.transaction import Transaction
from fairlane.errors import (
    AlreadyApplied,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    QueueFull,
    StoreUnavailable,
    TransactionRefused,
)
from fairlane.model.group import Seek
from fairlane.model.names import QUEUE_MODE
from tests.conformance.harness import Harness
from tests.conformance.test_encryption import CANARY, OLD, opened
from tests.conformance.test_retention import run as run_retention
from tests.lost_answers import APPLIED, AWAY, fails


class Parts:
    """Fan-ins over one queue, with a callback to another. The test decides when ends are noted."""

    def __init__(self, harness: Harness, broker: Broker) -> None:
        self.harness = harness
        self.broker = broker
        self.queue = harness.name("parts")
        self.then = harness.name("then")

    async def make(self, count: int, **options: Any) -> str:
        parts = [(self.queue, {"n": n}, {"transaction_id": f"part {n}"}) for n in range(count)]
        return await self.broker.fan_in(parts, (self.then, {"report": 7}), **options)

    async def callbacks(self) -> list[Any]:
        """Note all ends, and return the callbacks that were pushed since the last call."""
        await service(self.broker).check_all()
        batch = await self.broker.pop(self.then, batch=100, partitions=100, auto_ack=True)
        return [message.data for message in batch]

    async def callback(self) -> Any:
        [found] = await self.callbacks()
        return found

    async def statuses(self, id: str) -> list[str]:
        return [part.status for part in (await self.broker.fan_ins.get(id)).parts]


def service(broker: Broker) -> FanInCallbacks:
    [found] = [one for one in broker._engine.services if isinstance(one, FanInCallbacks)]
    return found


async def parts_of(harness: Harness, **options: Any) -> Parts:
    await service(harness.broker).stop()
    parts = Parts(harness, harness.broker)
    await harness.broker.queues.configure(parts.queue, **options)
    return parts


async def test_the_callback_has_the_data_and_the_results_in_the_order_of_the_parts(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(3)
    batch = await parts.broker.pop(parts.queue, batch=3)
    await parts.broker.ack(batch[0], result={"size": 1})
    assert await parts.callbacks() == []
    shown = await parts.broker.fan_ins.get(id)
    assert (shown.status, shown.total, shown.open, shown.completed, shown.failed) == ("open", 3, 2, 1, 0)
    await parts.broker.ack(batch[1])
    await parts.broker.ack(batch[2], result=[3])
    end = await parts.callback()
    assert (end["fanIn"], end["data"]) == (id, {"report": 7})
    assert (end["total"], end["results"], end["failed"], end["failures"]) == (3, [{"size": 1}, None, [3]], 0, [])
    shown = await parts.broker.fan_ins.get(id)
    assert (shown.status, shown.open, shown.completed) == ("ended", 0, 3)
    assert await parts.callbacks() == []


async def test_acks_of_parts_wake_the_service(harness: Harness) -> None:
    broker, parts = harness.broker, Parts(harness, harness.broker)
    await parts.make(2)
    await broker.ack(await broker.pop(parts.queue, batch=2))
    batch = await broker.pop(parts.then, wait=30)
    assert [message.data["total"] for message in batch] == [2]


async def test_a_fan_in_without_parts_pushes_its_callback_at_once(harness: Harness) -> None:
    parts = Parts(harness, harness.broker)
    await parts.make(0)
    [message] = await parts.broker.pop(parts.then, wait=30)
    assert (message.data["total"], message.data["results"]) == (0, [])


async def test_the_transaction_id_of_a_callback_is_the_id_of_the_fan_in(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = harness.name("night run")
    assert await parts.make(0, id=id) == id
    await service(parts.broker).check_all()
    [message] = await parts.broker.pop(parts.then)
    assert message.transaction_id == id


async def test_dead_letters_and_cancelled_parts_are_failures(harness: Harness) -> None:
    parts = await parts_of(harness, retry_limit=0)
    id = await parts.make(3)
    batch = await parts.broker.pop(parts.queue, batch=2)
    await parts.broker.ack(batch[0])
    await parts.broker.nack(batch[1], error="no paper")
    assert await parts.callbacks() == []
    await parts.broker.cancellations.cancel(parts.queue, "part 2")
    end = await parts.callback()
    assert await parts.statuses(id) == ["completed", "dead_letter", "cancelled"]
    assert end["failed"] == 2
    assert [(one["part"], one["status"], one.get("error")) for one in end["failures"]] == [
        (1, "dead_letter", "no paper"),
        (2, "cancelled", None),
    ]


async def test_a_part_that_fails_and_then_succeeds_is_completed(harness: Harness) -> None:
    parts = await parts_of(harness, retry_limit=3)
    id = await parts.make(1)
    await parts.broker.nack(await parts.broker.pop(parts.queue), delay_ms=0)
    assert (await parts.callbacks(), await parts.statuses(id)) == ([], ["open"])
    await parts.broker.ack(await parts.broker.pop(parts.queue), result=1)
    assert (await parts.callback())["results"] == [1]


async def test_a_replayed_dead_letter_is_no_part_again(harness: Harness) -> None:
    parts = await parts_of(harness, retry_limit=0)
    id = await parts.make(2)
    batch = await parts.broker.pop(parts.queue, batch=1)
    await parts.broker.nack(batch)
    assert await parts.callbacks() == []
    assert len(await parts.broker.dead_letters.replay(parts.queue)) == 1
    await parts.broker.ack(await parts.broker.pop(parts.queue, batch=10))
    assert (await parts.callback())["failed"] == 1
    assert await parts.statuses(id) == ["dead_letter", "completed"]


async def test_parts_of_an_unordered_queue_end_in_any_order(harness: Harness) -> None:
    parts = await parts_of(harness, ordering="unordered", retry_limit=5)
    id = await parts.make(4)
    batch = await parts.broker.pop(parts.queue, batch=4)
    await parts.broker.ack(batch[3], result="last")
    await parts.broker.ack(batch[1])
    assert await parts.callbacks() == []
    assert await parts.statuses(id) == ["open", "completed", "open", "completed"]
    await parts.broker.nack(batch[0], delay_ms=0)
    assert await parts.statuses(id) == ["open", "completed", "open", "completed"]
    await parts.broker.ack(batch[2])
    await parts.broker.ack(await parts.broker.pop(parts.queue))
    assert (await parts.callback())["results"] == [None, None, None, "last"]


async def test_a_message_that_is_finished_ahead_of_its_lane_has_ended(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(2)
    batch = await parts.broker.pop(parts.queue, batch=2)
    await parts.broker.ack(batch[1])
    await service(parts.broker).check_all()
    assert await parts.statuses(id) == ["open", "completed"]


async def test_parts_may_be_in_many_queues_and_partitions(harness: Harness) -> None:
    parts = await parts_of(harness)
    other = harness.name("other")
    made = [(parts.queue, n, {"partition": f"lane {n % 3}"}) for n in range(9)] + [(other, n) for n in range(3)]
    await parts.broker.fan_in(made, (parts.then, None))
    for queue in (parts.queue, other):
        for message in await parts.broker.pop(queue, batch=100, partitions=100):
            await parts.broker.ack(message, result=f"{message.queue == other} {message.data}")
    end = await parts.callback()
    assert end["results"] == [f"False {n}" for n in range(9)] + [f"True {n}" for n in range(3)]


async def test_only_the_group_of_the_fan_in_counts(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(1, group="billing")
    await parts.broker.ack(await parts.broker.pop(parts.queue))
    await parts.broker.ack(await parts.broker.pop(parts.queue, group="audit"))
    assert (await parts.callbacks(), await parts.statuses(id)) == ([], ["open"])
    await parts.broker.ack(await parts.broker.pop(parts.queue, group="billing"), result=1)
    assert (await parts.callback())["results"] == [1]
    assert QUEUE_MODE != (await parts.broker.fan_ins.get(id)).consumer_group == "billing"


async def test_a_part_that_is_a_duplicate_stands_for_the_message_stored_before(harness: Harness) -> None:
    parts = await parts_of(harness)
    await parts.broker.push(parts.queue, {"n": 0}, transaction_id="part 0")
    await parts.broker.ack(await parts.broker.pop(parts.queue), result="before")
    id = await parts.make(2)
    await service(parts.broker).check_all()
    assert await parts.statuses(id) == ["completed", "open"]
    [message] = await parts.broker.pop(parts.queue, batch=10)
    await parts.broker.ack(message)
    assert (await parts.callback())["results"] == ["before", None]


async def test_two_parts_with_one_id_are_one_message(harness: Harness) -> None:
    parts = await parts_of(harness)
    same = (parts.queue, 1, {"transaction_id": "same"})
    await parts.broker.fan_in([same, same], (parts.then, None))
    [message] = await parts.broker.pop(parts.queue, batch=10)
    await parts.broker.ack(message, result="once")
    assert (await parts.callback())["results"] == ["once", "once"]


@pytest.mark.parametrize("repeats", [1, 2])
async def test_a_repeated_call_is_one_fan_in(harness: Harness, repeats: int) -> None:
    parts = await parts_of(harness)
    id = harness.name("run")
    for _ in range(repeats + 1):
        await parts.make(2, id=id)
    batch = await parts.broker.pop(parts.queue, batch=10)
    assert len(batch) == 2
    await parts.broker.ack(batch)
    assert (await parts.callback())["total"] == 2


async def test_another_fan_in_of_the_same_id_stores_nothing(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(1)
    with pytest.raises(AlreadyApplied, match="exists"):
        await parts.broker.fan_in([(parts.queue, "another")], (parts.then, None), id=id)
    assert len(await parts.broker.pop(parts.queue, batch=10)) == 1


async def test_a_refused_part_refuses_the_whole_fan_in(harness: Harness) -> None:
    parts = await parts_of(harness, max_size=2)
    with pytest.raises(TransactionRefused):
        await parts.make(3, id=parts.then)
    assert not await parts.broker.pop(parts.queue)
    with pytest.raises(NotFound):
        await parts.broker.fan_ins.get(parts.then)


async def test_a_fan_in_is_created_with_the_acks_of_its_transaction_or_not_at_all(harness: Harness) -> None:
    parts = await parts_of(harness)
    source = harness.name("source")
    await parts.broker.push(source, 1)
    batch = await parts.broker.pop(source)
    async with parts.broker.transaction() as transaction:
        transaction.ack(batch)
        id = transaction.fan_in([(parts.queue, 1), (parts.queue, 2)], (parts.then, None))
    assert (await parts.broker.fan_ins.get(id)).total == 2
    refused = Transaction()
    refused.ack(batch, "failed")
    id = refused.fan_in([(parts.queue, 3)], (parts.then, None))
    with pytest.raises(TransactionRefused):
        await parts.broker.transact(refused.steps, refused.fan_ins)
    with pytest.raises(NotFound):
        await parts.broker.fan_ins.get(id)
    assert [message.data for message in await parts.broker.pop(parts.queue, batch=10)] == [1, 2]


async def test_a_repeated_transaction_with_acks_is_applied_once(harness: Harness) -> None:
    parts = await parts_of(harness)
    source = harness.name("source")
    await parts.broker.push(source, 1)
    batch = await parts.broker.pop(source)
    for _ in range(2):
        async with parts.broker.transaction() as transaction:
            transaction.ack(batch)
            transaction.fan_in([(parts.queue, 1, {"transaction_id": "a"})], (parts.then, None), id=source)
    await parts.broker.ack(await parts.broker.pop(parts.queue, batch=10))
    assert (await parts.callback())["total"] == 1


async def test_two_brokers_push_one_callback(harness: Harness) -> None:
    parts = await parts_of(harness)
    second = await harness.second_broker()
    await service(second).stop()
    await parts.broker.queues.configure(parts.then, dedup_seconds=0)  # so that only the fan-in itself prevents a second
    for number in range(5):
        await parts.broker.fan_in([(parts.queue, number)], (parts.then, number))
    await parts.broker.ack(await parts.broker.pop(parts.queue, batch=10))
    await asyncio.gather(*(service(broker).check_all() for broker in (parts.broker, second, parts.broker, second)))
    assert sorted(end["data"] for end in await parts.callbacks()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dedup_seconds", [0, 60])
async def test_a_callback_whose_answer_was_lost_is_pushed_once(harness: Harness, dedup_seconds: int) -> None:
    parts = await parts_of(harness)
    await parts.broker.queues.configure(parts.then, dedup_seconds=dedup_seconds)
    await parts.make(0)
    fails(harness.store.fan_ins, "end", APPLIED)
    with contextlib.suppress(OutcomeUnknown):
        await service(parts.broker).check_all()
    assert len(await parts.callbacks()) == 1


async def test_a_callback_that_the_store_did_not_take_is_pushed_later(harness: Harness) -> None:
    parts = await parts_of(harness)
    await parts.make(0)
    fails(harness.store.fan_ins, "end", AWAY)
    with pytest.raises(StoreUnavailable):
        await service(parts.broker).check_all()
    assert len(await parts.callbacks()) == 1


async def test_a_fan_in_whose_answer_was_lost_is_stored_once(harness: Harness) -> None:
    parts = await parts_of(harness)
    fails(harness.store.fan_ins, "commit", APPLIED)
    await parts.broker.fan_in([(parts.queue, 1), (parts.queue, 2)], (parts.then, None))
    batch = await parts.broker.pop(parts.queue, batch=10)
    assert len(batch) == 2
    await parts.broker.ack(batch)
    assert (await parts.callback())["total"] == 2


async def test_what_was_noted_survives_a_restart(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(2)
    await parts.broker.ack(await parts.broker.pop(parts.queue, batch=2))
    await harness.reopen()
    parts.broker = harness.broker
    await service(parts.broker).stop()
    assert await parts.statuses(id) == ["completed", "completed"]
    await harness.store.fan_ins.settle(None, limit=1000)
    await harness.reopen()
    parts.broker = harness.broker
    await service(parts.broker).stop()
    assert (await parts.callback())["total"] == 2


async def test_a_part_noted_as_completed_stays_so_after_a_seek(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(2)
    await parts.broker.ack(await parts.broker.pop(parts.queue, batch=1))
    assert await parts.callbacks() == []
    await parts.broker.groups.seek(parts.queue, QUEUE_MODE, Seek("beginning"))
    assert await parts.statuses(id) == ["completed", "open"]
    await parts.broker.ack(await parts.broker.pop(parts.queue, batch=10))
    assert (await parts.callback())["total"] == 2


async def test_parts_of_a_deleted_queue_are_deleted(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(2)
    await parts.broker.queues.delete(parts.queue)
    end = await parts.callback()
    assert await parts.statuses(id) == ["deleted", "deleted"]
    assert [one["status"] for one in end["failures"]] == ["deleted", "deleted"]


async def test_a_deleted_message_is_a_deleted_part(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(1)
    [part] = (await parts.broker.fan_ins.get(id)).parts
    await parts.broker.messages.delete(part.partition_id, "part 0")
    assert (await parts.callback())["failures"][0]["status"] == "deleted"


async def test_a_deleted_fan_in_pushes_nothing(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(1)
    assert await parts.broker.fan_ins.delete(id)
    assert not await parts.broker.fan_ins.delete(id)
    await parts.broker.ack(await parts.broker.pop(parts.queue))
    assert await parts.callbacks() == []


async def test_a_callback_whose_queue_is_full_waits(harness: Harness) -> None:
    parts = await parts_of(harness)
    await parts.broker.queues.configure(parts.then, max_size=1)
    await parts.broker.push(parts.then, "in the way")
    id = await parts.make(0)
    await service(parts.broker).check_all()
    shown = await parts.broker.fan_ins.get(id)
    assert (shown.status, "full" in str(shown.error)) == ("refused", True)
    with pytest.raises(QueueFull):
        await parts.broker.push(parts.then, "more")
    await parts.broker.pop(parts.then, auto_ack=True)
    service(parts.broker)._refused_until.clear()
    assert (await parts.callback())["total"] == 0
    assert (await parts.broker.fan_ins.get(id)).error is None


async def test_refused_callbacks_hold_up_no_others(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_in_callbacks, "_STEP", 2)
    parts = await parts_of(harness)
    full = harness.name("full")
    await parts.broker.queues.configure(full, max_size=1)
    await parts.broker.push(full, 0)
    for _ in range(5):
        await parts.broker.fan_in([], (full, None))
    id = await parts.make(0)
    assert (await parts.callback())["fanIn"] == id


async def test_a_callback_that_cannot_be_opened_holds_up_no_others(harness: Harness) -> None:
    await opened(harness, OLD)
    parts = await parts_of(harness)
    sealed = harness.name("sealed")
    await parts.broker.queues.configure(sealed, encryption_enabled=True)
    locked = await parts.broker.fan_in([], (sealed, CANARY))
    id = await parts.make(0)
    await opened(harness)
    parts.broker = harness.broker
    await service(parts.broker).stop()
    assert (await parts.callback())["fanIn"] == id
    assert "key" in str((await parts.broker.fan_ins.get(locked)).error)


async def test_results_that_are_too_large_are_left_out(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_in_callbacks, "RESULTS_BYTES_MAX", 30)
    parts = await parts_of(harness)
    await parts.make(4)
    for message in await parts.broker.pop(parts.queue, batch=4):
        size = 20_000 if message.data["n"] == 0 else 10
        await parts.broker.ack(message, result="x" * size)
    end = await parts.callback()
    assert end["results"] == [None, "x" * 10, "x" * 10, None]
    assert end["resultsLeftOut"] == 2


async def test_a_fan_in_is_forgotten_a_day_after_its_end(harness: Harness) -> None:
    parts = await parts_of(harness)
    id, open_id = await parts.make(0), await parts.make(1)
    await service(parts.broker).check_all()
    harness.clock.advance(fan_in_callbacks.FORGET_SECONDS + 1)
    service(parts.broker)._forget_at = 0.0
    await service(parts.broker).check_all()
    with pytest.raises(NotFound):
        await parts.broker.fan_ins.get(id)
    assert (await parts.broker.fan_ins.get(open_id)).status == "open"


async def test_parts_are_shown_in_pages(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(5)
    shown = await parts.broker.fan_ins.get(id, offset=3, limit=1)
    assert [(part.part, part.transaction_id, part.queue) for part in shown.parts] == [(3, "part 3", parts.queue)]


async def test_tenants_do_not_see_fan_ins_of_others(harness: Harness) -> None:
    parts = await parts_of(harness)
    id = await parts.make(1)
    other = harness.name("tenant")
    await parts.broker.tenants.create(other)
    with pytest.raises(NotFound):
        await parts.broker.of(other).fan_ins.get(id)
    assert not await parts.broker.of(other).fan_ins.delete(id)


@pytest.mark.parametrize(
    ("parts", "then", "error"),
    [
        ("orders", ("q", 1), "parts must be a list"),
        ([("q",)], ("q", 1), "part 0: give each part"),
        ([("q", 1), ("", 1)], ("q", 1), "queue"),
        ([("q", 1, {"delay_ms": 5})], ("q", 1), "part 0: "),
        ([("q", 1)], ("q", 1, {"deliver_at": 5}), "then: "),
        ([("q", 1)], "q", "then: give each part"),
        ([("q", 1)], ("", 1), "then: queue"),
    ],
)
async def test_a_bad_fan_in_is_refused(harness: Harness, parts: Any, then: Any, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        await harness.broker.fan_in(parts, then)


async def test_nothing_of_encrypted_queues_is_stored_in_clear(harness: Harness) -> None:
    await opened(harness, OLD)
    parts = await parts_of(harness, encryption_enabled=True)
    await parts.broker.queues.configure(parts.then, encryption_enabled=True)
    id = await parts.broker.fan_in([(parts.queue, CANARY)], (parts.then, {"data": CANARY}))
    await parts.broker.ack(await parts.broker.pop(parts.queue), result=CANARY)
    await harness.store.fan_ins.settle(None, limit=1000)
    rows = await harness.backend.sql("SELECT callback FROM fairlane.fan_ins WHERE id = $1", id)
    rows += await harness.backend.sql("SELECT result FROM fairlane.fan_in_parts WHERE fan_in = $1", id)
    assert [CANARY.encode() in bytes(value) for (value,) in rows] == [False, False]
    end = await parts.callback()
    assert (end["data"], end["results"]) == ({"data": CANARY}, [CANARY])


async def test_results_of_encrypted_queues_do_not_reach_a_callback_in_clear(harness: Harness) -> None:
    await opened(harness, OLD)
    parts = await parts_of(harness, encryption_enabled=True)
    await parts.broker.fan_in([(parts.queue, CANARY)], (parts.then, 1))
    await parts.broker.ack(await parts.broker.pop(parts.queue), result=CANARY)
    end = await parts.callback()
    assert (end["results"], end["resultsLeftOut"]) == ([None], 1)


async def test_a_part_that_expires_is_not_completed(harness: Harness) -> None:
    parts = await parts_of(harness, ttl_seconds=10, on_expiry="drop")
    id = await parts.make(2)
    await parts.broker.ack(await parts.broker.pop(parts.queue, batch=1))
    harness.clock.advance(20)
    assert not await parts.broker.pop(parts.queue)
    assert [one["status"] for one in (await parts.callback())["failures"]] == ["expired"]
    assert await parts.statuses(id) == ["completed", "expired"]


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_a_part_that_retention_deletes_unread_is_not_completed(harness: Harness, ordering: str) -> None:
    parts = await parts_of(harness, ordering=ordering, retention_enabled=True, retention_seconds=60)
    id = await parts.make(3)
    batch = await parts.broker.pop(parts.queue, batch=2, lease_seconds=10)
    await parts.broker.ack(batch[0])
    harness.clock.advance(3600)
    await run_retention(harness)
    assert (await parts.callback())["failed"] == 2
    assert await parts.statuses(id) == ["completed", "deleted", "deleted"]
