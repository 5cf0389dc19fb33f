"""The System page: health first, the largest tables in full width, and only the settings that differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.broker_process import BrokerProcess
from tests.browser.conftest import opened
from tests.browser.watched import SIZES, Watched
from tests.http.wire import Wire
from tests.postgres import PostgresServer, running_server

if TYPE_CHECKING:
    from playwright.async_api import Browser


async def test_settings_by_default_are_folded(page: Watched, wire: Wire) -> None:
    await wire.push("orders", 1)
    settings = (await wire.get("/api/v1/system")).ok()["settings"]
    changed = [one["name"] for one in settings if not one["default"]]
    usual = [one["name"] for one in settings if one["default"]]
    assert changed
    assert usual
    await page.open("/system")
    table = page.page.get_by_role("region", name="Changed settings")
    for name in changed:
        await table.get_by_role("rowheader", name=name, exact=True).wait_for()
    folded = page.page.get_by_role("rowheader", name=usual[0], exact=True)
    assert not await folded.is_visible()
    await page.page.locator("summary", has_text="settings by default").click()
    for name in usual:
        await page.page.get_by_role("rowheader", name=name, exact=True).wait_for()
    assert await page.violations() == []


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_server(18) as server:
        yield server


async def test_the_tables_of_a_postgres_store_are_listed(
    browser: Browser, server: PostgresServer, tmp_path: Path
) -> None:
    async with server.fresh_database() as url, aiohttp.ClientSession() as session:
        broker = BrokerProcess(url, data_dir=tmp_path)
        await asyncio.to_thread(broker.start)
        try:
            wire = Wire(None, session, broker.url)
            await wire.push("orders", *range(100))
            async with opened(browser, broker.url) as page:
                await page.open("/system")
                tables = page.page.get_by_role("region", name="Largest tables")
                await tables.get_by_role("row").nth(5).wait_for()
                last = (await wire.get("/api/v1/system")).ok()["store"]["tables"][-1]["name"]
                assert not await page.page.get_by_role("rowheader", name=last, exact=True).is_visible()
                assert await page.violations() == []
                await page.photograph("system-postgres")
                width, height = SIZES["phone"]
                await page.page.set_viewport_size({"width": width, "height": height})
                assert await page.page.evaluate("document.documentElement.scrollWidth") == width
        finally:
            await asyncio.to_thread(broker.stop)
