"""Fixtures for the tests of an app. pytest loads them wherever fairlane is installed.

@pytest.fixture
def fairlane_app() -> App:
    return shop.app

def test_an_order_is_billed(fairlane_test: BlockingAppTest) -> None:
    fairlane_test.push("orders", {"id": 1})
    fairlane_test.drain()
    assert fairlane_test.pushed("invoices") == [{"order": 1}]
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

try:
    from pytest_asyncio import fixture as _asynchronous
except ImportError:  # only the fixture of asynchronous tests needs it
    _asynchronous = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    from fairlane import App
    from fairlane.testing import AppTest, BlockingAppTest, FrozenClock


@pytest.fixture
def fairlane_app() -> App:
    """Return the app under test. Define a fixture of this name in your conftest.py."""
    pytest.fail("define a fixture `fairlane_app` that returns the App to test", pytrace=False)


@pytest.fixture
def fairlane_clock() -> FrozenClock:
    """Return the clock of the broker of this test. It stands still until the test moves it."""
    from fairlane.testing import FrozenClock

    return FrozenClock()


def _clock(request: pytest.FixtureRequest) -> FrozenClock | None:
    if "fairlane_clock" not in request.fixturenames:
        return None
    found: FrozenClock = request.getfixturevalue("fairlane_clock")
    return found


@pytest.fixture
def fairlane_test(request: pytest.FixtureRequest, fairlane_app: App) -> Iterator[BlockingAppTest]:
    """Run the app with a broker on an empty store, for tests that are plain functions."""
    from fairlane.testing import BlockingAppTest  # the plugin must not slow down runs without it

    with BlockingAppTest(fairlane_app, clock=_clock(request)) as test:
        yield test


@_asynchronous
async def async_fairlane_test(request: pytest.FixtureRequest, fairlane_app: App) -> AsyncIterator[AppTest]:
    """Run the app with a broker on an empty store, for tests that are coroutines. Needs pytest-asyncio."""
    from fairlane.testing import AppTest

    async with AppTest(fairlane_app, clock=_clock(request)) as test:
        yield test
