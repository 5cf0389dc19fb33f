"""Moves of a queue to another cell while it is used."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.broker.transaction import Transaction
from fairlane.model.message import PushItem
from fairlane.store.cells.cluster import open_cell
from fairlane.store.cells.directory import Directory
from fairlane.store.cells.move import QueueMover
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Urls
from tests.cells.directories import directory_of, restore_directory
from tests.cells.queue_rows import CONDITIONS, STAY, cells_with, rows_of
from tests.cells.traffic import LANES, Traffic
from tests.lost_answers import AWAY, fails


async def test_every_table_moves_or_stays(home: PostgresStore) -> None:
    rows = await home.database.read("SELECT tablename FROM pg_tables WHERE schemaname = 'fairlane'")
    assert {name for (name,) in rows} == STAY | CONDITIONS.keys()


async def use(broker: Broker, queue: str) -> None:
    """Leave something of each kind in a queue."""
    await broker.queues.configure(
        queue, cell="0", retention_enabled=True, retention_seconds=3600, retry_limit=1, max_size=1000
    )
    for number in range(20):
        await broker.push(queue, number, partition=LANES[number % 3], transaction_id=f"{queue} {number}")
    await broker.push_many([PushItem(queue=queue, payload=b"%d" % n, partition="many") for n in range(50)])
    await broker.push(queue, "later", delay_ms=3_600_000)
    await broker.ack(await broker.pop(queue, batch=3), result={"sum": 6})
    for _ in range(2):
        await broker.nack((await broker.pop(queue, partition="a"))[0], error="for a dead letter")
    await broker.nack((await broker.pop(queue, partition="b"))[0], error="for a failure")
    await broker.pop(queue, group="other", batch=2)
    await broker.pauses.pause(queue, partition="c")
    [many] = (await broker.pop(queue, partition="many", group="third")).messages
    await broker.messages.delete(str(many.partition_id), many.transaction_id)


async def test_a_move_brings_every_row_and_leaves_none(cells: Urls, home: PostgresStore) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        await use(broker, "orders")
        queue_id = (await broker.queues.existing("orders")).id
    before = await rows_of(home, queue_id)
    assert {table for table, rows in before.items() if rows} >= {
        *("segments", "cursors", "message_keys", "skips", "results", "dead_letters", "partitions", "failures"),
        *("groups", "scheduled_segments", "scheduled_messages", "expiries", "queues"),
    }
    await QueueMover(home).move("default", "orders", 1)
    async with await open_cell(home, (await Directory(home).load())[1]) as second:
        assert await rows_of(second, queue_id) == before
        assert not any((await rows_of(home, queue_id)).values())
        await QueueMover(home).move("default", "orders", 0)
        assert await rows_of(home, queue_id) == before
        assert not any((await rows_of(second, queue_id)).values())


async def test_producers_and_consumers_go_on_during_moves(cells: Urls, home: PostgresStore) -> None:
    async with Broker.open(cells.home) as one, Broker.open(cells.home) as other:
        await one.queues.configure("orders", cell="0")
        traffic = Traffic([one, other], "orders")
        async with traffic:
            for cell in (1, 0, 1):
                await traffic.some()
                await QueueMover(home).move("default", "orders", cell)
                assert await cells_with(home, "orders") == [cell]
        assert traffic.errors == []
        await traffic.finish()


async def test_messages_popped_with_lost_acks_are_not_lost_with_their_cell(cells: Urls) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        await broker.queues.configure("orders", cell="1")
        await broker.push("orders", 0)
        batch = await broker.pop("orders")
        assert batch.lease
        await broker.release(batch.lease)
        cell = broker._engine.store.router.links[1].store  # type: ignore[attr-defined]
        fails(cell.messages, "ack", AWAY)
        answer = await broker.ack_and_pop(batch.messages, "orders", wait=30)
        assert [one.code for one in answer.outcomes] == ["lease_lost"]
        assert [(one.data, one.failed_attempts) for one in answer.batch] == [(0, 0)]


async def test_a_transaction_is_not_refused_for_what_a_broker_knew_before_a_move(
    cells: Urls, home: PostgresStore
) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        for cell, queue in enumerate(("orders", "invoices")):
            await broker.queues.configure(queue, cell=str(cell))
            await broker.push(queue, 0)
        known = directory_of(broker)
        await QueueMover(home).move("default", "invoices", 0)
        for number in (1, 2, 3):  # a broker may hear of the move at any time
            restore_directory(broker, known)
            transaction = Transaction()
            transaction.push("orders", number)
            transaction.push("invoices", number)
            await broker.transact(transaction.steps)
        popped = [await broker.pop(queue, batch=10) for queue in ("orders", "invoices")]
        assert [[one.data for one in batch] for batch in popped] == [[0, 1, 2, 3]] * 2


async def test_a_deleted_queue_can_be_created_again_in_the_cell_that_it_moved_away_from(
    cells: Urls, home: PostgresStore
) -> None:
    async with Broker.open(cells.home, retention_interval=0) as broker:
        await broker.queues.configure("orders", cell="1")
        await QueueMover(home).move("default", "orders", 0)
        assert await broker.queues.delete("orders")
        await broker.queues.configure("orders", cell="1")
        assert await cells_with(home, "orders") == [1]
