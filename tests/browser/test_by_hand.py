"""Messages pushed by hand, edited copies with a diff, the live tail, and the timeline of a message."""

from __future__ import annotations

from tests.browser.watched import Watched
from tests.http.wire import Wire

BIG = 12345678901234567890


async def test_a_message_is_pushed_from_the_page_of_its_queue(page: Watched, wire: Wire) -> None:
    await wire.push("by-hand", 1)
    await wire.ack(await wire.pop("by-hand"))
    await page.open("/queues/by-hand")
    await page.click("Push …")
    dialog = page.page.locator("dialog")
    payload = dialog.get_by_label("Payload (JSON)")
    await payload.fill('{"order": oops}')
    await dialog.locator(".problem").wait_for()
    await payload.fill(f'{{"order": {BIG}}}')
    await page.shows("Valid JSON.", inside="dialog")
    await dialog.get_by_label("Partition").fill("customer-7")
    await dialog.get_by_label("transactionId").fill("order-1")
    assert await page.violations() == []
    await page.photograph("push-by-hand")
    await page.click("Push", inside="dialog")
    await page.shows("Pushed as order-1.", inside="#toasts")
    [message] = await wire.pop("by-hand", partition="customer-7")
    assert (message["transactionId"], message["data"]) == ("order-1", {"order": BIG})


async def test_a_message_is_edited_and_pushed_again_with_a_diff(page: Watched, wire: Wire) -> None:
    item = {"queue": "again", "partition": "p", "transactionId": "first", "payload": {"shop": "Bern", "big": BIG}}
    (await wire.post("/api/v1/push", body={"items": [item | {"type": "order", "headers": {"a": "b"}}]})).ok(201)
    [message] = (await wire.get("/api/v1/messages", queue="again")).ok()["messages"]
    await page.open(f"/messages/{message['partitionId']}/first")
    await page.click("Edit and push again …")
    payload = page.page.locator("dialog").get_by_label("Payload (JSON)")
    assert str(BIG) in await payload.input_value()
    await page.shows("The payload is not changed.", inside="dialog")
    await payload.fill((await payload.input_value()).replace("Bern", "Berlin"))
    await page.page.locator("dialog .diff .removed", has_text="Bern").wait_for()
    await page.page.locator("dialog .diff .added", has_text="Berlin").wait_for()
    assert await page.violations() == []
    await page.photograph("edit-and-push-again")
    await page.click("Push", inside="dialog")
    await page.shows("Pushed as", inside="#toasts")
    first, second = await wire.pop("again", partition="p")
    assert (first["data"]["shop"], second["data"]) == ("Bern", {"shop": "Berlin", "big": BIG})
    assert (second["type"], second["headers"]["a"]) == ("order", "b")


async def test_the_live_tail_shows_new_messages_and_can_be_held(page: Watched, wire: Wire) -> None:
    await wire.push("tailed", {"order": 1}, partition="customer-1")
    await page.open("/queues/tailed?view=tail")
    await page.shows('{"order":1}')
    await wire.push("tailed", {"order": 2}, partition="customer-2")
    await page.shows('{"order":2}')
    rows = page.page.get_by_role("region", name="Live tail").locator("tbody tr")
    assert "customer-2" in await rows.first.inner_text()
    assert await page.violations() == []
    await page.photograph("live-tail")
    await page.click("Hold")
    await wire.push("tailed", {"order": 3}, partition="customer-3")
    await page.page.locator(".stat", has_text="Waiting").get_by_text("3", exact=True).wait_for()
    assert await rows.count() == 2
    await page.click("Continue")
    await page.shows('{"order":3}')


async def test_a_message_has_a_timeline(page: Watched, wire: Wire) -> None:
    await wire.configure("told", retryLimit=3)
    await wire.push("told", 1)
    await wire.ack(await wire.pop("told", consumerGroup="billing"), "failed", error="no such card")
    [popped] = await wire.pop("told", consumerGroup="billing")
    await page.open(f"/messages/{popped['partitionId']}/{popped['transactionId']}")
    for text in ("Pushed", "no such card", "after the push", "Delivered to billing"):
        await page.shows(text)
    await wire.ack([popped])
    await page.shows("Finished by billing")
    assert await page.violations() == []
    await page.photograph("timeline")
