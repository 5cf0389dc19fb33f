"""On a phone of 390 px no page is wider than the screen, and every control can be reached."""

from __future__ import annotations

import pytest

from tests.browser.filled import workers
from tests.browser.test_pages import PAGES
from tests.browser.watched import SIZES, Watched
from tests.http.wire import Wire

ROUTES = {
    **{name: route for name, (route, _) in PAGES.items()},
    "dead-letters-filtered": "/dead-letters?queue=orders&error=KeyError",
    "messages": "/queues/orders?view=messages",
    "options": "/queues/orders?view=options",
}
OUTSIDE = """() => {
  const width = document.documentElement.clientWidth;
  const all = document.documentElement.scrollWidth;
  const wide = all > width ? [`the page is ${all} px wide`] : [];
  for (const one of document.querySelectorAll("main *")) {
    if (one.closest("pre, .json, .hidden, svg, .tip")) continue;
    const { left, right, width: own } = one.getBoundingClientRect();
    if (own && (right > width + 1 || left < -1)) wide.push(`ends at ${right}: ${one.outerHTML.slice(0, 80)}`);
    if (one.matches(".table-scroll") && one.scrollWidth > one.clientWidth + 1) wide.push(`${one.ariaLabel} scrolls`);
  }
  return wide.slice(0, 8);
}"""
"""Script that returns what is wider than the screen."""


async def on_a_phone(page: Watched) -> None:
    width, height = SIZES["phone"]
    await page.page.set_viewport_size({"width": width, "height": height})


@pytest.mark.parametrize("name", ROUTES)
async def test_no_page_scrolls_sideways(page: Watched, filled_wire: Wire, name: str) -> None:
    await workers(filled_wire)
    await on_a_phone(page)
    await page.open(ROUTES[name])
    await page.page.screenshot(path=page.screen(f"{name}-tall-phone"), full_page=True)
    assert await page.page.evaluate(OUTSIDE) == []
    assert await page.violations() == []


async def test_no_message_and_no_dead_letter_scrolls_sideways(page: Watched, filled_wire: Wire) -> None:
    await on_a_phone(page)
    [letter, *_] = (await filled_wire.get("/api/v1/dlq", error="KeyError")).ok()["messages"]
    for name, route in {
        "dead-letter": f"/dead-letters/orders/{letter['id']}",
        "message": f"/messages/{letter['partitionId']}/{letter['transactionId']}",
    }.items():
        await page.open(route)
        await page.page.screenshot(path=page.screen(f"{name}-tall-phone"), full_page=True)
        assert await page.page.evaluate(OUTSIDE) == [], route
        assert await page.violations() == [], route


async def test_very_long_names_do_not_widen_a_page(page: Watched, wire: Wire) -> None:
    name = "a-queue-with-a-name-that-goes-on-" * 7
    partition = "c" * 255
    await wire.push(name, 1, partition=partition)
    await wire.ack(await wire.pop(name, partition=partition, consumerGroup="g" * 200), "failed", error="e" * 2000)
    await on_a_phone(page)
    for route in (
        "/",
        "/queues",
        f"/queues/{name}",
        f"/queues/{name}/partitions/{partition}?group={'g' * 200}",
        "/groups",
    ):
        await page.open(route)
        assert await page.page.evaluate(OUTSIDE) == [], route


async def test_a_row_is_selected_on_a_phone(page: Watched, filled_wire: Wire) -> None:
    await on_a_phone(page)
    await page.open("/queues/orders?group=billing")
    await page.page.get_by_role("checkbox", name="Select customer-3", exact=True).check()
    await page.shows("1 lane selected")
    await page.page.screenshot(path=page.screen("bulk-tall-phone"), full_page=True)
    assert await page.page.evaluate(OUTSIDE) == []


async def test_a_row_is_a_card_with_the_titles_of_its_columns(page: Watched, filled_wire: Wire) -> None:
    await on_a_phone(page)
    await page.open("/schedules")
    card = page.page.locator("tr", has_text="month-end")
    label = await card.locator("td[data-label=When]").evaluate("one => getComputedStyle(one, '::before').content")
    assert label == '"When"'
    await page.page.get_by_role("button", name="Run now: heartbeat").click()
    await page.shows("Pushed once to beats.", inside="#toasts")
