"""The Retention page: what was deleted, and applying the rules."""

from __future__ import annotations

from tests.browser.test_phone import OUTSIDE, on_a_phone
from tests.browser.watched import Watched
from tests.http.wire import Wire
from tests.until import until


async def test_deletions_are_shown_by_queue_and_rule_and_the_rules_are_applied(page: Watched, wire: Wire) -> None:
    await wire.configure("old", retentionEnabled=True, retentionSeconds=1)
    await wire.push("old", 1, 2, 3)

    async def deleted() -> bool:
        return bool((await wire.post("/api/v1/retention/run")).ok()["deleted"])

    await until(deleted)
    await page.open("/retention")
    await page.shows("3 messages")
    await page.photograph("retention-of-a-queue")
    assert await page.violations() == []
    await page.click("Apply now …")
    await page.click("Apply them now", inside="dialog")
    await page.shows("Nothing was old enough to delete.", inside="#toasts")
    await on_a_phone(page)
    assert await page.page.evaluate(OUTSIDE) == []
    await page.click("old", role="link", inside="main")
    await page.shows("Delete all messages after")
