"""The Cells page, and pages while a cell is down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
import pytest_asyncio

from fairlane.store.cells.cluster import add_cell
from fairlane.store.postgres.store import PostgresStore
from tests.broker_process import BrokerProcess
from tests.browser.conftest import opened
from tests.browser.test_phone import OUTSIDE, on_a_phone
from tests.browser.watched import Watched
from tests.faults.outages import crashed
from tests.http.wire import Wire
from tests.postgres import PostgresServer, running_server

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    with running_server(18) as home, running_server(18) as second:
        yield home, second


@pytest_asyncio.fixture(loop_scope="session")
async def two_cells(servers: tuple[PostgresServer, PostgresServer], tmp_path: Path) -> AsyncIterator[Wire]:
    """A broker on a store of two cells, with a queue in each."""
    home, second = servers
    async with home.fresh_database() as url, second.fresh_database() as other, aiohttp.ClientSession() as session:
        async with await PostgresStore.open(url) as store:
            await add_cell(store, other)
        broker = BrokerProcess(url, data_dir=tmp_path)
        await asyncio.to_thread(broker.start)
        try:
            wire = Wire(None, session, broker.url)
            for cell in ("0", "1"):
                await wire.configure(f"orders-{cell}", cell=cell)
                await wire.push(f"orders-{cell}", *range(100))
            yield wire
        finally:
            await asyncio.to_thread(broker.stop)


async def test_the_cells_are_listed_also_while_one_is_down(
    browser: Browser, two_cells: Wire, servers: tuple[PostgresServer, PostgresServer]
) -> None:
    async with opened(browser, two_cells.base) as page:
        await page.open("/cells")
        for one in (await two_cells.get("/api/v1/cells")).ok()["cells"]:
            await page.shows(one["node"])
            await page.shows(one["schema"])
        await page.shows("Cells", inside="nav")
        await page.shows("all answer")
        await page.photograph("cells")
        assert await page.violations() == []
        async with crashed(servers[1]):
            await page.shows("does not answer")
            await page.photograph("cells-one-down")
            assert await page.violations() == []
            await page.open("/queues")
            await page.shows("Its queues are missing in lists and totals.")
            await page.shows("orders-0")
            assert await page.violations() == []
            await page.photograph("queues-one-cell-down")
            await on_a_phone(page)
            await page.open("/cells")
            await page.shows("does not answer")
            assert await page.page.evaluate(OUTSIDE) == []
            assert await page.violations() == []
        await page.shows("all answer")


async def test_a_store_of_one_cell_has_no_page_of_cells_in_the_navigation(page: Watched) -> None:
    await page.open("/")
    await page.shows("System", inside="nav")
    assert await page.page.locator("nav").get_by_text("Cells").count() == 0
