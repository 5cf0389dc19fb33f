"""The commands of the README that lead from one file to one server and to two."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import pytest

from fairlane.broker.broker import Broker
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Urls
from tests.cells.queue_rows import cells_with
from tests.cli.conftest import in_process
from tests.docs.pages import ROOT, blocks


async def test_the_readme_leads_from_a_file_to_two_servers(
    urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Broker.open("sqlite:///fairlane.db") as broker:
        for number in range(10):
            await broker.push("orders", number)
            await broker.push("invoices", number)
        await broker.ack(await broker.pop("orders", batch=4))
    [block] = [one for one in blocks(ROOT / "README.md") if "tests/cells/test_grow.py" in one.mark]
    commands = block.text.replace("postgresql://pg1/queue", urls.home).replace("postgresql://pg2/queue", urls.second)
    for command in commands.splitlines():
        [program, *words] = shlex.split(command)
        assert program == "fairlane"
        assert (await asyncio.to_thread(in_process, words))[0] == 0, command
    async with await PostgresStore.open(urls.home) as home:
        assert (await cells_with(home, "orders"), await cells_with(home, "invoices")) == ([1], [0])
    async with Broker.open(urls.home) as broker:
        assert [one.data for one in await broker.pop("orders", batch=20)] == [4, 5, 6, 7, 8, 9]
        assert [one.data for one in await broker.pop("invoices", batch=20)] == list(range(10))
