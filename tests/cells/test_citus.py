"""Cells that Citus places, on the cluster of `FAIRLANE_TEST_CITUS`."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from fairlane.broker.broker import Broker
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


async def test_cells_may_be_added_at_once(coordinator: str) -> None:
    found = await asyncio.gather(*(run("add", "--store", coordinator, "--cells", "1") for _ in range(2)))
    assert 0 in [code for code, _, _ in found]
    numbers = [cell["cell"] for cell in json.loads((await run("status", "--store", coordinator, "--json"))[1])]
    assert numbers == sorted(set(numbers))
