"""Queues, lanes and messages: actions on their pages are carried out by the broker and shown."""

from __future__ import annotations

from typing import Any

from tests.browser.watched import Watched
from tests.http.wire import Wire
from tests.until import until


async def explained(wire: Wire, queue: str, partition: str) -> Any:
    return (await wire.get("/api/v1/explain", queue, partition)).ok()


async def test_a_queue_is_paused_resumed_cleared_and_deleted(page: Watched, wire: Wire) -> None:
    await wire.push("doomed", 1, 2, 3)
    await page.open("/queues/doomed")
    await page.click("Pause")
    await page.shows("doomed is paused.", inside="body")
    assert (await wire.get("/api/v1/queues", "doomed", "pauses")).ok()["pausedAt"] is not None
    await page.click("Resume")
    await page.shows("doomed is resumed.", inside="body")
    await page.click("Clear")
    certain = page.page.locator("dialog").get_by_role("button", name="Clear the queue")
    assert await certain.is_disabled(), "its name was not typed yet"
    await page.page.locator("dialog input").fill("doomed")
    await page.page.keyboard.press("Enter")
    await page.shows("doomed is empty.", inside="body")
    assert (await wire.get("/api/v1/resources/queues", "doomed")).ok()["totals"]["pending"] == 0
    await page.click("Delete")
    await page.page.locator("dialog input").fill("doomed")
    await page.click("Delete the queue", inside="dialog")
    await page.shows("doomed is deleted.", inside="body")
    (await wire.get("/api/v1/resources/queues", "doomed")).refused(404)


async def test_an_option_is_changed_where_it_is_explained(page: Watched, wire: Wire) -> None:
    await wire.configure("slow", leaseTime=60)
    await page.open("/queues/slow?view=options")
    await page.click("Change Lease")
    await page.page.locator("dialog input").fill("240")
    await page.click("Save", inside="dialog")
    await page.shows("Lease of slow is 4 min now.", inside="body")
    await page.shows("4 min")
    assert (await wire.get("/api/v1/resources/queues", "slow")).ok()["options"]["leaseTime"] == 240


async def test_a_blocked_lane_is_found_and_its_message_skipped(page: Watched, wire: Wire) -> None:
    await wire.configure("stuck", retryLimit=0, onExhausted="block")
    for n in range(9):
        await wire.push("stuck", 1, 2, partition=f"customer-{n}")
    await wire.ack(await wire.pop("stuck", partition="customer-7", batch=1), "failed", error="no such card")
    await page.open("/queues/stuck")
    await page.page.get_by_role("link", name="blocked 1", exact=True).click()
    await page.click("customer-7", role="link")
    await page.shows("no such card")
    assert (await explained(wire, "stuck", "customer-7"))["reason"] == "blocked"
    await page.click("Skip the message")
    await page.click("Skip it", inside="dialog")
    await page.shows("It is now a dead letter.", inside="body")
    assert (await explained(wire, "stuck", "customer-7"))["position"] == 1
    assert (await wire.get("/api/v1/dlq", queue="stuck")).ok()["total"] == 1


async def test_a_lease_is_released_and_the_lane_paused_and_resumed(page: Watched, wire: Wire) -> None:
    await wire.push("held", 1, 2, partition="a")
    await wire.pop("held", partition="a", batch=1)
    await page.open("/queues/held/partitions/a")
    await page.click("Release the lease")
    await page.click("Release", inside="dialog")
    await page.shows("Lease released.", inside="body")
    assert (await explained(wire, "held", "a"))["reason"] == "ready"
    await page.click("Pause the lane")
    await page.click("Resume")

    async def ready() -> bool:
        return bool((await explained(wire, "held", "a"))["reason"] == "ready")

    await until(ready)


async def test_a_payload_is_shown_with_every_digit_and_folds(page: Watched, wire: Wire) -> None:
    await wire.push("payloads", {"order": {"ledger": 12345678901234567890, "lines": [1, 2]}})
    [message] = (await wire.get("/api/v1/messages", queue="payloads")).ok()["messages"]
    await page.open(f"/messages/{message['partitionId']}/{message['transactionId']}")
    await page.shows("12345678901234567890")
    await page.page.locator(".json summary", has_text="order").click()
    await page.see("12345678901234567890").wait_for(state="hidden")


async def test_queues_are_searched_and_opened_by_keyboard(page: Watched, wire: Wire) -> None:
    for name in ("found-1", "found-2", "other"):
        await wire.push(name, 1)
    await page.open("/")
    keyboard = page.page.keyboard
    await keyboard.press("g")
    await keyboard.press("q")
    await page.page.wait_for_url("**/#/queues")
    await page.page.get_by_role("searchbox").wait_for()
    await keyboard.press("/")
    await keyboard.type("found-")
    await page.see("other").wait_for(state="hidden")
    await keyboard.press("Escape")
    await keyboard.press("j")
    await keyboard.press("j")
    await keyboard.press("Enter")
    await page.page.wait_for_url("**/#/queues/found-2")
