"""Measure the pages of the dashboard with very much to show: 10,000 queues, 100,000 partitions, a lane of a million.

    python -m bench.pages                 SQLite and PostgreSQL
    python -m bench.pages --store sqlite --quick

A page's time is that from the start of its navigation, in a browser that knows nothing yet, until nothing on it waits
for its data. Below it are the answers that it watches, each asked for by itself: the first, and the median of the
next. A page that took longer than a second is printed as MISSED; the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
from playwright.async_api import Browser, async_playwright

from bench.postgres import MAJORS, fresh_database, running
from tests.broker_process import broker_process
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.browser.many import DEEP, WIDE, Size, fill

SECONDS_MAX = 1.0
PAGES = (
    "/",
    "/queues",
    "/queues?sort=pending&order=desc",
    "/queues?search=queue-0999",
    f"/queues/{WIDE}",
    f"/queues/{WIDE}?group=billing&state=unfinished",
    f"/queues/{DEEP}",
    f"/queues/{DEEP}?view=messages",
    f"/queues/{DEEP}/partitions/Default?group=billing",
    "/groups",
    f"/groups/{WIDE}/billing",
    "/schedules",
    "/sources",
    "/workers",
    "/hooks",
    "/specs",
    "/dead-letters",
    "/operations",
    "/system",
)
_SHOWN = """() => {
    const main = document.querySelector("main");
    return main?.dataset.shown === location.hash && !main.querySelector(".waiting") && performance.now();
}"""


@asynccontextmanager
async def stores(chosen: argparse.Namespace) -> AsyncIterator[dict[str, str]]:
    """The URL of an empty store by its kind."""
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-", dir=chosen.directory) as directory:
        urls = {} if chosen.store == "postgres" else {"sqlite": f"sqlite:///{directory}/queue.db"}
        if chosen.store == "sqlite":
            yield urls
            return
        with running(chosen.directory, major=max(MAJORS)) as server:
            async with fresh_database(server) as url:
                yield urls | {"postgres": url}


async def opened(browser: Browser, url: str) -> tuple[float, list[str]]:
    """Seconds until a page is there, and the paths that it watches by then."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    page, watched = await context.new_page(), list[str]()
    page.on("request", lambda request: watched.extend(parse_qs(urlsplit(request.url).query).get("watch", ())))
    try:
        await page.goto(url)
        shown = await page.wait_for_function(_SHOWN, timeout=60_000)
        return float(await shown.json_value()) / 1000, watched
    finally:
        await context.close()


async def asked(session: aiohttp.ClientSession, url: str) -> float:
    began = time.perf_counter()
    async with session.get(url) as answer:
        await answer.read()
        assert answer.status < 500, await answer.text()
    return time.perf_counter() - began


async def measure(browser: Browser, base: str, rounds: int) -> bool:
    """Print every page and its paths; whether all were there in time."""
    held, known = True, set[str]()
    async with aiohttp.ClientSession() as session:
        for page in PAGES:
            runs = [await opened(browser, f"{base}/#{page}") for _ in range(rounds)]
            seconds = statistics.median(taken for taken, _ in runs)
            held &= seconds <= SECONDS_MAX
            print(f"{seconds * 1e3:8.0f} ms  {page:60} {'' if seconds <= SECONDS_MAX else 'MISSED'}", flush=True)
            for path in dict.fromkeys(path for _, watched in runs for path in watched if path not in known):
                known.add(path)
                first, *more = [await asked(session, f"{base}{path}") for _ in range(6)]
                print(f"{first * 1e3:12.0f} {statistics.median(more) * 1e3:8.1f}       {path[:110]}", flush=True)
    return held


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a small store and one round: does it run, not how fast")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    chosen = parser.parse_args()
    size, rounds = (Size(100, 100, 1000, 20, 10), 1) if chosen.quick else (Size(), chosen.rounds)
    held = True
    async with async_playwright() as playwright, stores(chosen) as urls:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for kind, url in urls.items():
            began = time.perf_counter()
            await fill(url, size)
            print(f"{kind}: filled in {time.perf_counter() - began:.0f} s with {size}", flush=True)
            with broker_process(url) as broker:
                held &= await measure(browser, broker.url, rounds)
        await browser.close()
    return 0 if held or chosen.quick else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
