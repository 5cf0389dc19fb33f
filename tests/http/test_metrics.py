"""The contents of /metrics, which also answers while the store is unavailable."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.http.metrics import store
from tests.http.test_operations import make_busy, push
from tests.http.wire import Wire
from tests.metrics import Named, sample, samples


async def scrape(wire: Wire) -> dict[Named, float]:
    answer = await wire.get("/metrics")
    assert answer.status == 200
    return samples(answer.body)


async def soon(wire: Wire, expected: dict[Named, float]) -> dict[Named, float]:
    """Return the samples once they are as expected. An expensive count is cached for some seconds."""
    async with asyncio.timeout(30):
        while True:
            found = await scrape(wire)
            if all(found.get(name) == value for name, value in expected.items()):
                return found
            await asyncio.sleep(0.05)


async def test_age_lag_and_leases_of_groups_are_told(wire: Wire) -> None:
    queue, idle = wire.name(), wire.name()
    group, oldest = {"queue": queue, "group": "g"}, sample("queue_oldest_age_seconds", queue=queue)
    await wire.configure(idle)
    await wire.push(queue, 1, 2, 3, partition="a")
    await wire.push(queue, 4, partition="b")
    found = await soon(wire, {sample("queue_oldest_age_seconds", queue=idle): 0})
    assert found[oldest] > 0, "of a queue that nobody reads as well"
    taken = await wire.pop(queue, consumerGroup="g", partitions=1)
    held = {sample("group_leases", **group): 1, sample("group_leased_messages", **group): len(taken)}
    found = await soon(wire, {sample("group_lag_messages", **group): 4, **held})
    assert found[sample("group_lag_seconds", **group)] > 0
    assert found[oldest] > 0
    await wire.ack(taken)
    await wire.ack(await wire.pop(queue, consumerGroup="g", partitions=1))
    names = [sample(f"group_{name}", **group) for name in ("lag_messages", "lag_seconds", "leases", "leased_messages")]
    found = await soon(wire, dict.fromkeys([*names, oldest], 0))
    assert found[sample("store_up")] == 1
    assert found[sample("store_metrics_age_seconds")] >= 0


async def test_the_age_of_a_new_queue_that_nobody_reads_is_told_beside_many_older_ones(wire: Wire) -> None:
    for _ in range(101):  # one more than the limit
        await wire.push(wire.name(), 1)
    queue = wire.name()
    await wire.push(queue, 1)
    found = await soon(wire, {sample("queue_partitions", queue=queue): 1})
    assert found[sample("queue_oldest_age_seconds", queue=queue)] > 0


async def test_redeliveries_dead_letters_and_time_in_queue_are_counted(wire: Wire) -> None:
    queue = wire.name()
    await wire.configure(queue, retryLimit=1)
    await wire.push(queue, "first", "second")
    await wire.ack(await wire.pop(queue, batch=1), "failed", error="no")
    await wire.ack(await wire.pop(queue, batch=1), "failed", error="again")
    await wire.ack(await wire.pop(queue, batch=1), "dlq", error="never")
    found = await scrape(wire)
    assert (found[sample("messages_redelivered_total")], found[sample("messages_dead_lettered_total")]) == (1, 2)
    assert found[sample("time_in_queue_seconds_count")] == 3
    assert found[sample("time_in_queue_seconds_bucket", le="+Inf")] == 3
    assert found[sample("time_in_queue_seconds_sum")] > 0
    assert found[sample("leases_expired_total")] == 0


async def test_leases_that_ran_out_are_counted(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    await wire.pop(queue, leaseSeconds=1)
    assert await wire.pop(queue, wait="true", timeout=20_000)
    assert (await scrape(wire))[sample("leases_expired_total")] == 1


async def test_metrics_answer_while_the_store_does_not(wire: Wire) -> None:
    queue = wire.name()
    await wire.push(queue, 1)
    assert (await scrape(wire))[sample("store_up")] == 1
    await wire.app.broker._engine.store.close()
    found = await soon(wire, {sample("store_up"): 0})  # an answer of the store is cached for a second
    assert found[sample("requests_total", verb="push")] == 1
    assert sample("queue_messages", queue=queue, state="pending") not in found
    assert found[sample("queue_messages_pushed_total", queue=queue)] == 1, "the broker counts this itself"


async def test_no_age_is_told_before_the_first_count(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, count = asyncio.Event(), wire.app.store_metrics._count

    async def slow() -> None:
        await counted.wait()
        await count()

    monkeypatch.setattr(store, "COUNT_SECONDS", 0.01)
    monkeypatch.setattr(wire.app.store_metrics, "_count", slow)
    found = await soon(wire, {sample("store_up"): 1})
    assert sample("store_metrics_age_seconds") not in found
    counted.set()
    while sample("store_metrics_age_seconds") not in found:
        found = await scrape(wire)
    assert 0 <= found[sample("store_metrics_age_seconds")] < 60


async def test_operations_that_do_not_move_are_counted_as_stuck(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    await wire.app.broker._engine.operation_drain.stop()
    make_busy(wire)
    await push(wire, wire.name(), 1)
    waiting, stuck = sample("operations", state="waiting"), sample("operation_backlogs_stuck")
    found = await soon(wire, {waiting: 1})
    assert found[stuck] == 0, "not yet"
    monkeypatch.setattr("fairlane.http.metrics.store.STUCK_SECONDS", -1)  # as if this much time had passed
    await soon(wire, {waiting: 1, stuck: 1})
    wire.app.broker._engine.operation_drain.start()
    await soon(wire, {waiting: 0, stuck: 0})
