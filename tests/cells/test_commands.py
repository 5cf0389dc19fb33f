"""`fairlane cluster` on two servers."""

from __future__ import annotations

import asyncio
import json

import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import Conflict
from fairlane.store.cells.cluster import remove_cell, set_state
from fairlane.store.cells.directory import Directory
from fairlane.store.cells.move import QueueMover, moves
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Urls
from tests.cells.queue_rows import cells_with
from tests.cli.conftest import in_process


async def run(*words: str) -> tuple[int, str, str]:
    return await asyncio.to_thread(in_process, ["cluster", *words])


async def test_a_cell_is_added_shown_closed_reopened_and_removed(urls: Urls) -> None:
    store = ("--store", urls.home)
    code, out, err = await run("add", *store, "--url", urls.second)
    assert (code, out) == (0, "")
    assert err == "Added cell 1 (schema fairlane_1). New queues may be created there from now on.\n"
    async with Broker.open(urls.home) as broker:
        await broker.queues.configure("orders", cell="1")
        await broker.push("orders", 1)

    code, out, _ = await run("status", *store, "--json")
    first, second = json.loads(out)
    assert (code, first["cell"], first["state"], first["queues"]) == (0, 0, "open", 0)
    assert (second["cell"], second["state"], second["queues"], second["error"]) == (1, "open", 1, None)
    assert second["bytes"] > 0
    code, out, _ = await run("status", *store)
    assert [line.split()[0] for line in out.splitlines()] == ["cell", out.splitlines()[1].split()[0], "0", "1"]

    assert await run("close", "1", *store) == (0, "", "Closed cell 1 for new queues.\n")
    assert "full" in (await run("status", *store))[1]
    assert await run("reopen", "1", *store) == (0, "", "Cell 1 gets new queues again.\n")
    assert await run("remove", "1", *store) == (2, "", "fairlane: cell 1 has 1 queues; delete or move them first\n")
    async with Broker.open(urls.home) as broker:
        await broker.queues.delete("orders")
    assert await run("remove", "1", *store) == (0, "", "Removed cell 1.\n")
    assert await run("close", "1", *store) == (2, "", "fairlane: there is no cell 1\n")


async def test_a_queue_is_moved_and_an_interrupted_move_is_shown_and_undone(cells: Urls) -> None:
    store = ("--store", cells.home)
    async with Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell="0")
        await broker.queues.configure("returns", cell="same-as orders")
        await broker.queues.configure("failing", cell="0", dead_letter_queue="orders")
        await broker.push("orders", 1)
        code, _, err = await run("move-queue", "orders", "--to", "1", *store)
        assert (code, err.splitlines()) == (
            0,
            [
                "Moved orders from cell 0 to cell 1.",
                "Created beside it and not moved: returns",
                "Queues whose dead letters are forwarded to it, to be moved too: failing",
            ],
        )
        assert [one.data for one in (await broker.pop("orders", wait=30)).messages] == [1]
        async with await PostgresStore.open(cells.home) as home:
            with pytest.raises(asyncio.CancelledError):
                await QueueMover(home, reached=interrupted).move("default", "orders", 0)
            with pytest.raises(Conflict, match="'orders' is being moved to or from cell 1"):
                await remove_cell(home, 1)
        assert "Moving orders from cell 1 to cell 0: 1 of 1 messages" in (await run("status", *store))[1]
        assert await run("move-queue", "orders", "--abort", *store) == (0, "", "Queue orders stays in cell 1.\n")
        assert "Moving" not in (await run("status", *store))[1]
        await broker.push("orders", 2)
        assert [one.data for one in (await broker.pop("orders", group="other", batch=2, wait=30)).messages] == [1, 2]


async def interrupted(step: str) -> None:
    if step == "locked":
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nobody", "--to", "1"), "there is no queue 'nobody'"),
        (("orders", "--to", "7"), "there is no cell 7; known are 0, 1 (`fairlane cluster status`)"),
        (("orders", "--to", "0"), "queue 'orders' is in cell 0 already"),
        (("orders", "--to", "1"), "cell 1 is full and takes no new queues; name another one"),
        (("orders", "--abort"), "queue 'orders' is not being moved"),
        (("orders",), "name the new cell with --to, or undo an interrupted move with --abort"),
        (("orders", "--to", "1", "--tenant", "acme"), "there is no queue 'orders'"),
    ],
)
async def test_a_move_that_is_not_possible_is_refused_and_nothing_changes(
    cells: Urls, words: tuple[str, ...], error: str
) -> None:
    async with await PostgresStore.open(cells.home) as home, Broker.open(cells.home) as broker:
        await broker.queues.configure("orders", cell="0")
        if "full" in error:
            await set_state(home, 1, "full")
        before = await Directory(home).load(), await moves(home)
        assert await run("move-queue", *words, "--store", cells.home) == (2, "", f"fairlane: {error}\n")
        assert (await Directory(home).load(), await moves(home)) == before
        assert await cells_with(home, "orders") == [0]


async def test_a_cell_that_does_not_answer_is_shown_as_unavailable(cells: Urls) -> None:
    gone = cells.second.replace("?host=", "?host=/nowhere")
    async with await PostgresStore.open(cells.home) as home:
        await home.database.write("UPDATE fairlane.cells SET url = $1 WHERE cell = 1", gone)
    code, out, _ = await run("status", "--store", cells.home, "--json")
    assert code == 0
    assert [one["state"] for one in json.loads(out)] == ["open", "unavailable"]


async def test_a_store_that_is_one_file_has_no_cells() -> None:
    code, out, err = await run("status", "--store", "queue.db")
    assert (code, out) == (2, "")
    assert err == "fairlane: only a PostgreSQL store can have several cells, not 'sqlite:///queue.db'; set --store\n"


async def test_passwords_of_cells_are_not_shown(cells: Urls) -> None:
    secret = "postgresql://postgres:hunter2@/x?host=/nowhere"
    async with await PostgresStore.open(cells.home) as home:
        await home.database.write("UPDATE fairlane.cells SET url = $1 WHERE cell = 1", secret)
    for words in (("--json",), ()):
        _, out, err = await run("status", "--store", cells.home, *words)
        assert "hunter2" not in out + err


async def test_only_citus_places_and_moves_cells(cells: Urls) -> None:
    store = ("--store", cells.home)
    code, out, err = await run("add", *store, "--cells", "2")
    assert (code, out) == (2, "")
    assert err == "fairlane: this server is not Citus, which places cells by itself: name a database with --url\n"
    for words in (("move", "1", "--to", "pg2"), ("rebalance",)):
        code, out, err = await run(*words, *store)
        assert (code, out) == (2, "")
        assert err == "fairlane: not here: only Citus moves cells; move queues (fairlane cluster move-queue)\n"
    assert [cell["cell"] for cell in json.loads((await run("status", *store, "--json"))[1])] == [0, 1]


async def test_a_new_cell_has_a_url_or_a_count() -> None:
    for words in ((), ("--url", "postgresql://pg2/queue", "--cells", "2"), ("--cells", "0"), ("--cells", "256")):
        code, out, err = await run("add", "--store", "postgresql://pg1/queue", *words)
        assert (code, out) == (2, "")
        assert "--cells" in err
