"""Pops that take several calls, each its own transaction, and what happens when one of them fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.push_batch import PushFlight, PushRequest
from fairlane.errors import FairlaneError, OutcomeUnknown, StoreUnavailable
from fairlane.model.message import Message, PushItem
from fairlane.model.names import DEFAULT_TENANT
from fairlane.store.postgres.connection import Database
from tests.conftest import FreshDatabase
from tests.lost_answers import APPLIED, AWAY
from tests.postgres import PostgresServer

QUEUE = "orders"
QUEUES = [f"orders {n}" for n in range(8)]
PARTITIONS = 16


@pytest.fixture
async def broker(postgres18: PostgresServer, fresh_database: FreshDatabase) -> AsyncIterator[Broker]:
    async with Broker.open(await fresh_database(postgres18)) as broker:
        yield broker


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make calls of a function fail: with `fails("pop", None, AWAY)` the second of the next calls fails."""

    def fails(function: str, *faults: FairlaneError | None) -> None:
        left, write = list(faults), Database.write

        async def failing(database: Database, sql: str, *values: Any) -> Any:
            fault = left.pop(0) if left and f"fairlane.{function}(" in sql else None
            if fault is not None and fault is not APPLIED:
                raise fault
            rows = await write(database, sql, *values)
            if fault is not None:
                raise fault
            return rows

        monkeypatch.setattr(Database, "write", failing)

    return fails


def items(**options: Any) -> list[PushItem]:
    return [PushItem(queue=QUEUES[n % 8], payload=b"%d" % n, partition=f"p{n}", **options) for n in range(PARTITIONS)]


async def popped(broker: Broker, **options: Any) -> list[Message[Any]]:
    return [one for queue in QUEUES for one in await broker.pop(queue, batch=100, partitions=100, **options)]


async def half_paused(broker: Broker) -> Callable[[], Awaitable[None]]:
    """Pause half the lanes of a queue, so that a large pop needs another call. Returns a function that resumes them."""
    await broker.push_many([PushItem(queue=QUEUE, payload=b"%d" % n, partition=f"p{n}") for n in range(PARTITIONS)])
    queue = await broker._engine.store.queues.ensure(DEFAULT_TENANT, QUEUE)
    partitions = await broker._engine.store.queues.ensure_partitions(
        queue.id, [f"p{n}" for n in range(0, PARTITIONS, 2)]
    )
    for partition in partitions:
        await broker._engine.store.pauses.pause(queue.id, partition=partition.id)

    async def resume() -> None:
        for partition in partitions:
            await broker._engine.store.pauses.resume(queue.id, partition=partition.id)

    return resume


@pytest.mark.parametrize("auto_ack", [True, False])
async def test_what_one_call_gave_is_delivered_when_the_next_is_away(
    broker: Broker, fails: Any, auto_ack: bool
) -> None:
    resume = await half_paused(broker)
    fails("pop", None, AWAY)
    first = await broker.pop(QUEUE, batch=100, partitions=100, auto_ack=auto_ack)
    assert 0 < len(first) < PARTITIONS
    await resume()
    rest = await broker.pop(QUEUE, batch=100, partitions=100, auto_ack=auto_ack)
    assert sorted(one.data for one in (*first, *rest)) == list(range(PARTITIONS))
    fails("pop_groups", AWAY)
    with pytest.raises(StoreUnavailable):
        await broker.pop(QUEUE)


async def test_what_was_finished_at_delivery_is_delivered_though_the_next_call_says_nothing(
    broker: Broker, fails: Any
) -> None:
    await half_paused(broker)
    fails("pop", None, APPLIED)
    assert len(await broker.pop(QUEUE, batch=100, partitions=100, auto_ack=True)) > 0


async def test_what_a_pop_leased_is_given_back_when_its_next_call_says_nothing(broker: Broker, fails: Any) -> None:
    resume = await half_paused(broker)
    fails("pop", None, APPLIED)
    with pytest.raises(OutcomeUnknown):
        await broker.pop(QUEUE, batch=100, partitions=100)
    await broker._engine.popper.background.finish()
    await resume()
    again = await broker.pop(QUEUE, batch=100, partitions=100)
    assert sorted((one.data, one.failed_attempts) for one in again) == [(n, 0) for n in range(PARTITIONS)]


async def test_what_is_enqueued_again_after_an_unknown_outcome_is_enqueued_once(broker: Broker, fails: Any) -> None:
    for queue in QUEUES:
        await broker.queues.configure(queue)
    fails("add_scheduled", APPLIED)
    outcomes = await broker.push_many(items(delay_ms=60_000))
    assert [outcome.status for outcome in outcomes] == ["scheduled"] * PARTITIONS
    assert sum([len((await broker.scheduled.page(queue)).messages) for queue in QUEUES]) == PARTITIONS
    await broker._engine.operation_drain.stop()
    fails("enqueue", APPLIED)
    [kept] = await broker._engine.pusher.run_enqueue(PushFlight([PushRequest(DEFAULT_TENANT, items())]))
    assert isinstance(kept, list)
    assert [outcome.status for outcome in kept] == ["buffered"] * PARTITIONS
    assert await broker._engine.store.operations.depth() == PARTITIONS
