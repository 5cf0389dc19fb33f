"""Looking up messages by their ids across partitions and queues, and deleting the entries with the messages."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from fairlane.broker.broker import Broker
from fairlane.model.ids import PartitionId
from fairlane.model.message import PushItem
from fairlane.model.queue import Queue
from fairlane.store.contract.values import DeadFilter
from fairlane.wire.browse import MessageQuery
from tests.conformance.harness import Harness
from tests.conformance.operation_driver import no_operations
from tests.conformance.test_retention import run
from tests.queen_package import INSTALLED

TABLES = ("message_keys", "traced", "results", *(("traces", "trace_names") if INSTALLED else ()))


def item(queue: Queue, id: str, **more: Any) -> PushItem:
    return PushItem(queue=queue.name, payload=b'{"traceId":"none"}', transaction_id=id, **more)


async def looked_up(harness: Harness, *queues: Queue, limit: int = 100, **where: Any) -> list[str]:
    """Return `queue partition transactionId` of each match, page by page."""
    names, before, found = [queue.name for queue in queues], None, list[str]()
    while True:
        page = await harness.broker.messages.browse.search(
            list(queues), MessageQuery(limit=limit, before=before, **where)
        )
        assert len(page.messages) <= limit
        found += [f"{names.index(one.queue)} {one.partition} {one.transaction_id}" for one in page.messages]
        if page.next is None:
            return found
        before = str(page.next)


async def test_messages_of_a_trace_are_found_across_queues_newest_first(harness: Harness) -> None:
    broker, queues = harness.broker, [await harness.queue(), await harness.queue(max_size=100)]
    trace, other = str(uuid4()), str(uuid4())
    for number, queue in enumerate([*queues, *queues]):
        harness.clock.advance(1)
        some = [item(queue, f"n{number}", trace_id=trace.upper(), partition=f"p{number}"), item(queue, f"o{number}")]
        await broker.push_many([*some, item(queue, f"x{number}", trace_id=other)])
    expected = ["1 p3 n3", "0 p2 n2", "1 p1 n1", "0 p0 n0"]
    assert await looked_up(harness, *queues, trace_id=trace) == expected
    assert await looked_up(harness, *queues, trace_id=trace, limit=1) == expected
    assert await looked_up(harness, *queues, trace_id=trace.upper(), partition="p1") == ["1 p1 n1"]
    assert await looked_up(harness, queues[0], trace_id=trace) == ["0 p2 n2", "0 p0 n0"]
    since = harness.clock() - 1_500_000
    assert await looked_up(harness, *queues, trace_id=trace, since=since) == expected[:2]
    assert await looked_up(harness, *queues, trace_id=trace, transaction_id="n1") == ["1 p1 n1"]
    assert await looked_up(harness, *queues, trace_id=str(uuid4())) == []


async def test_a_trace_is_found_whatever_way_its_messages_came(harness: Harness) -> None:
    await no_operations(harness)
    broker, queue = harness.broker, await harness.queue(retry_limit=0)
    trace = str(uuid4())
    await broker.push(queue.name, 1, transaction_id="pushed", trace_id=trace)
    await broker.transact([item(queue, "in a transaction", trace_id=trace)])
    harness.clock.advance(1)
    await broker.push(queue.name, 1, transaction_id="later", trace_id=trace, delay_ms=1000)
    assert len(await looked_up(harness, queue, trace_id=trace)) == 2
    harness.clock.advance(2)
    await harness.store.scheduled.append_due()
    await broker.ack(await broker.pop(queue.name), "failed")
    [(_, replayed)] = await harness.store.dead_letters.replay(queue.id, DeadFilter())
    found = await looked_up(harness, queue, trace_id=trace)
    assert set(found) == {f"0 Default {id}" for id in ("pushed", "in a transaction", "later", replayed)}


@pytest.mark.parametrize("kind", ["a text", "a new uuid", "an old uuid"])
async def test_a_transaction_id_is_found_in_every_partition_and_no_other(harness: Harness, kind: str) -> None:
    queues = [await harness.queue(), await harness.queue()]
    id = harness.name("id") if kind == "a text" else harness.mint()
    if kind == "an old uuid":
        harness.clock.advance(3600)
    broker = harness.broker
    for number, queue in enumerate(queues):
        for partition in ("a", "b"):
            harness.clock.advance(0.001)
            await broker.push_many([item(queue, f"{number}{partition}", partition=partition)])
            await broker.push_many([item(queue, id, partition=partition)])
    assert await looked_up(harness, *queues, transaction_id=id) == [
        f"{n} {p} {id}" for n, p in ("1b", "1a", "0b", "0a")
    ]
    assert await looked_up(harness, queues[1], transaction_id=id, limit=1) == [f"0 b {id}", f"0 a {id}"]
    assert await looked_up(harness, *queues, transaction_id=id, partition="b") == [f"1 b {id}", f"0 b {id}"]
    assert await looked_up(harness, *queues, transaction_id="nobody") == []
    assert await looked_up(harness, *queues, transaction_id=harness.mint()) == []


async def test_what_was_deleted_is_not_looked_up(harness: Harness) -> None:
    broker, queue = harness.broker, await harness.queue()
    trace = str(uuid4())
    for id in ("a", "b", "c"):
        await broker.push(queue.name, 1, transaction_id=id, trace_id=trace)
    partition = (await harness.partition(queue)).id
    assert await harness.store.browse.delete(partition, 1)
    assert await looked_up(harness, queue, trace_id=trace) == ["0 Default c", "0 Default a"]
    assert await looked_up(harness, queue, transaction_id="b") == []


async def rows_of(harness: Harness, partition: PartitionId) -> dict[str, int]:
    """Return the number of rows that belong to a partition besides its log."""
    counts = {}
    for table in TABLES:
        [[counts[table]]] = await harness.backend.sql(
            f"SELECT count(*) FROM fairlane.{table} WHERE partition_id = $1",  # statement names of our own
            partition.id,
        )
    return counts


async def furnished(harness: Harness, broker: Broker, queue: Queue) -> PartitionId:
    """Create a partition whose messages have every optional field. The first two are done."""
    partition = (await harness.partition(queue)).id
    for number in range(3):
        await broker.push(queue.name, number, transaction_id=f"n{number}", trace_id=str(uuid4()))
        if INSTALLED:
            from tests.queen.notes import add_note

            await add_note(harness.store, partition, f"n{number}")
        harness.clock.advance(10)
    for _ in range(2):
        await broker.ack(await broker.pop(queue.name, batch=1), result=1)
    return partition


async def test_what_is_kept_of_messages_goes_with_them_and_with_no_others(harness: Harness) -> None:
    rules: dict[str, Any] = {"retention_enabled": True, "completed_retention_seconds": 25, "dedup_seconds": 25}
    broker, queue = harness.broker, await harness.queue(**rules)
    partition = await furnished(harness, broker, queue)
    assert await rows_of(harness, partition) == {table: 2 if table == "results" else 3 for table in TABLES}
    await run(harness)
    assert await rows_of(harness, partition) == {table: 1 if table == "results" else 2 for table in TABLES}
    if INSTALLED:
        from tests.queen.notes import notes_of

        assert len(await notes_of(harness.store, partition, "n1")) == 1
    await harness.store.browse.clear(queue.id)
    assert set((await rows_of(harness, partition)).values()) == {0}


async def test_a_deleted_queue_leaves_nothing_of_its_messages(harness: Harness) -> None:
    broker, queue = harness.broker, await harness.queue()
    partition = await furnished(harness, broker, queue)
    await harness.store.queues.delete(queue.tenant, queue.name)
    assert set((await rows_of(harness, partition)).values()) == {0}


async def test_partitions_are_found_by_the_beginning_of_their_names(harness: Harness) -> None:
    orders, bills, other = [await harness.queue(name) for name in ("orders", "bills", "other")]
    for queue in (orders, bills, other):
        for name in ("customer-7", "customer-70", "Customer-7", "xcustomer-7", "customer_7", "customer-é"):
            await harness.partition(queue, name)
    ids = [orders.id, bills.id]

    async def found(prefix: str, limit: int = 100) -> list[str]:
        rows = await harness.store.browse.named_like(ids, prefix, limit=limit)
        assert {row.queue_id for row in rows} <= set(ids)
        return [row.name for row in rows]

    assert await found("customer-7") == ["customer-7", "customer-7", "customer-70", "customer-70"]
    assert await found("customer-7", limit=1) == ["customer-7"]
    assert sorted(set(await found("customer-"))) == ["customer-7", "customer-70", "customer-é"]
    assert await found("%") == await found("customer-8") == []


@pytest.mark.parametrize("id", ["order-1001", "0198a3f0-0000-7000-8000-000000000001"])
async def test_a_search_for_an_id_can_be_limited_to_some_partitions(harness: Harness, id: str) -> None:
    queue = await harness.queue()
    here, there = [await harness.partition(queue, name) for name in ("here", "there")]
    for partition in (here, there):
        await harness.push(queue, [1], partition=partition.name, ids=[id])
    found = await harness.store.browse.with_id([queue.id], id)
    assert {one.name for one in found} == {"here", "there"}
    found = await harness.store.browse.with_id([queue.id], id, among=[there.id])
    assert {one.name for one in found} == {"there"}
    assert await harness.store.browse.with_id([queue.id], id, among=[]) == []
