"""One browser for each worker process, one broker for each module, and a page that fails the test if anything goes
wrong on it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import aiohttp
import pytest
import pytest_asyncio

from tests.broker_process import BrokerProcess, broker_process
from tests.browser import filled
from tests.browser.watched import SIZES, Watched
from tests.http.wire import Wire

if TYPE_CHECKING:
    from playwright.async_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",  # tests may run as root, which its sandbox refuses; it only opens what this tree serves
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of this directory on the session's loop, where the browser lives."""
    for item in items:
        if "/browser/" in item.nodeid and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM: the dashboard is not tested in a browser; `make tools` as root installs it by apt")
    if find_spec("playwright") is None:
        pytest.skip("NO PLAYWRIGHT: the dashboard is not tested in a browser; install requirements/dev.txt")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        for name, secret in filled.SECRETS.items():
            patch.setenv(name, secret)
        with broker_process(f"sqlite:///{tmp_path_factory.mktemp('store')}/queue.db") as process:
            yield process


@pytest_asyncio.fixture(loop_scope="session")
async def wire(broker: BrokerProcess) -> AsyncIterator[Wire]:
    """The API of the broker, to fill it and to compare its answers with the pages."""
    async with aiohttp.ClientSession() as session:
        yield Wire(None, session, broker.url)


_filled: set[str] = set()


@pytest_asyncio.fixture(loop_scope="session")
async def filled_wire(wire: Wire) -> Wire:
    """A broker with an object of every kind, filled once per module."""
    if wire.base not in _filled:
        await filled.everything(wire)
        _filled.add(wire.base)
    return wire


@asynccontextmanager
async def opened(browser: Browser, base: str) -> AsyncIterator[Watched]:
    width, height = SIZES["wide"]
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="light", reduced_motion="reduce", locale="en-GB"
    )
    page = Watched(await context.new_page(), base)
    await page.watch()
    try:
        yield page
        problems = await page.problems()
    finally:
        await context.close()
    assert not problems, "\n".join(problems)


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, broker: BrokerProcess) -> AsyncIterator[Watched]:
    """An empty page. Fails the test if the page logged an error or violated the content security policy."""
    async with opened(browser, broker.url) as page:
        yield page
