"""Failed operations: retried and discarded in the browser, one by one and all together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairlane.store.sqlite.store import SqliteStore
from tests.browser.conftest import opened
from tests.http.test_operations import fail
from tests.http.wire import serving
from tests.until import until

if TYPE_CHECKING:
    from playwright.async_api import Browser


async def test_failed_operations_are_retried_and_discarded_by_clicking(browser: Browser, tmp_path: Path) -> None:
    store = await SqliteStore.open(str(tmp_path / "queue.db"))
    async with serving(store) as wire, opened(browser, wire.base) as page:
        await fail(wire, "orders", {"order": 1}, {"order": 2}, {"order": 3})
        ids = await fail(wire, "letters", {"letter": 1})
        await page.open("/operations?status=failed")
        await page.shows("deleted")
        await page.click(f"Discard {ids[0]}")
        await page.click("Discard", inside="dialog")
        await page.shows("Discarded.", inside="body")
        await page.page.get_by_role("row", name="letters").wait_for(state="detached")
        await page.click("Retry all failed")
        await page.shows("Retried 3 operations.", inside="body")

        async def stored() -> bool:
            found = (await wire.get("/api/v1/resources/queues", "orders")).ok()["totals"]
            return bool(found["pending"] == 3)

        await until(stored)
        await page.page.get_by_role("button", name="Retry all failed").wait_for(state="detached")
        again = await fail(wire, "letters", {"letter": 2}, {"letter": 3})
        await page.open("/operations?status=failed&queue=letters")
        await page.click("Discard its failed operations …")
        await page.page.locator("dialog input").fill("letters")
        await page.page.keyboard.press("Enter")
        await page.shows("Discarded 2 operations.", inside="body")
        for id in again:
            assert (await wire.get("/api/v1/operations", id)).ok()["status"] == "discarded"
