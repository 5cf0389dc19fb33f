"""Pages with 10,000 queues, 10,000 partitions of one and a lane of a million: each shows a part, and costs as much.

The time that a page takes depends on the machine. These tests limit what the time depends on: how much the broker
sends, how large the document is, and how often the broker counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.broker_process import BrokerProcess, broker_process
from tests.browser.many import DEEP, WIDE, Size, fill, lengthen
from tests.browser.watched import Watched
from tests.http.wire import Wire

SIZE = Size(queues=10_000, partitions=10_000, messages=10_000, groups=500, schedules=200)
MESSAGES = 1_000_000
ELEMENTS_MAX = 4_000
ANSWER_BYTES_MAX = 100_000
PUSHES = 10
PAGES = {
    "/": "10,002 queues",
    "/queues": "1 to 50 of 10,002",
    "/queues?sort=pending&order=desc": "deep",
    "/queues?search=QUEUE-0999": "queue-09990",
    f"/queues/{WIDE}?state=all": "customer-000049",
    f"/queues/{WIDE}?group=billing&search=customer-00999": "customer-009999",
    f"/queues/{DEEP}?group=billing": "1 M",
    f"/queues/{DEEP}?view=messages": "999,999",
    f"/queues/{DEEP}/partitions/Default?group=billing": "head 1,000,000",
    "/groups": "1 to 100 of 502",
    f"/groups/{WIDE}/billing": "There are more",
    "/schedules": "1 to 50 of 200",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    file = tmp_path_factory.mktemp("store") / "queue.db"
    with ThreadPoolExecutor(1) as thread:  # a loop of its own
        thread.submit(asyncio.run, fill(f"sqlite:///{file}", SIZE)).result()
    lengthen(file, MESSAGES // SIZE.messages)
    with broker_process(f"sqlite:///{file}") as process:
        yield process


async def test_a_page_shows_a_part_of_very_many(page: Watched, wire: Wire) -> None:
    for route, text in PAGES.items():
        paths: list[str] = []
        page.watches(paths)
        await page.open(route)
        await page.shows(text)
        assert await page.page.evaluate("document.querySelectorAll('*').length") < ELEMENTS_MAX, route
        assert paths, route
        for path in set(paths):
            answer = await wire.ask("GET", path)
            assert (answer.status, len(answer.body) < ANSWER_BYTES_MAX) == (200, True), (route, path)
        if "?" not in route:
            await page.photograph(f"many-{route.strip('/').replace('/', '-') or 'overview'}")


async def test_a_list_is_sorted_by_the_broker_by_every_column_that_offers_it(page: Watched) -> None:
    for route, columns in {"/queues": 5, "/groups": 4, "/schedules": 3}.items():
        await page.open(route)
        buttons = page.page.locator("th button.sort")
        assert await buttons.count() == columns
        for n in range(columns):
            await buttons.nth(n).click()
            await page.ready()
            assert await page.page.locator("th[aria-sort]").count() == 1
            assert await page.page.locator("main .failed").count() == 0


async def test_a_push_is_on_the_page_within_a_second_beside_very_many(page: Watched, wire: Wire) -> None:
    """Measure with the clock of the page, from before the push until the number is drawn.

    The fastest of several attempts counts. A busy machine delays some of them; a broker that counted all queues would
    delay every one.
    """
    await page.open("/queues/queue-05000")
    figure = page.page.locator(".stat", has_text="Waiting").locator(".stat-value")
    seconds: list[float] = []
    for n in range(2, PUSHES + 2):
        shown = page.page.evaluate(
            "([selector, text]) => new Promise((done) => { const look = () => "
            "[...document.querySelectorAll(selector)].some((one) => one.textContent === text)"
            " ? done(Date.now()) : requestAnimationFrame(look); look(); })",
            [".stat-value", str(n)],
        )
        looking = asyncio.ensure_future(shown)
        began = time.time()
        await wire.push("queue-05000", n)
        seconds.append(await looking / 1000 - began)
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1, seconds
    assert await figure.inner_text() == str(len(seconds) + 1)
