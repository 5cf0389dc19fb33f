"""Pages that are loading, pages that cannot load their data, and lists that are shown in part."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.watched import Watched
from tests.http.wire import Wire

if TYPE_CHECKING:
    from playwright.async_api import Route

LIVE = "**/api/v1/live*"


async def test_a_page_that_waits_for_its_data_says_so_to_everybody(page: Watched, filled_wire: Wire) -> None:
    let_go = asyncio.Event()

    async def held(route: Route) -> None:
        await let_go.wait()
        await route.continue_()

    await page.page.route(LIVE, held)
    await page.page.goto(f"{page.base}/#/dead-letters")
    await page.page.locator(".waiting").first.wait_for()
    assert await page.violations() == []
    let_go.set()
    await page.ready()


async def test_what_could_not_be_read_can_be_tried_again(page: Watched, filled_wire: Wire) -> None:
    away = True

    async def refused(route: Route) -> None:
        if not away:
            return await route.continue_()
        paths = parse_qs(urlsplit(route.request.url).query)["watch"]
        body = {"error": "the disk of the store is full", "code": "store_unavailable"}
        events = [
            f"event: problem\ndata: {json.dumps({'path': one, 'status': 503, 'body': body})}\n\n" for one in paths
        ]
        await route.fulfill(status=200, content_type="text/event-stream", body="".join(events))

    await page.page.route(LIVE, refused)
    await page.page.goto(f"{page.base}/#/schedules")
    await page.shows("the disk of the store is full")
    away = False
    await page.click("Try again")
    await page.shows("month-end")


async def test_an_error_heals_by_itself_and_old_rows_stay_greyed(page: Watched, filled_wire: Wire) -> None:
    await page.open("/schedules")
    await page.shows("month-end")
    away = True

    async def refused(route: Route) -> None:
        if not away:
            return await route.continue_()
        paths = parse_qs(urlsplit(route.request.url).query)["watch"]
        body = {"error": "the disk of the store is full", "code": "store_unavailable"}
        events = [
            f"event: problem\ndata: {json.dumps({'path': one, 'status': 503, 'body': body})}\n\n" for one in paths
        ]
        await route.fulfill(status=200, content_type="text/event-stream", body="".join(events))

    await page.page.route(LIVE, refused)
    await page.page.evaluate("location.hash = '/schedules?order=desc'")  # a new list, which cannot be read
    await page.shows("This page is not up to date: the disk of the store is full")
    await page.shows("month-end")
    assert await page.violations() == []
    await page.photograph("old-rows")
    away = False
    await page.page.locator(".stale").wait_for(state="detached")
    await page.shows("month-end")


@pytest.mark.parametrize("route", ["/groups/many/g", "/queues/many?group=g"])
async def test_a_part_of_the_lanes_is_not_called_all(page: Watched, wire: Wire, route: str) -> None:
    items = [{"queue": "many", "partition": f"p{n:03}", "payload": n} for n in range(60)]
    (await wire.post("/api/v1/push", body={"items": items})).ok(201)
    await wire.pop("many", consumerGroup="g", batch=1)
    await page.open(route)
    await page.shows("p010")
    text = await page.text()
    assert "shown, no more" not in text, text
