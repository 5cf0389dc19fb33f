"""The search dialog finds queues, partitions, ids, groups, workers and pages, by keyboard alone."""

from __future__ import annotations

from tests.browser.filled import workers
from tests.browser.watched import Watched
from tests.http.wire import Wire


async def search(page: Watched, text: str) -> None:
    await page.page.keyboard.press("Control+k")
    await page.page.get_by_role("combobox", name="Search everything").wait_for()
    await page.page.keyboard.type(text)


async def choose(page: Watched, kind: str, text: str) -> None:
    """Walk down to the result with the arrow keys, and open it."""
    hit = page.page.get_by_role("option").filter(has_text=kind).filter(has_text=text).first
    await hit.wait_for()
    for _ in range(await page.page.get_by_role("option").count()):
        if await hit.get_attribute("aria-selected") == "true":
            break
        await page.page.keyboard.press("ArrowDown")
    await page.page.keyboard.press("Enter")


async def test_a_message_is_found_by_the_id_that_a_customer_names(page: Watched, wire: Wire) -> None:
    item = {"queue": "orders", "partition": "customer-7", "transactionId": "order-1001", "payload": {"total": 9.99}}
    (await wire.post("/api/v1/push", body={"items": [item]})).ok(201)
    await page.open("/workers")
    await search(page, "order-1001")
    await page.page.get_by_role("option").filter(has_text="customer-7").wait_for()
    assert await page.violations() == []
    await page.photograph("search")
    await choose(page, "Message", "order-1001")
    await page.page.wait_for_url("**/order-1001")
    await page.ready()
    await page.shows("9.99")


async def test_queues_partitions_groups_workers_and_pages_are_found(page: Watched, wire: Wire) -> None:
    await wire.push("invoices", 1, partition="tenant-a")
    await wire.ack(await wire.pop("invoices", consumerGroup="mailer"))
    await workers(wire)
    await page.open("/")
    for text, kind, url in (
        ("invoi", "Queue", "**/#/queues/invoices"),
        ("tenant-", "Partition", "**/#/queues/invoices/partitions/tenant-a"),
        ("mailer", "Group", "**/#/groups/invoices/mailer"),
        ("worker-2", "Worker", "**/#/workers?search=worker-2"),
        ("audit", "Page", "**/#/audit"),
    ):
        await search(page, text)
        await choose(page, kind, "")
        await page.page.wait_for_url(url)
        await page.page.locator("dialog").wait_for(state="detached")


async def test_the_search_says_when_there_is_nothing_and_closes(page: Watched, wire: Wire) -> None:
    await page.open("/queues")
    await page.click("Search Ctrl K")
    await page.page.keyboard.type("nobody-has-this")
    await page.shows("Nothing has “nobody-has-this” in its name", inside="dialog")
    assert await page.violations() == []
    await page.page.keyboard.press("Escape")
    await page.page.locator("dialog").wait_for(state="detached")
