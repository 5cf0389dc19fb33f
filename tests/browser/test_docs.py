"""The page of the API, /docs."""

from __future__ import annotations

from tests.browser.watched import Watched
from tests.http.wire import Wire


async def test_the_page_of_the_api_shows_every_operation_and_finds_one(page: Watched, wire: Wire) -> None:
    description = (await wire.get("/openapi.json")).ok()
    await page.page.goto(f"{page.base}/docs")
    await page.shows("/api/v1/push")
    shown = await page.text()
    assert [path for path in description["paths"] if path not in shown] == []
    await page.page.get_by_label("Filter").fill("replay")
    await page.shows("/api/v1/dlq/replay")
    assert "/api/v1/configure" not in await page.text()
    assert await page.violations() == []


async def test_what_goes_wrong_on_a_page_is_noticed(page: Watched) -> None:
    """Test the watch itself: without it, a page that fails could pass."""
    await page.page.goto(f"{page.base}/docs")
    await page.page.evaluate(
        "() => { document.body.append(Object.assign(document.createElement('script'), {text: '1'})) }"
    )
    await page.page.evaluate("() => { setTimeout(() => { throw new Error('thrown') }) }")
    await page.page.evaluate("() => fetch('/api/v1/schedules/none')")
    await page.page.evaluate("() => window.hurt('a sample')")
    found = "\n".join(await page.problems())
    for part in ("CSP script-src", "page error: thrown", "answered 404", "script of data ran: a sample"):
        assert part in found
    page.expected = [""]
