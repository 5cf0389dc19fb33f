"""Charts: latency, time in the queue and failures, marks of what was done, and ranges."""

from __future__ import annotations

from tests.browser.test_phone import OUTSIDE, on_a_phone
from tests.browser.watched import Watched
from tests.http.wire import Wire


async def test_charts_show_failures_and_waits_with_marks_and_a_range_is_selected(page: Watched, wire: Wire) -> None:
    await wire.configure("charted", retryLimit=0)
    await wire.push("charted", *range(6))
    await wire.ack(await wire.pop("charted", batch=3), "failed", error="no such card")
    await page.open("/queues/charted")
    await page.shows("Failures per second")
    await page.shows("Time in the queue")
    await page.click("Pause")
    await page.page.locator(".mark-line[title*='paused by']").first.wait_for(state="attached")
    await page.photograph("charts")
    assert await page.violations() == []
    box = await page.page.locator(".chart").first.bounding_box()
    assert box is not None
    mouse, y = page.page.mouse, box["y"] + 60
    await mouse.move(box["x"] + box["width"] * 0.4, y)
    await mouse.down()
    await mouse.move(box["x"] + box["width"] * 0.9, y)
    await page.page.locator(".chart.is-selected").first.wait_for()
    await mouse.up()
    await page.page.wait_for_function("() => location.hash.includes('until=')")
    await page.click("Earlier")
    await page.click("Later")
    await page.ready()
    assert await page.violations() == []
    await on_a_phone(page)
    assert await page.page.evaluate(OUTSIDE) == []
    await page.click("Now")
    await page.page.wait_for_function("() => !location.hash.includes('until=')")
    await page.open("/audit?search=charted")
    await page.shows("queues.pause")
    await page.open("/audit?search=nobody-did-this")
    await page.shows("No entry matches.")
