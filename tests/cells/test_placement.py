"""The placement of queues, and changes of cells that are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.transaction import Transaction
from fairlane.errors import Conflict, FairlaneError, InvalidRequest, NotFound, TransactionSpansCells, Unavailable
from fairlane.model.ids import cell_of
from fairlane.store.cells.cluster import add_cell, remove_cell, set_state, status
from fairlane.store.cells.directory import Directory, node_of
from fairlane.store.opening import open_store
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Urls
from tests.until import until


async def cell_of_queue(broker: Broker, name: str) -> int:
    return cell_of((await broker.queues.existing(name)).id)


async def test_a_queue_is_created_in_the_cell_that_its_options_name(cells: Urls) -> None:
    async with Broker.open(cells.home) as broker:
        for cell in (0, 1):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            await broker.queues.configure(f"beside-{cell}", cell=f"same-as orders-{cell}")
            assert (
                await cell_of_queue(broker, f"orders-{cell}") == await cell_of_queue(broker, f"beside-{cell}") == cell
            )
        assert {queue.name for queue in await broker.queues.all()} == {"orders-0", "orders-1", "beside-0", "beside-1"}


async def test_a_queue_that_names_no_cell_goes_to_the_one_with_the_fewest_bytes(cells: Urls) -> None:
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("large", cell="1")
        for _ in range(4):
            await broker.push("large", "x" * 500_000)
        async with await open_store(cells.home) as fresh:
            assert cell_of((await fresh.queues.ensure("default", "next")).id) == 0
        assert (await broker.pop("large")).messages


@pytest.mark.parametrize("cell", ["7", "same-as nobody"])
async def test_an_unknown_cell_is_refused_and_nothing_is_created(cells: Urls, cell: str) -> None:
    async with Broker.open(cells.home) as broker:
        with pytest.raises(InvalidRequest, match=r"there is no (cell 7; known are 0, 1|queue 'nobody')"):
            await broker.queues.configure("orders", cell=cell)
        assert await broker.queues.all() == []


@pytest.mark.parametrize("cell", ["one", "1 ", "same-as", "-1", "1000"])
async def test_a_cell_that_is_neither_a_number_nor_beside_a_queue_is_refused(cell: str) -> None:
    async with Broker.open("sqlite:///:memory:") as broker:
        with pytest.raises(InvalidRequest, match="it must be a number, or `same-as`"):
            await broker.queues.configure("orders", cell=cell)


async def test_a_store_of_one_cell_knows_cell_0_alone(home: PostgresStore, urls: Urls) -> None:
    for url in ("sqlite:///:memory:", urls.home):
        async with Broker.open(url) as broker:
            await broker.queues.configure("orders", cell="0")
            await broker.queues.configure("beside", cell="same-as orders")
            with pytest.raises(InvalidRequest, match="there is no cell 1"):
                await broker.queues.configure("elsewhere", cell="1")


async def test_a_full_cell_gets_no_new_queues_and_serves_those_it_has(cells: Urls, home: PostgresStore) -> None:
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell="1")
        await set_state(home, 1, "full")
        with pytest.raises(Conflict, match="cell 1 is full"):
            await broker.queues.configure("more", cell="1")
        async with await open_store(cells.home) as fresh:
            for number in range(3):
                assert cell_of((await fresh.queues.ensure("default", f"other-{number}")).id) == 0
        await broker.push("orders", 1)
        assert (await broker.pop("orders")).messages
        await set_state(home, 1, "open")
        await broker.queues.configure("more", cell="1")
        with pytest.raises(NotFound, match="no cell 9"):
            await set_state(home, 9, "full")


async def test_a_queue_stays_in_its_cell(cells: Urls) -> None:
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell="1")
        with pytest.raises(Conflict, match="'orders' is in cell 1, not in cell 0"):
            await broker.queues.configure("orders", cell="0")
        await broker.queues.delete("orders")
        await broker.push("orders", 1)
        assert await cell_of_queue(broker, "orders") == 1, "the placement outlives the queue"


async def test_a_dead_letter_queue_is_created_beside_its_queue(cells: Urls) -> None:
    async with Broker.open(cells.home) as broker:
        for cell in ("0", "1"):
            await broker.queues.configure(f"source-{cell}", cell=cell)
            await broker.queues.set_options(f"source-{cell}", dead_letter_queue=f"failed-{cell}", retry_limit=0)
            assert await cell_of_queue(broker, f"failed-{cell}") == int(cell)
        with pytest.raises(Conflict, match="its dead letter queue 'failed-0' in cell 0"):
            await broker.queues.set_options("source-1", dead_letter_queue="failed-0")
        await broker.push("source-1", "bad")
        [message] = (await broker.pop("source-1")).messages
        await broker.nack(message, error="boom")
        batch = await broker.pop("failed-1", wait=30)
        assert [one.data["error"] for one in batch.messages] == ["boom"]


@pytest.mark.parametrize("cell", ["0", "1"])
async def test_a_queue_and_its_dead_letter_queue_are_created_in_the_cell_that_its_options_name(
    cells: Urls, cell: str
) -> None:
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell=cell, dead_letter_queue="failed")
        assert [await cell_of_queue(broker, queue) for queue in ("orders", "failed")] == [int(cell)] * 2


async def test_a_transaction_over_cells_is_refused_before_anything_is_done(cells: Urls) -> None:
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell="0")
        await broker.queues.configure("invoices", cell="1")
        await broker.queues.configure("receipts", cell="same-as invoices")
        await broker.push("orders", 1)
        [message] = (await broker.pop("orders")).messages
        spanning = Transaction()
        spanning.ack(message)
        spanning.push("invoices", 2)
        with pytest.raises(TransactionSpansCells, match=r"queue 'orders' in cell 0, and queue 'invoices' in cell 1"):
            await broker.transact(spanning.steps)
        assert not (await broker.pop("invoices")).messages
        async with broker.transaction() as transaction:
            transaction.push("invoices", 3)
            transaction.push("receipts", 4)
        assert (await broker.pop("receipts")).messages
        [outcome] = await broker.ack(message)
        assert outcome.success


async def test_two_brokers_that_create_a_queue_at_once_create_it_in_one_cell(cells: Urls) -> None:
    """The directories of both are as old as the queue is new."""
    async with await open_store(cells.home) as one, await open_store(cells.home) as other:

        def preferring(store: Any, cell: int) -> None:
            async def choose() -> int:
                return cell

            store.router.choose = choose

        preferring(one, 0)
        preferring(other, 1)
        for number in range(20):
            name = f"queue-{number}"
            first, second = await asyncio.gather(*(store.queues.ensure("default", name) for store in (one, other)))
            assert first.id == second.id
            assert first == await one.queues.get("default", name) == await other.queues.get("default", name)
        assert len(await one.queues.all("default")) == 20


async def test_a_broker_that_runs_notices_a_new_cell_and_creates_no_queue_twice(
    urls: Urls, home: PostgresStore
) -> None:
    async with Broker.open(urls.home) as running:
        await running.push("before", 1)
        await add_cell(home, urls.second)
        async with Broker.open(urls.home) as fresh:
            await fresh.queues.configure("orders", cell="1")
            await fresh.push("orders", 1)

            async def pushed() -> bool:
                try:
                    return (await running.push("orders", 2)).status == "queued"
                except Unavailable:
                    return False

            await until(pushed)
            assert await cell_of_queue(running, "orders") == 1
            assert [one.data for one in (await running.pop("orders", batch=9)).messages] == [1, 2]
            assert (await running.pop("before")).messages


async def test_what_cannot_be_a_cell_is_refused_and_nothing_changes(
    urls: Urls, home: PostgresStore, fresh_database: Any, servers: Any
) -> None:
    await add_cell(home, urls.second)
    other = await fresh_database(servers.second)
    async with await PostgresStore.open(other) as stranger:
        await stranger.queues.ensure("default", "mine")
    before = await Directory(home).load()
    for url, error, words in (
        (urls.second, Conflict, "cell 1 already"),
        (urls.home, Conflict, "cell 0 already"),
        (other, Conflict, "holds another store"),
        ("queue.db", InvalidRequest, "a cell is a PostgreSQL database"),
        (urls.second.replace("test_", "nowhere_"), FairlaneError, "CREATE DATABASE"),
    ):
        with pytest.raises(error, match=words):
            await add_cell(home, url)
    assert await Directory(home).load() == before


async def test_an_interrupted_addition_is_finished_by_another(
    urls: Urls, home: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken_off() -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(home.queues, "note_cells", broken_off)
        with pytest.raises(asyncio.CancelledError):
            await add_cell(home, urls.second)
    await home.database.write("UPDATE fairlane.cells SET state = 'joining' WHERE cell = 1")
    assert (await add_cell(home, urls.second)).number == 1
    assert [cell.state for cell in await Directory(home).load()] == ["open", "open"]


async def test_a_cell_is_removed_only_when_it_is_empty(cells: Urls, home: PostgresStore) -> None:
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell="1")
        with pytest.raises(Conflict, match="cell 1 has 1 queues"):
            await remove_cell(home, 1)
        with pytest.raises(Conflict, match="cell 0 is the home"):
            await remove_cell(home, 0)
        with pytest.raises(NotFound, match="no cell 5"):
            await remove_cell(home, 5)
        await broker.push("orders", 1)
        await broker.queues.delete("orders")
        await remove_cell(home, 1)

        async def pushed() -> bool:
            try:
                return (await broker.push("orders", 2)).status == "queued"
            except Unavailable:
                return False

        await until(pushed)
        assert await cell_of_queue(broker, "orders") == 0
    assert [one.cell for one in await status(home)] == [0]
    assert (await add_cell(home, cells.second)).number == 2, "its database is free again, and its ids are not"


async def test_the_status_tells_what_is_in_each_cell(cells: Urls, home: PostgresStore) -> None:
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell="1")
        await broker.push("orders", 1)
    first, second = await status(home)
    assert (first.cell, first.schema, first.state) == (0, "fairlane", "open")
    assert (second.cell, second.schema, second.node) == (1, "fairlane_1", node_of(cells.second))
    assert first.size is not None
    assert second.size is not None
    assert (first.size.queues, second.size.queues, second.size.pushed) == (0, 1, 1)
    assert second.size.bytes > 0
