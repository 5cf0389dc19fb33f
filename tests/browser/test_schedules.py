"""Schedules that a person creates on the dashboard."""

from __future__ import annotations

from tests.browser.watched import Watched
from tests.http.wire import Wire


async def test_a_schedule_is_created_and_an_existing_one_is_not_replaced(page: Watched, wire: Wire) -> None:
    async def create(cron: str) -> None:
        await page.click("New schedule")
        fields = {"name": "nightly", "queue": "reports", "cron": cron, "data": '{"kind": "daily"}'}
        for name, text in fields.items():
            await page.page.locator(f"dialog [name={name}]").fill(text)
        await page.shows("Valid JSON.", inside="dialog")
        assert await page.violations() == []
        await page.click("Create the schedule", inside="dialog")

    page.expected.append("/api/v1/schedules/nightly")  # it does not exist before
    await page.open("/schedules")
    await create("0 2 * * *")
    await page.shows("nightly is scheduled.", inside="#toasts")
    await page.shows("0 2 * * *")
    await create("0 3 * * *")
    await page.shows("The schedule nightly exists.", inside="#toasts")
    [one] = (await wire.get("/api/v1/schedules")).ok()["schedules"]
    assert (one["cron"], one["timezone"], one["data"], one["missed"]) == ("0 2 * * *", "UTC", {"kind": "daily"}, "once")
