"""Cells that Citus places, on the cluster of `FAIRLANE_TEST_CITUS`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import cast

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.transaction import Transaction
from fairlane.errors import OutcomeUnknown, TransactionRefused
from fairlane.model.ids import cell_of
from fairlane.store.cells.cluster import add_cell
from fairlane.store.cells.store import CellsStore
from fairlane.store.postgres.store import PostgresStore
from tests.cells.test_commands import run
from tests.conformance.citus import CitusNode, make_database
from tests.conformance.configurations import CITUS

pytestmark = pytest.mark.skipif(not CITUS, reason="FAIRLANE_TEST_CITUS is not set")


@pytest.fixture
async def coordinator() -> str:
    """The URL of an empty database on every node."""
    await make_database(CitusNode(CITUS), "test_cells")
    return CitusNode(CITUS).url("test_cells")


PREPARED = "SELECT t.gid FROM pg_dist_transaction t"
FAIL_COMMITS = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the commit fails'; END $$;
CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON fairlane.segments DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION fail();
"""


def addresses(out: str) -> dict[int, str]:
    return {cell["cell"]: cell["node"].partition("/")[0] for cell in json.loads(out)}


async def test_cells_are_added_moved_and_removed(coordinator: str) -> None:
    store = ("--store", coordinator)
    code, out, _ = await run("add", *store, "--cells", "2", "--json")
    assert (code, [cell["schema"] for cell in json.loads(out)]) == (0, ["fairlane_1", "fairlane_2"])
    nodes = addresses((await run("status", *store, "--json"))[1])
    async with Broker.open(coordinator) as broker:
        for cell in (1, 2):
            queue = await broker.queues.configure(f"orders-{cell}", cell=str(cell))
            assert cell_of(queue.id) == cell
            await broker.push(queue.name, {"number": 1})
        assert len(set(nodes.values())) == 3, "the coordinator and two workers"

        # The broker goes on with its links to the previous node.
        assert await run("move", "1", "--to", nodes[2], *store) == (0, "", f"Moved cell 1 to {nodes[2]}.\n")
        assert addresses((await run("status", *store, "--json"))[1])[1] == nodes[2]
        await broker.push("orders-1", {"number": 2})
        popped = await broker.pop("orders-1", batch=10)
        assert [message.data for message in popped.messages] == [{"number": 1}, {"number": 2}]
        await broker.queues.delete("orders-1")
    code, out, err = await run("move", "1", "--to", "nowhere", *store)
    assert (code, out) == (2, "")
    assert "there is no node 'nowhere'; use one of" in err
    assert (await run("rebalance", *store))[0] == 0
    assert await run("remove", "1", *store) == (0, "", "Removed cell 1.\n")
    assert (await run("remove", "2", *store))[0] == 2


async def test_a_broker_follows_a_cell_to_its_next_node(coordinator: str) -> None:
    async with await PostgresStore.open(coordinator) as home:
        await add_cell(home, None)
        await add_cell(home, None)
    async with await CellsStore.open(coordinator) as opened:
        store = cast("CellsStore", opened)
        [before, other] = [cast("PostgresStore", store.router.links[cell].store).node for cell in (1, 2)]
        assert before != other
        assert other is not None
        host = other.partition("@")[2].partition("/")[0]
        await run("move", "1", "--to", host, "--store", coordinator)
        await store.reload()
        assert cast("PostgresStore", store.router.links[1].store).node == other


async def test_the_coordinator_delegates_to_the_owner(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the addresses of the nodes cannot be reached."""
    async with await PostgresStore.open(coordinator) as home:
        await add_cell(home, None)
        await add_cell(home, None)

    async def nearest(url: str, _schema: str) -> str:
        return url

    monkeypatch.setattr("fairlane.store.postgres.citus.nearest_url", nearest)
    async with Broker.open(coordinator) as broker:
        for number in range(2):
            name = f"orders-{number}"
            queue = await broker.queues.configure(name, cell=str(number + 1))
            assert cell_of(queue.id) == number + 1
            await broker.push(name, number)
            popped = await broker.pop(name, batch=10, group="mail")
            assert [message.data for message in popped.messages] == [number]
            assert [outcome.error for outcome in await broker.ack(popped.messages)] == [None]


@pytest.fixture
async def three_cells(coordinator: str) -> AsyncIterator[Broker]:
    """A broker with a queue in the home, and in a cell on each worker."""
    async with await PostgresStore.open(coordinator) as home:
        await add_cell(home, None)
        await add_cell(home, None)
    async with Broker.open(coordinator) as broker:
        for cell in range(3):
            await broker.queues.configure(f"orders-{cell}", cell=str(cell))
        yield broker


async def contents(broker: Broker) -> list[list[object]]:
    """Return the messages of each queue that no group has finished."""
    return [[one.data for one in (await broker.pop(f"orders-{cell}", batch=10)).messages] for cell in range(3)]


async def test_a_transaction_over_cells_is_applied_completely_or_not_at_all(three_cells: Broker) -> None:
    broker = three_cells
    await broker.push("orders-0", "first")
    await broker.push("orders-2", "second")
    taken = [*(await broker.pop("orders-0")).messages, *(await broker.pop("orders-2")).messages]
    await broker.queues.set_options("orders-1", max_size=1)
    refused = Transaction()
    for message in taken:
        refused.ack(message)
    refused.push("orders-2", "third")
    refused.push("orders-0", "fourth")
    refused.push("orders-1", "fifth")
    refused.push("orders-1", "one too many", partition="other")
    with pytest.raises(TransactionRefused, match="full"):
        await broker.transact(refused.steps)
    assert await contents(broker) == [[], [], []], "the messages are leased, and nothing was pushed"
    async with broker.transaction() as transaction:
        for message in taken:
            transaction.ack(message)
        transaction.push("orders-0", "fourth")
        transaction.push("orders-1", "fifth")
        transaction.push("orders-2", "third", delay_ms=1)
    assert await until_all(broker) == [["fourth"], ["fifth"], ["third"]]
    assert [outcome.error for outcome in await broker.ack(taken)] == [None, None]


async def until_all(broker: Broker) -> list[list[object]]:
    """Wait for a message of every queue."""
    return [[one.data for one in (await broker.pop(f"orders-{cell}", wait=30)).messages] for cell in range(3)]


async def test_a_transaction_over_cells_may_be_repeated(three_cells: Broker) -> None:
    for _ in range(2):
        async with three_cells.transaction() as transaction:
            for cell in range(3):
                transaction.push(f"orders-{cell}", cell, transaction_id=f"order-{cell}")
    assert await contents(three_cells) == [[0], [1], [2]]


async def test_a_change_of_the_home_and_of_one_worker_is_prepared(three_cells: Broker, coordinator: str) -> None:
    """Otherwise a crash of the coordinator could leave half of it."""
    connection = await asyncpg.connect(coordinator)
    try:
        before = {row["gid"] for row in await connection.fetch(PREPARED)}
        async with three_cells.transaction() as transaction:
            transaction.push("orders-0", 0)
            transaction.push("orders-1", 1)
        assert len({row["gid"] for row in await connection.fetch(PREPARED)} - before) == 1
    finally:
        await connection.close()


async def test_a_commit_over_cells_that_fails_has_an_unknown_outcome(three_cells: Broker, coordinator: str) -> None:
    connection = await asyncpg.connect(coordinator)
    try:
        await connection.execute(FAIL_COMMITS)
        failing = Transaction()
        for cell in range(3):
            failing.push(f"orders-{cell}", cell)
        with pytest.raises(OutcomeUnknown, match="the commit fails"):
            await three_cells.transact(failing.steps)
    finally:
        await connection.close()
    assert await contents(three_cells) == [[], [], []]


async def test_cells_may_be_added_at_once(coordinator: str) -> None:
    found = await asyncio.gather(*(run("add", "--store", coordinator, "--cells", "1") for _ in range(2)))
    assert 0 in [code for code, _, _ in found]
    numbers = [cell["cell"] for cell in json.loads((await run("status", "--store", coordinator, "--json"))[1])]
    assert numbers == sorted(set(numbers))
