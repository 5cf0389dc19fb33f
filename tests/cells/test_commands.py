"""`fairlane cluster` on two servers."""

from __future__ import annotations

import asyncio
import json

from fairlane.broker.broker import Broker
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Urls
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
