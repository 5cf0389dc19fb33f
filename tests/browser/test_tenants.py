"""The Tenants page: rates, usage, quotas and keys."""

from __future__ import annotations

from tests.browser.test_phone import OUTSIDE, on_a_phone
from tests.browser.watched import Watched
from tests.http.wire import Wire


async def test_a_tenant_is_created_limited_and_deleted(page: Watched, wire: Wire) -> None:
    await wire.push("orders", *range(50))
    await page.open("/tenants")
    await page.shows("100 %")
    await page.click("New tenant")
    await page.page.get_by_label("Name").fill("acme")
    await page.page.get_by_role("spinbutton", name="Queues").fill("7")
    await page.click("Create the tenant", inside="dialog")
    await page.shows("acme was created.", inside="#toasts")
    await page.shows("Queues 7")
    await page.click("acme", role="link", inside="main")
    await page.shows("of 7")
    await page.click("Quotas …")
    await page.page.get_by_label("Messages per second").fill("50")
    await page.page.get_by_role("spinbutton", name="Queues").fill("")
    await page.click("Set the quotas", inside="dialog")
    await page.shows("Messages per second 50/s")
    shown = (await wire.get("/api/v1/tenants/acme")).ok()
    assert shown["quotas"] == {"messagesPerSecond": 50}
    await page.photograph("tenant-with-quotas")
    assert await page.violations() == []
    await on_a_phone(page)
    assert await page.page.evaluate(OUTSIDE) == []
    await page.click("Delete")
    await page.page.get_by_label("Type acme to confirm").fill("acme")
    await page.click("Delete the tenant", inside="dialog")
    await page.shows("acme is deleted.", inside="#toasts")
    assert [one["name"] for one in (await wire.get("/api/v1/tenants")).ok()["tenants"]] == ["default"]
