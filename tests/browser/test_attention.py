"""Pages open with what needs attention."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairlane.store.sqlite.store import SqliteStore
from tests.browser.conftest import opened
from tests.browser.watched import Watched
from tests.http.test_operations import fail
from tests.http.wire import Wire, serving

if TYPE_CHECKING:
    from playwright.async_api import Browser


async def rows(page: Watched, region: str) -> list[str]:
    """Return the first link of each row of a table."""
    found = page.page.get_by_role("region", name=region, exact=True).locator("tbody .row-link")
    return [text.strip() for text in await found.all_inner_texts()]


async def test_a_queue_opens_with_its_stopped_lanes_in_natural_order(page: Watched, wire: Wire) -> None:
    await wire.configure("ledger", retryLimit=0, onExhausted="block", leaseTime=300)
    for n in (1, 2, 3, 10, 199, 200):
        await wire.push("ledger", 1, 2, partition=f"customer-{n}")
    for n in (199, 10, 2):
        [first] = await wire.pop("ledger", partition=f"customer-{n}", batch=1)
        await wire.ack([first], "failed", error="no such card")
    await page.open("/queues/ledger")
    await page.page.get_by_role("link", name="blocked 3", exact=True).wait_for()
    assert (await rows(page, "Lanes"))[:3] == ["customer-2", "customer-10", "customer-199"]
    assert await page.violations() == []
    await page.photograph("attention-queue")
    await page.open("/queues/ledger?state=all")
    names = [one for one in await rows(page, "Lanes") if one.startswith("customer")]
    assert names == [f"customer-{n}" for n in (1, 2, 3, 10, 199, 200)]


async def test_queues_in_trouble_are_listed_first(page: Watched, wire: Wire) -> None:
    await wire.push("a-calm-queue", 1)
    await wire.ack(await wire.pop("a-calm-queue"))
    await wire.configure("zebra", retryLimit=0, onExhausted="block")
    await wire.push("zebra", 1)
    await wire.ack(await wire.pop("zebra"), "failed", error="no such card")
    await page.open("/queues")
    names = await rows(page, "Queues")
    assert names.index("zebra 1 stopped") < names.index("a-calm-queue")
    await page.photograph("attention-queues")


async def test_failed_operations_come_before_completed_ones(browser: Browser, tmp_path: Path) -> None:
    store = await SqliteStore.open(str(tmp_path / "queue.db"))
    async with serving(store) as wire, opened(browser, wire.base) as page:
        ids = await fail(wire, "orders", {"order": 1}, {"order": 2})
        (await wire.post("/api/v1/operations", ids[0], "retry")).ok()
        await page.open("/operations")
        top = page.page.get_by_role("region", name="Failed and pending operations")
        await top.get_by_role("button", name=f"Retry {ids[1]}").wait_for()
        await page.page.get_by_role("region", name="Operations", exact=True).get_by_text("completed").first.wait_for()
        assert await page.violations() == []
        await page.photograph("attention-operations")


async def test_a_finding_is_snoozed_and_the_messages_that_stop_lanes_are_skipped(page: Watched, wire: Wire) -> None:
    await wire.configure("stopped", retryLimit=0, onExhausted="block", leaseTime=300)
    for n in (1, 2):
        await wire.push("stopped", 1, 2, partition=f"customer-{n}")
        [first] = await wire.pop("stopped", partition=f"customer-{n}", batch=1)
        await wire.ack([first], "failed", error="no such card")
    await page.open("/queues/stopped")
    row = page.page.locator("main .finding")
    await row.get_by_role("button", name="Snooze").click()
    await page.page.get_by_label("How long").select_option("3600")
    await page.click("Snooze", inside="dialog")
    await page.page.locator("summary", has_text="1 snoozed finding").click()
    await page.page.get_by_text("Snoozed by").first.wait_for()
    assert await page.violations() == []
    await page.photograph("snoozed")
    await row.get_by_role("button", name="End the snooze").click()
    await row.get_by_role("button", name="Skip their messages").click()
    await page.shows("Skip 2 messages?", inside="dialog")
    await page.click("Skip 2 messages", inside="dialog")
    await page.shows("2 messages skipped.", inside="#toasts")
    dead = (await wire.get("/api/v1/dlq", queue="stopped")).ok()["messages"]
    assert [one["data"] for one in dead] == [1, 1]
    await row.first.wait_for(state="detached")
